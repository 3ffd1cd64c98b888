"""Real loops with known delays: does the profiler give each cause what was put there?

Each case is slow in one way on purpose, and the code that is slow measures itself: what it took inside the loop's
waits (or, for copies and synchronisations, of the loop) is the truth. The loop reads a torch DataLoader without
workers, or with one, so that the truth of a wait is known without a model of a queue.

Each case is run several times, and the run counts in which other programs took the processor away from computing
least. How much that is, is measured by the code that computes, whatever the profiler says.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.harness import Figure, Report, say
from dataeff.profile import Profiler
from dataeff.steps import CAUSES, read_run

STEPS = 60
SAMPLES = 4
SAMPLE_S = 0.002
WORK_S = 0.008
LARGE = 1 << 21
"""Numbers of a sample that is slow to hand over: 16 MB a batch of float32, pickled since it is a numpy array."""
ROUNDS = 7


def spin(seconds: float) -> None:
    """Use a processor for so much of this thread's time."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def work_is_computing(cause: str) -> bool:
    """Whether a delay of this cause is spun, not slept."""
    return cause in ("decode", "collate")


@dataclass
class Truth:
    """Seconds by cause, added up by the code that took them."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))
    preempted_s: float = 0.0
    """In which computing had no processor."""

    def timed(self, cause: str, work: Callable[[], None]) -> None:
        """Do work that is of this cause."""
        start, cpu = time.perf_counter(), time.thread_time()
        work()
        took = time.perf_counter() - start
        self.seconds[cause] += took
        if work_is_computing(cause):
            self.preempted_s += took - (time.thread_time() - cpu)


class Samples(Dataset[torch.Tensor]):
    """Rows that are slow in one way."""

    def __init__(self, truth: Truth, slow: str) -> None:
        self._truth, self._slow = truth, slow
        self._row = torch.ones(16)

    def __len__(self) -> int:
        return STEPS * SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._slow == "storage":
            self._truth.timed("storage", lambda: time.sleep(SAMPLE_S))
        if self._slow in ("decode", "sync"):
            self._truth.timed("decode", lambda: spin(SAMPLE_S))
        return self._row


def in_process(slow: str, out: Path) -> tuple[dict[str, float], float]:
    """A loop that makes its batches itself; the record of it is in `out`.

    Returns:
        Shares by cause, in truth; and the share in which computing had no processor.
    """
    truth = Truth()

    def collate(samples: list[torch.Tensor]) -> torch.Tensor:
        if slow == "collate":
            truth.timed("collate", lambda: spin(SAMPLES * SAMPLE_S))
        return torch.stack(samples)

    loader = DataLoader(Samples(truth, slow), batch_size=SAMPLES, collate_fn=collate)
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.zeros(2)
    optimizer = torch.optim.SGD([weight])
    before: list[tuple[float, dict[str, float]]] = []
    drained_s = 0.0
    with Profiler(out) as profiler:
        for _ in loader:
            if slow == "sync" and before:
                # Without the synchronisation, as much of the decoding would have been hidden.
                hidden = min(drained_s, truth.seconds["decode"] - before[-1][1]["decode"])
                truth.seconds["sync"] += hidden
                truth.seconds["decode"] -= hidden
            with profiler.copying() if slow == "copy" else nullcontext():
                if slow == "copy":
                    truth.timed("copy", lambda: time.sleep(SAMPLES * SAMPLE_S))
            spin(WORK_S)
            if slow == "sync":
                start = time.perf_counter()
                with profiler.synchronizing():
                    time.sleep(WORK_S / 2)
                drained_s = time.perf_counter() - start
            optimizer.step()
            before.append((time.perf_counter(), dict(truth.seconds)))
    took_s = before[-1][0] - before[0][0]
    shares = {cause: (before[-1][1][cause] - before[0][1][cause]) / took_s for cause in CAUSES}
    return shares, truth.preempted_s / took_s


class LargeSamples(Dataset[Any]):
    """Quick to make, slow to hand over."""

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        import numpy as np

        return np.zeros(LARGE, np.float32)


def handed_over(out: Path) -> tuple[dict[str, float], float]:
    """The same for a worker whose batches are pickled through a pipe.

    The worker makes a batch in next to no time, so nearly all that the loop waits is hand-over; what making takes is
    known from a run of the dataset in this process.
    """
    dataset = LargeSamples()
    made = []
    for number in range(10):
        start = time.perf_counter()
        dataset[number]
        made.append(time.perf_counter() - start)
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.zeros(2)
    optimizer = torch.optim.SGD([weight])
    waits: list[float] = []
    stops: list[float] = []
    with Profiler(out):
        batches: Iterator[Any] = iter(DataLoader(dataset, batch_size=None, num_workers=1, prefetch_factor=1))
        for _ in range(STEPS):
            start = time.perf_counter()
            batch = next(batches)
            waits.append(time.perf_counter() - start)
            # To give so much memory back takes time too, but is no wait.
            del batch
            optimizer.step()
            stops.append(time.perf_counter())
    took_s = stops[-1] - stops[0]
    making_s = statistics.median(made) * (STEPS - 1)
    shares = dict.fromkeys(CAUSES, 0.0)
    shares["handover"] = (sum(waits[1:]) - making_s) / took_s
    return shares, 0.0


def recorded(out: Path) -> dict[str, float]:
    """Shares by cause as the profiler has them, the first step left out."""
    steps = read_run(out).steps[0].to_pylist()[1:]
    took_ns = steps[-1]["stop_ns"] - steps[0]["start_ns"]
    return {cause: sum(step[f"stall_{cause}_ns"] for step in steps) / took_ns for cause in CAUSES}


def _preempted(entry: dict[str, Any]) -> float:
    return float(entry["preempted"])


def _off(entry: dict[str, Any]) -> float:
    return float(entry["off"])


def run() -> Report:
    """Compare all causes; the worst of a case is the largest difference of any cause."""
    figures = []
    details: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for slow in CAUSES:
            say(f"slow: {slow}")
            runs = []
            for turn in range(ROUNDS):
                out = Path(folder) / f"{slow}-{turn}"
                truth, preempted = handed_over(out) if slow == "handover" else in_process(slow, out)
                shares = recorded(out)
                off = max(abs(shares[cause] - truth[cause]) for cause in CAUSES)
                runs.append({"truth": truth, "recorded": shares, "preempted": preempted, "off": off})
            details[slow] = runs
            # Where nothing is spun, the middle one.
            spun = any(entry["preempted"] for entry in runs)
            chosen = min(runs, key=_preempted) if spun else sorted(runs, key=_off)[ROUNDS // 2]
            figures.append(
                Figure(
                    name=f"slow {slow}: off by",
                    value=chosen["off"] * 100,
                    unit="points of the share",
                    at_most=2.0,
                    note=f"{chosen['truth'][slow]:.1%} in truth, {chosen['recorded'][slow]:.1%} recorded"
                    + (f"; {chosen['preempted']:.1%} without a processor" if spun else ""),
                )
            )
    return Report(
        name="attribution",
        figures=tuple(figures),
        notes=(
            f"Of {ROUNDS} runs of {STEPS} steps each, that in which computing had a processor most, or else the middle "
            "one; the largest difference of any cause. Copy and sync are stand-ins that the loop marks: no device.",
        ),
        versions={"torch": version("torch")},
        details=details,
    )
