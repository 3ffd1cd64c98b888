"""What the profiler costs a step: the same loops with and without it, in turns.

Each loop reads a torch DataLoader whose batches cost next to nothing and steps a small optimizer, once with nothing
else to do, when every microsecond of the profiler shows, and once with a step of about a millisecond, for what it
takes away from real work.
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

TOGETHER = 1024
"""Steps that the profiler writes down together; a loop is timed from after one writing to after another."""
EMPTY_STEPS = 3 * TOGETHER
EMPTY_ROUNDS = 15
BUSY_STEPS = TOGETHER
BUSY_ROUNDS = 15
BUSY_SIZE = 256


class Ready(IterableDataset[torch.Tensor]):
    """Batches that are there already."""

    def __init__(self, count: int) -> None:
        self._count, self._batch = count, torch.ones(8, 8)

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self._count):
            yield self._batch


def loop(steps: int, size: int, *, profiled: bool) -> float:
    """Seconds of so many steps, each with a product of square matrices of that size; 0 for none."""
    weight = torch.nn.Parameter(torch.ones(8))
    weight.grad = torch.zeros(8)
    optimizer = torch.optim.SGD([weight])
    matrix = torch.ones(max(size, 1), max(size, 1))
    # The first writing also opens the record, once a run.
    loader = DataLoader(Ready(steps + TOGETHER + 2), batch_size=None)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        if profiled:
            stack.enter_context(Profiler(Path(folder) / "run"))
        batches = iter(loader)
        for _ in range(TOGETHER + 2):
            next(batches)
            optimizer.step()
        gc.collect()
        start = time.perf_counter()
        for _ in batches:
            if size:
                torch.mm(matrix, matrix)
            optimizer.step()
        return time.perf_counter() - start


def run() -> Report:
    """Compare, one thread, both loops."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        say("empty steps")
        empty = timings(
            {
                "without": lambda: loop(EMPTY_STEPS, 0, profiled=False),
                "with": lambda: loop(EMPTY_STEPS, 0, profiled=True),
            },
            EMPTY_ROUNDS,
        )
        say("busy steps")
        busy = timings(
            {
                "without": lambda: loop(BUSY_STEPS, BUSY_SIZE, profiled=False),
                "with": lambda: loop(BUSY_STEPS, BUSY_SIZE, profiled=True),
            },
            BUSY_ROUNDS,
        )
    finally:
        torch.set_num_threads(threads)
    # Differences of the two that ran one after the other: what else the machine does changes slowly.
    empty_us = _median_difference(empty) / EMPTY_STEPS * 1e6
    step_us = statistics.median(busy["without"]) / BUSY_STEPS * 1e6
    busy_us = _median_difference(busy) / BUSY_STEPS * 1e6
    return Report(
        name="overhead",
        figures=(
            Figure(
                name="a step with nothing to do",
                value=empty_us,
                unit="us",
                at_most=20,
                note=f"{statistics.median(empty['without']) / EMPTY_STEPS * 1e6:.1f} us without",
            ),
            Figure(
                name="a busy step, beyond 20 us",
                value=max(0.0, busy_us - 20) / step_us * 100,
                unit="% of the step",
                at_most=0.5,
                note=f"{busy_us:+.1f} us on {step_us:.0f} us",
            ),
        ),
        notes=("Median of the differences of neighbouring runs, writing of the records included.",),
        versions={"torch": version("torch")},
        details={"seconds": {"empty": empty, "busy": busy}, "steps": {"empty": EMPTY_STEPS, "busy": BUSY_STEPS}},
    )


def _median_difference(seconds: dict[str, list[float]]) -> float:
    return statistics.median(
        with_it - without for with_it, without in zip(seconds["with"], seconds["without"], strict=True)
    )
