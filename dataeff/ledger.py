"""The run ledger: what the allocated time of a run was spent on, appended while it runs.

`RUN/ledger.jsonl` has one line a window of a rank's time. The buckets of a window sum to its length and windows of a
rank follow each other without a gap, so the buckets of a run partition its time, to the nanosecond. A line is written
whole; of a killed run at most the last window is missing, or its line cut off. What others wrote need not be so good:
`counted_once` names every gap and overlap, and counts no moment of a rank twice.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from dataeff.errors import FormatError, InputError, PlanError
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
    candidate: str = ""
    """The mixture or setting that the run tries, where it is one of many."""
    devices: int = 1
    """Accelerators that this rank holds."""
    accelerator: str = ""
    """Their name, such as `H100`; empty where it is not known."""

    def __post_init__(self) -> None:
        if self.devices < 0:
            raise PlanError.out_of_range(self, "devices", "0 or more")

    @property
    def key(self) -> RunKey:
        """Which run it is."""
        return RunKey(self.team, self.project, self.run, self.candidate)


class RunKey(NamedTuple):
    """What tells a run from others."""

    team: str
    project: str
    run: str
    candidate: str


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


def read_ledgers(paths: Iterable[Path]) -> tuple[list[Window], tuple[str, ...]]:
    """All windows of many ledgers, and what is to be said of the files, a sentence each.

    Two files may hold ranks of one run. Where they hold the same rank of the same attempt, they are two runs of the
    same name, and each is called by its folders as well.

    Args:
        paths: Ledger files, or directories that hold some at any depth. What is reached twice is read once.

    Raises:
        InputError: There is no ledger at or below a path.
        FormatError: A line is no window.
    """
    files = list(dict.fromkeys(file.resolve() for path in paths for file in _files(path)))
    read = {file: read_ledger(file) for file in files}
    notes = [
        f"{file}: {torn} line{'s were' if torn > 1 else ' was'} cut off by a kill, and that time is in no bucket"
        for file, (_, torn) in read.items()
        if torn
    ]
    writers: defaultdict[RunKey, Counter[tuple[int, int]]] = defaultdict(Counter)
    for windows, _ in read.values():
        for key, attempt, rank in {(entry.tags.key, entry.tags.attempt, entry.tags.rank) for entry in windows}:
            writers[key][attempt, rank] += 1
    clashing = {key for key, counted in writers.items() if max(counted.values()) > 1}
    notes += [f"several directories hold a run called {key.run!r}: each is shown with its folders" for key in clashing]
    found = []
    for file, (windows, _) in read.items():
        for window in windows:
            tags = replace(window.tags, run=str(file.parent)) if window.tags.key in clashing else window.tags
            found.append(replace(window, tags=tags))
    return found, tuple(sorted(notes))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted(path.rglob(FILE))
    if not found:
        raise InputError(
            f"{path} holds no {FILE}: give the directory of a run, or a folder of them, or another account with "
            "--sacct or --step-log"
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A stretch of a rank's time that its windows do not tell once."""

    kind: Literal["gap", "missing_rank", "overlap", "clock"]
    """In a gap nobody says what the rank did; a missing rank left no window at all while others of its attempt ran;
    an overlap was told twice and is counted once; of a clock that went back, windows are out of order, or stop
    before they start and are left out."""
    key: RunKey
    attempt: int
    rank: int
    devices: int
    start_ns: int
    stop_ns: int

    @property
    def length_ns(self) -> int:
        """How long, never negative."""
        return abs(self.stop_ns - self.start_ns)

    @property
    def unaccounted_ns(self) -> int:
        """Device time that was held, and nobody says for what."""
        return self.length_ns * self.devices if self.kind in ("gap", "missing_rank") else 0


def counted_once(windows: Sequence[Window]) -> tuple[list[Window], list[Fault]]:
    """Windows in which no moment of a rank counts twice, in order of time, and every fault of those given.

    Of an overlap the earlier window is kept whole; the later one is cut to what is new, its buckets in proportion.
    Between two attempts there is no gap: who did not run, held nothing that is known of. A rank that fell silent
    without an end has a gap until the last rank of its attempt stopped.

    Args:
        windows: As they were written; the order within a rank tells whether its clock went back.
    """
    faults = _clock_faults(windows)
    ranks: defaultdict[tuple[RunKey, int], list[Window]] = defaultdict(list)
    for window in windows:
        if window.stop_ns >= window.start_ns:
            ranks[window.tags.key, window.tags.rank].append(window)
    kept: list[Window] = []
    for _, mine in sorted(ranks.items()):
        found, named = _rank_once(sorted(mine, key=lambda entry: (entry.start_ns, entry.stop_ns)))
        kept += found
        faults += named
    return kept, faults + _silent(kept)


def _clock_faults(windows: Sequence[Window]) -> list[Fault]:
    faults, former = [], dict[tuple[RunKey, int, int], Window]()
    for window in windows:
        writer = (window.tags.key, window.tags.attempt, window.tags.rank)
        before = former.get(writer)
        if window.stop_ns < window.start_ns:
            faults.append(_fault("clock", window, window.start_ns, window.stop_ns))
            continue
        if before is not None and window.start_ns < before.start_ns:
            faults.append(_fault("clock", window, before.start_ns, window.start_ns))
        former[writer] = window
    return faults


def _rank_once(ordered: Sequence[Window]) -> tuple[list[Window], list[Fault]]:
    kept, faults = [], []
    covered_ns, attempt = ordered[0].start_ns, ordered[0].tags.attempt
    for window in ordered:
        if window.start_ns > covered_ns and window.tags.attempt == attempt:
            faults.append(_fault("gap", window, covered_ns, window.start_ns))
        overlap_ns = min(covered_ns, window.stop_ns) - window.start_ns
        if overlap_ns > 0:
            faults.append(_fault("overlap", window, window.start_ns, window.start_ns + overlap_ns))
        kept.append(_cut(window, max(overlap_ns, 0)))
        if window.stop_ns >= covered_ns:
            covered_ns, attempt = window.stop_ns, window.tags.attempt
    return kept, faults


def _cut(window: Window, off_ns: int) -> Window:
    """Without its first nanoseconds; what is left is shared by its buckets as before, to the nanosecond."""
    if not off_ns:
        return window
    length_ns = window.stop_ns - window.start_ns
    left_ns = length_ns - off_ns
    names = sorted(window.spent_ns, key=lambda name: (-(window.spent_ns[name] * left_ns % length_ns), name))
    spent = {name: window.spent_ns[name] * left_ns // length_ns for name in window.spent_ns}
    for name in names[: left_ns - sum(spent.values())]:
        spent[name] += 1
    return replace(window, start_ns=window.stop_ns - left_ns, spent_ns=spent)


def _silent(kept: Sequence[Window]) -> list[Fault]:
    """Ranks that ended without a word while others of their attempt went on, and ranks that left nothing."""
    attempts: defaultdict[tuple[RunKey, int], dict[int, Window]] = defaultdict(dict)
    began_ns: dict[tuple[RunKey, int], int] = {}
    for window in kept:
        attempt = (window.tags.key, window.tags.attempt)
        last = attempts[attempt].get(window.tags.rank)
        if last is None or window.stop_ns >= last.stop_ns:
            attempts[attempt][window.tags.rank] = window
        began_ns[attempt] = min(began_ns.get(attempt, window.start_ns), window.start_ns)
    faults = []
    for attempt, last_of in sorted(attempts.items()):
        stop_ns = max(window.stop_ns for window in last_of.values())
        faults += [
            _fault("gap", window, window.stop_ns, stop_ns)
            for window in last_of.values()
            if not window.end and window.stop_ns < stop_ns
        ]
        some = last_of[min(last_of)]
        for rank in sorted(set(range(some.tags.world)) - set(last_of)):
            absent = replace(some, tags=replace(some.tags, rank=rank))
            faults.append(_fault("missing_rank", absent, began_ns[attempt], stop_ns))
    return faults


def _fault(
    kind: Literal["gap", "missing_rank", "overlap", "clock"], window: Window, start_ns: int, stop_ns: int
) -> Fault:
    return Fault(
        kind=kind,
        key=window.tags.key,
        attempt=window.tags.attempt,
        rank=window.tags.rank,
        devices=window.tags.devices,
        start_ns=start_ns,
        stop_ns=stop_ns,
    )
