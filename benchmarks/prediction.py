"""Does the queue model say what other loader settings do? Predict, write it down, then run and compare.

Three workloads, whose time goes to storage, to computing samples, and to both, recorded with one or two settings.
Storage and the device are waits of a known length, so that only the loader itself and the computing of samples compete
for processors. Every prediction is made from the recording before the run that it is about starts.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.harness import Figure, Report, say
from dataeff.errors import MeasurementError
from dataeff.profile import Profiler
from dataeff.profile.diagnosis import Model, diagnose, model_of
from dataeff.profile.headroom import Headroom
from dataeff.profile.replay import Settings
from dataeff.profile.stalls import measure
from dataeff.steps import read_run

STEPS = 60
SPIN_S = 0.3
ATTEMPTS = 3
EVEN_SHARE = 0.1
"""A comparison counts if the processors left free before and after differ by less."""
RERUNS = 3
"""Runs of which the median counts: others may use the machine."""
SAMPLE = (2048,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a sample and a step take."""

    storage_s: float
    """Mean wait a sample, exponentially distributed."""
    sorts: int
    """Processor time a sample, as a number of sorts of 20,000 numbers."""
    device_s: float
    """Wait of the loop a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A loader's."""

    workers: int
    prefetch: int = 2
    batch: int = 8


class Samples(Dataset[torch.Tensor]):
    """Samples that take time."""

    def __init__(self, work: Work, size: int) -> None:
        self._work, self._size = work, size
        self._numbers = np.random.default_rng(0).random(20_000)
        self._waits = np.random.default_rng(1).exponential(1.0, size) * work.storage_s

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._work.storage_s:
            time.sleep(float(self._waits[index]))
        for _ in range(self._work.sorts):
            np.sort(self._numbers)
        return torch.ones(SAMPLE, dtype=torch.int64)


WORK = {
    "storage": Work(storage_s=0.002, sorts=0, device_s=0.001),
    "computing": Work(storage_s=0.0, sorts=2, device_s=0.001),
    "both": Work(storage_s=0.0015, sorts=1, device_s=0.0015),
}
RECORDED = (
    ("storage", Setting(workers=1)),
    ("storage", Setting(workers=0)),
    ("computing", Setting(workers=1)),
    ("both", Setting(workers=1)),
    ("both", Setting(workers=2)),
)
RERUN = (
    Setting(workers=0),
    Setting(workers=2),
    Setting(workers=3),
    Setting(workers=4, prefetch=4),
    Setting(workers=2, prefetch=1),
    Setting(workers=1, batch=16),
    Setting(workers=2, batch=4),
)


def run() -> Report:
    """Record, predict, run, compare."""
    torch.set_num_threads(1)
    compared: list[dict[str, Any]] = []
    repeated = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind, base in RECORDED:
            for setting in RERUN:
                if setting == base:
                    continue
                for attempt in range(ATTEMPTS):
                    entry, even = _compared(Path(folder) / f"{len(compared)}-{attempt}", kind, base, setting)
                    if even:
                        break
                    repeated += 1
                    say("  the machine was not equally free before and after")
                compared.append(entry)
        ceilings = [_headroom(Path(folder) / f"headroom-{kind}", work) for kind, work in WORK.items()]
    errors = np.abs([entry["error_percent"] for entry in compared])
    return Report(
        name="prediction",
        figures=(
            Figure(name="re-runs", value=len(compared), unit="runs", at_least=20),
            Figure(name="predicted within 10 %", value=100 * float(np.mean(errors <= 10)), unit="%", at_least=100),
            Figure(name="worst error", value=float(errors.max()), unit="%", at_most=10),
            Figure(name="median error", value=float(np.median(errors)), unit="%"),
            Figure(
                name="step without data, worst error",
                value=max(abs(entry["error_percent"]) for entry in ceilings),
                unit="%",
                at_most=10,
                note=f"{len(ceilings)} headroom runs",
            ),
            Figure(
                name="own settings, worst error",
                value=float(max(abs(entry["own_error_percent"]) for entry in compared)),
                unit="%",
                note="replaying what was recorded",
            ),
        ),
        notes=(
            "Each prediction was made before its runs started; times are means of steady steps, measured ones the "
            "median of three runs.",
            f"{repeated} comparisons were made again since other work on the machine came or went meanwhile.",
        ),
        details={"runs": compared, "repeated": repeated, "headroom": ceilings},
        versions={"torch": version("torch")},
    )


def _compared(folder: Path, kind: str, base: Setting, setting: Setting) -> tuple[dict[str, Any], bool]:
    """One prediction and the runs that it is about; and whether the machine was equally free before and after."""
    name = f"{kind} {base} -> {setting}".replace("Setting", "")
    free = _free_cores()
    # Recorded anew for each, so that a machine that others load too is the same for both runs.
    _record(folder / "recorded", WORK[kind], base)
    model = model_of(read_run(folder / "recorded"), cores=free, loop_processor_share=0.0)
    predicted_ms = 1e3 * _predicted(model, base, setting)
    say(f"{name}: {predicted_ms:.3f} ms predicted")
    steps_ms = []
    for turn in range(RERUNS):
        _record(folder / str(turn), WORK[kind], setting)
        steps_ms.append(1e3 * measure(read_run(folder / str(turn))).step_s.value)
    measured_ms, still_free = statistics.median(steps_ms), _free_cores()
    error_percent = 100 * (predicted_ms / measured_ms - 1)
    say(f"  {measured_ms:.3f} ms measured, {error_percent:+.1f} %")
    entry = {
        "run": name,
        "free_cores": [round(free, 2), round(still_free, 2)],
        "recorded_ms": round(1e3 * model.measured_s, 3),
        "own_error_percent": round(100 * model.error_share, 2),
        "predicted_ms": round(predicted_ms, 3),
        "measured_ms": round(measured_ms, 3),
        "measured_each_ms": [round(step_ms, 3) for step_ms in steps_ms],
        "error_percent": round(error_percent, 2),
    }
    return entry, abs(still_free / free - 1) <= EVEN_SHARE


def _headroom(folder: Path, work: Work) -> dict[str, Any]:
    """The step without data as predicted from a recording, and as measured by serving the same batches again."""
    _record(folder / "recorded", work, Setting(workers=1))
    record = read_run(folder / "recorded")
    samples = Samples(work, STEPS * 8)
    with Profiler(out=folder / "headroom") as profiler:
        for batch in profiler.watch(Headroom(_loader(samples, Setting(workers=1)))):
            time.sleep(work.device_s * len(batch))
    found = diagnose(record, headroom=read_run(folder / "headroom"), loop_processor_share=0.0).headroom
    if found is None:
        raise MeasurementError(f"{folder} predicts no step without data")
    say(f"headroom: {1e3 * found.predicted_s:.3f} ms predicted, {1e3 * found.measured_s.value:.3f} ms measured")
    return {
        "predicted_ms": round(1e3 * found.predicted_s, 3),
        "measured_ms": round(1e3 * found.measured_s.value, 3),
        "error_percent": round(100 * found.error_share, 2),
    }


def _free_cores() -> float:
    """Processors that a process for each of them gets: all of them, unless others use the machine."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with multiprocessing.get_context("fork").Pool(there) as pool:
        return min(float(sum(pool.map(_spun_share, range(there), chunksize=1))), float(there))


def _spun_share(_: int) -> float:
    began, began_working = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < SPIN_S:
        pass
    return (time.process_time() - began_working) / (time.perf_counter() - began)


def _predicted(model: Model, base: Setting, setting: Setting) -> float:
    """Seconds a step of the setting's own batch size."""
    scale = setting.batch / base.batch
    settings: Settings = replace(
        model.settings, num_workers=setting.workers, prefetch_factor=setting.prefetch, batch_scale=scale
    )
    return model.predict("setting", str(setting), settings).step_s.value * scale


def _record(out: Path, work: Work, setting: Setting) -> None:
    samples = Samples(work, STEPS * setting.batch)
    with Profiler(out=out) as profiler:
        for batch in profiler.watch(_loader(samples, setting)):
            time.sleep(work.device_s * len(batch))


def _loader(samples: Samples, setting: Setting) -> DataLoader[torch.Tensor]:
    return DataLoader(
        samples,
        batch_size=setting.batch,
        num_workers=setting.workers,
        prefetch_factor=setting.prefetch if setting.workers else None,
    )
