"""Does a run still go: ranks that are missing, ranks whose last step is long ago, processes that only hold memory."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dataeff.efficiency.utilisation import Device, Nvml, idle_holders, nvml, read_devices
from dataeff.steps import FLUSH_ROWS, RunRecord, read_run

LATE_STEPS = 10.0
"""A rank is late when its last step ended so many median steps before that of the most advanced rank."""
FLUSH_S = 60.0
"""The recorder writes at least so often while steps go on, so what is younger says nothing."""
NUM_READINGS = 3
READING_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankHealth:
    """One rank."""

    rank: int
    state: str
    """`well`, `late` or `missing`."""
    last_step: int | None
    age_s: float | None
    """Since its last recorded step ended, or since its last file was written, whichever is later; None if missing."""
    step_s: float | None
    """Median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHealth:
    """One run."""

    run: str
    ranks: tuple[RankHealth, ...]
    sentences: tuple[str, ...]
    """What is wrong and what to do; empty where nothing is."""

    @property
    def well(self) -> bool:
        """Whether nothing is wrong."""
        return not self.sentences


def health(directory: Path, *, late_steps: float = LATE_STEPS, now_unix_ns: int | None = None) -> RunHealth:
    """The health of a run by what it wrote.

    A step's time of day comes from its machine's clocks, or from the rank's last file where that is later.

    Args:
        directory: A run's.
        late_steps: Median steps without a sign after which a rank is late; writing goes by batches, so the time in
            which a batch of rows fills is granted besides.
        now_unix_ns: The time of day; that of this machine if not given.

    Raises:
        InputError: There is no run.
        FormatError: It is damaged.
    """
    record = read_run(directory)
    now = time.time_ns() if now_unix_ns is None else now_unix_ns
    ranks = tuple(_rank(directory, record, rank, late_steps, now) for rank in range(_world(record)))
    return RunHealth(run=record.info.run, ranks=ranks, sentences=tuple(_sentences(ranks)))


def _world(record: RunRecord) -> int:
    return max([record.info.world, *(rank + 1 for rank in record.steps)])


def _rank(directory: Path, record: RunRecord, rank: int, late_steps: float, now: int) -> RankHealth:
    table = record.steps.get(rank)
    if table is None or not table.num_rows:
        return RankHealth(rank=rank, state="missing", last_step=None, age_s=None, step_s=None)
    start, stop = table.column("start_ns").to_numpy(), table.column("stop_ns").to_numpy()
    step_s = float(np.median(stop - start)) / 1e9
    ended = record.unix_ns(rank, int(stop[-1]))
    files = [path.stat().st_mtime_ns for path in (directory / "steps").glob(f"rank-{rank:05d}-*.parquet")]
    age_s = (now - max([ended, *files])) / 1e9
    granted = late_steps * step_s + min(FLUSH_S, FLUSH_ROWS * step_s)
    return RankHealth(
        rank=rank,
        state="late" if age_s > granted else "well",
        last_step=int(table.column("step")[-1].as_py()),
        age_s=max(age_s, 0.0),
        step_s=step_s,
    )


def _sentences(ranks: Iterable[RankHealth]) -> Iterable[str]:
    everyone = list(ranks)
    missing = [found.rank for found in everyone if found.state == "missing"]
    late = [found for found in everyone if found.state == "late"]
    if missing:
        yield (
            f"{_named(missing)} of {len(everyone)} left no steps: it never began, or writes to another disk; look "
            "at its log"
        )
    if late and len(late) + len(missing) == len(everyone):
        youngest = min(found.age_s or 0.0 for found in late)
        yield f"no rank has taken a step for {youngest:.0f} s: the run has ended, or all of it hangs"
        return
    for found in late:
        assert found.age_s is not None
        assert found.step_s is not None
        yield (
            f"rank {found.rank} took its last step, {found.last_step}, {found.age_s:.0f} s ago, and a step takes it "
            f"{found.step_s:.3g} s: it hangs or died; look at its stack with `py-spy dump`, or restart it"
        )


def _named(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def idle(library: Nvml | None = None, *, readings: Iterable[tuple[Device, ...]] | None = None) -> tuple[str, ...]:
    """Processes that hold device memory while no kernel runs, a sentence each; nothing where there is no NVML."""
    found = library or nvml()
    if readings is None:
        if found is None:
            return ()
        readings = _readings(found)
    return tuple(
        f"process {holder.pid} holds {_size(holder.memory_bytes)}device {device.index} ({device.name}), where no "
        f"kernel runs: end it if it is a left-over, or find what it waits for"
        for device, holder in idle_holders(tuple(readings))
    )


def _readings(library: Nvml) -> Iterable[tuple[Device, ...]]:
    for number in range(NUM_READINGS):
        if number:
            time.sleep(READING_S)
        yield read_devices(library)


def _size(num_bytes: int | None) -> str:
    return "" if num_bytes is None else f"{num_bytes / 2**30:.1f} GiB of "
