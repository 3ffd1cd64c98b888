"""The run ledger: what the allocated time of a run was spent on, appended while it runs.

`RUN/ledger.jsonl` has one line a window of a rank's time. The buckets of a window sum to its length and windows of a
rank follow each other without a gap, so the buckets of a run partition its time, to the nanosecond. A line is written
whole; of a killed run at most the last window is missing, or its line cut off.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from dataeff.errors import FormatError
from dataeff.manifest import storage_errors

FILE = "ledger.jsonl"
Bucket: TypeAlias = Literal[
    "startup", "compile", "data_wait", "step", "evaluation", "checkpoint", "lost_to_restart", "idle"
]
"""What a moment was spent on. `lost_to_restart`: doing steps again that an earlier attempt had done already."""
End: TypeAlias = Literal["", "finished", "failed", "preempted", "stopped"]
"""How an attempt ended; empty while it goes on, or where nobody could say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """Whose time it is."""

    run: str
    attempt: int
    """Counted from 0; each start of the same run is another one."""
    rank: int = 0
    world: int = 1
    team: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of one rank's time."""

    tags: Tags
    start_ns: int
    """Unix time."""
    stop_ns: int
    spent_ns: dict[str, int]
    """By bucket; sums to `stop_ns - start_ns`."""
    step: int
    """Optimizer steps that were done when it ended."""
    end: End = ""


class Ledger:
    """Keeps one rank's time: at any moment one bucket is open.

    Args:
        path: The file; lines are appended.
        tags: Whose time.
        clock_ns: A clock that never goes back, in nanoseconds.
        unix_ns: The time when that clock was started from here.
    """

    def __init__(
        self,
        path: Path,
        tags: Tags,
        *,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        unix_ns: int | None = None,
    ) -> None:
        self._path, self._tags, self._clock_ns = path, tags, clock_ns
        self._unix_ns = (time.time_ns() if unix_ns is None else unix_ns) - clock_ns()
        self._start_ns = self._since_ns = clock_ns()
        self._bucket: Bucket = "startup"
        self._spent: Counter[str] = Counter()
        self.step = 0
        """Optimizer steps that are done."""

    def now_ns(self) -> int:
        """What the ledger's clock says."""
        return self._clock_ns()

    def enter(self, bucket: Bucket) -> None:
        """From now on, time is spent on this."""
        now = self._clock_ns()
        self._spent[self._bucket] += now - self._since_ns
        self._bucket, self._since_ns = bucket, now

    @contextmanager
    def during(self, bucket: Bucket) -> Iterator[None]:
        """Spend the time of a block on this, then go on with what was."""
        before = self._bucket
        self.enter(bucket)
        try:
            yield
        finally:
            self.enter(before)

    def write(self, end: End = "") -> None:
        """Append what was spent since the last time."""
        self.enter(self._bucket)
        window = Window(
            tags=self._tags,
            start_ns=self._unix_ns + self._start_ns,
            stop_ns=self._unix_ns + self._since_ns,
            spent_ns=dict(sorted(self._spent.items())),
            step=self.step,
            end=end,
        )
        with storage_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab", buffering=0) as file:
                file.write(json.dumps(asdict(window), separators=(",", ":")).encode() + b"\n")
        self._start_ns = self._since_ns
        self._spent.clear()


def read_ledger(path: Path) -> tuple[list[Window], int]:
    """All windows in the order in which they were written, and how many lines were cut off by a kill.

    Raises:
        FormatError: A line in full is no window of a ledger, or its buckets do not sum to its length.
    """
    if not path.is_file():
        return [], 0
    found, torn = [], 0
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        try:
            entry: dict[str, Any] = json.loads(line) if line else {}
        except ValueError:
            torn += 1
            continue
        if not entry:
            continue
        try:
            window = Window(**{**entry, "tags": Tags(**entry["tags"])})
            spent_ns = sum(window.spent_ns.values())
        except (TypeError, KeyError, AttributeError) as error:
            raise FormatError(f"{path}, line {number} is no window of a ledger ({error}): remove it") from error
        length_ns = window.stop_ns - window.start_ns
        if spent_ns != length_ns:
            raise FormatError(
                f"{path}, line {number}: its buckets sum to {spent_ns} ns, but it is {length_ns} ns long: it was "
                "changed by hand; restore it"
            )
        found.append(window)
    return found, torn
