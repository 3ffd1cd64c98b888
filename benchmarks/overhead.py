"""What the profiler costs a step: the same loops with and without it, in turns.

Each loop reads a torch DataLoader whose batches cost next to nothing and steps a small optimizer. Once it does nothing
else, so that every microsecond of the profiler shows, the writing of the records among them. Once each step also waits
for some milliseconds as torch waits for a CUDA device, which is spinning: after a sleep, any Python code takes several
times as long on a virtual machine, with a profiler or without. There the median step is compared.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import torch
from torch.utils.data import DataLoader, IterableDataset

from benchmarks.harness import Figure, Report, say, timings
from dataeff.profile import Profiler

TOGETHER = 4096
"""Steps that the profiler writes down together; a loop is timed from after one writing to after another."""
EMPTY_STEPS = 2 * TOGETHER
EMPTY_ROUNDS = 15
BUSY_STEPS = 150
BUSY_ROUNDS = 11
BUSY_S = 0.005


class Ready(IterableDataset[torch.Tensor]):
    """Batches that are there already."""

    def __init__(self, count: int) -> None:
        self._count, self._batch = count, torch.ones(8, 8)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self._count):
            yield self._batch


def loop(steps: int, spin_s: float, *, profiled: bool) -> list[float]:
    """Seconds of each of so many steps, that spin so long; 0 for not at all."""
    weight = torch.nn.Parameter(torch.ones(8))
    weight.grad = torch.zeros(8)
    optimizer = torch.optim.SGD([weight])
    loader = DataLoader(Ready(steps + TOGETHER + 2), batch_size=None)
    seconds = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        if profiled:
            stack.enter_context(Profiler(Path(folder) / "run"))
        batches = iter(loader)
        # The first writing also opens the record, once a run.
        for _ in range(TOGETHER + 2):
            next(batches)
            optimizer.step()
        gc.collect()
        before = time.perf_counter()
        for _ in batches:
            until = before + spin_s
            while time.perf_counter() < until:
                pass
            optimizer.step()
            now = time.perf_counter()
            seconds.append(now - before)
            before = now
    return seconds


def run() -> Report:
    """Compare, one thread, both loops."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        say("empty steps")
        empty = timings(
            {
                "without": lambda: statistics.mean(loop(EMPTY_STEPS, 0, profiled=False)),
                "with": lambda: statistics.mean(loop(EMPTY_STEPS, 0, profiled=True)),
            },
            EMPTY_ROUNDS,
        )
        say("busy steps")
        busy = timings(
            {
                "without": lambda: statistics.median(loop(BUSY_STEPS, BUSY_S, profiled=False)),
                "with": lambda: statistics.median(loop(BUSY_STEPS, BUSY_S, profiled=True)),
            },
            BUSY_ROUNDS,
        )
    finally:
        torch.set_num_threads(threads)
    # Differences of the two that ran one after the other: what else the machine does changes slowly.
    step_us = statistics.median(busy["without"]) * 1e6
    return Report(
        name="overhead",
        figures=(
            Figure(
                name="a step with nothing to do",
                value=_difference_us(empty),
                unit="us",
                at_most=20,
                note=f"{statistics.median(empty['without']) * 1e6:.1f} us without",
            ),
            Figure(
                name="a busy step",
                value=_difference_us(busy),
                unit="us",
                at_most=20 + 0.005 * step_us,
                note=f"{step_us / 1e3:.2f} ms without",
            ),
        ),
        notes=("Median of the differences of neighbouring runs; the target is 20 us and 0.5 % of the step.",),
        versions={"torch": version("torch")},
        details={"step_s": {"empty": empty, "busy": busy}, "steps": {"empty": EMPTY_STEPS, "busy": BUSY_STEPS}},
    )


def _difference_us(seconds: dict[str, list[float]]) -> float:
    pairs = zip(seconds["with"], seconds["without"], strict=True)
    return statistics.median(with_it - without for with_it, without in pairs) * 1e6
