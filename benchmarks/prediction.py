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
from dataeff.profile import Profiler
from dataeff.profile.diagnosis import Model, model_of
from dataeff.profile.replay import Settings
from dataeff.profile.stalls import measure
from dataeff.steps import read_run

STEPS = 60
SPIN_S = 0.3
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
    calibration: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, base in RECORDED:
            for setting in RERUN:
                if setting == base:
                    continue
                name = f"{kind} {base} -> {setting}".replace("Setting", "")
                # Recorded anew for each, so that a machine that others load too is the same for both runs.
                recorded, again = (Path(folder) / f"{len(compared)}-{part}" for part in ("recorded", "again"))
                _record(recorded, WORK[kind], base)
                cores = _free_cores()
                model = model_of(read_run(recorded), cores=cores, loop_processor_share=0.0)
                calibration.append(model.error_share)
                entry: dict[str, Any] = {
                    "run": name,
                    "recorded_ms": round(1e3 * model.measured_s, 3),
                    "free_cores": round(cores, 2),
                    "predicted_ms": round(1e3 * _predicted(model, base, setting), 3),
                }
                say(f"{name}: {entry['predicted_ms']} ms predicted")
                steps_s = []
                for turn in range(RERUNS):
                    _record(again / str(turn), WORK[kind], setting)
                    steps_s.append(measure(read_run(again / str(turn))).step_s.value)
                measured_s = statistics.median(steps_s)
                entry |= {
                    "measured_ms": round(1e3 * measured_s, 3),
                    "measured_each_ms": [round(1e3 * step_s, 3) for step_s in steps_s],
                    "error_percent": round(100 * (entry["predicted_ms"] / (1e3 * measured_s) - 1), 2),
                }
                compared.append(entry)
                say(f"  {entry['measured_ms']} ms measured, {entry['error_percent']:+.1f} %")
    errors = np.abs([entry["error_percent"] for entry in compared])
    return Report(
        name="prediction",
        figures=(
            Figure(name="re-runs", value=len(compared), unit="runs", at_least=20),
            Figure(name="predicted within 10 %", value=100 * float(np.mean(errors <= 10)), unit="%", at_least=100),
            Figure(name="worst error", value=float(errors.max()), unit="%", at_most=10),
            Figure(name="median error", value=float(np.median(errors)), unit="%"),
            Figure(
                name="own settings, worst error",
                value=100 * float(np.abs(calibration).max()),
                unit="%",
                note="replaying what was recorded",
            ),
        ),
        notes=(
            "Each prediction was made before its runs started; times are means of steady steps, measured ones the "
            "median of three runs.",
        ),
        versions={"torch": version("torch")},
        details={"runs": compared},
    )


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
