"""Another trainer's step log, CSV or JSONL, to windows of the ledger.

A row says that a step had been done at a time. What lies between two rows is the time of the steps between them; steps
whose number an earlier attempt had reached are done again; a row that comes many steps late shows that the run stood
still. What came before the first row of an attempt is not in the log.
"""

from __future__ import annotations

import csv
import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from dataeff.accounts import Account, instants_ns, zone_of
from dataeff.errors import FormatError, InputError
from dataeff.ledger import Tags, Window

NAMES = {
    "step": ("step", "_step", "global_step", "iteration"),
    "time": ("time", "_timestamp", "timestamp", "wall_time", "unix_s"),
    "rank": ("rank",),
    "data_wait_s": ("data_wait_s",),
}
"""What the columns may be called; the first that is there is read. All others are left alone."""
IDLE_STEPS = 10.0
"""A row that comes more median steps late than this shows that the run stood still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    where: str
    rank: int
    step: int
    at_ns: int
    wait_ns: int


def read_step_log(
    path: Path, tags: Tags | None = None, *, zone: str | None = None, idle_steps: float = IDLE_STEPS
) -> Account:
    """Windows of a log, one from each row to the next of its rank.

    Args:
        path: CSV with a header, or JSON lines: `step` (done), `time` (seconds since 1970, or ISO 8601), perhaps `rank`,
            perhaps `data_wait_s` (of the steps since the row before).
        tags: Whose time; `devices` is what a rank of the log stands for. The file's name and one device if not given.
        zone: Of times without an offset.
        idle_steps: A gap of more median steps is idle but for the steps that it holds.

    Raises:
        InputError: There is no such file, or there are no two rows of a rank.
        FormatError: A row has no step or no time, or one that is none.
        PlanError: A time has no offset and no zone is given.
    """
    if not path.is_file():
        raise InputError(f"there is no step log {path}: give a CSV or JSONL file with the columns step and time")
    tags = tags or Tags(run=path.stem, attempt=0)
    ranks: defaultdict[int, list[_Row]] = defaultdict(list)
    for row in _rows(path, zone_of(zone) if zone else None):
        ranks[row.rank].append(row)
    world = max(ranks, default=0) + 1
    windows: list[Window] = []
    notes: list[str] = []
    for rank, rows in sorted(ranks.items()):
        found, said = _rank_windows(replace(tags, rank=rank, world=world), rows, idle_steps)
        windows += found
        notes += said
    if not windows:
        raise InputError(f"{path} has no two rows of a rank with a step between them: nothing can be timed")
    return Account(windows=tuple(windows), notes=tuple(f"{path.name}: {note}" for note in notes))


def _rows(path: Path, zone: ZoneInfo | None) -> Iterator[_Row]:
    last_ns: dict[int, int] = {}
    for where, entry in _entries(path):
        rank, step = _whole(entry, "rank", where, "0"), _whole(entry, "step", where, None)
        times = instants_ns(_field(entry, "time", where, None), zone, where)
        # In the hour that comes twice, the first time that is not before the former row is the one.
        at_ns = next((at for at in times if at >= last_ns.get(rank, at)), times[-1])
        last_ns[rank] = at_ns
        yield _Row(where=where, rank=rank, step=step, at_ns=at_ns, wait_ns=_wait_ns(entry, where))


def _entries(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        if not first.lstrip().startswith("{"):
            rows = csv.DictReader(file)
            yield from ((f"{path}, line {rows.line_num}", row) for row in rows)
            return
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line, parse_float=str, parse_int=str)
            except ValueError as error:
                raise FormatError(f"{path}, line {number} is no JSON ({error}): remove it") from error
            if not isinstance(entry, dict):
                raise FormatError(f"{path}, line {number} is no JSON object: a line must have a step and a time")
            yield f"{path}, line {number}", entry


def _field(entry: Mapping[str, Any], what: str, where: str, default: str | None) -> str:
    found = next((entry[name] for name in NAMES[what] if entry.get(name) not in (None, "")), default)
    if found is None:
        raise FormatError(f"{where} has no {what}; a row must have one, called {' or '.join(NAMES[what])}")
    return str(found)


def _whole(entry: Mapping[str, Any], what: str, where: str, default: str | None) -> int:
    text = _field(entry, what, where, default)
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal(-1)
    if not found.is_finite() or found < 0 or found != int(found):
        raise FormatError(f"{where}: {what} is {text!r}; it must be a whole number, 0 or more")
    return int(found)


def _wait_ns(entry: Mapping[str, Any], where: str) -> int:
    text = _field(entry, "data_wait_s", where, "0")
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal(-1)
    if not found.is_finite() or found < 0:
        raise FormatError(f"{where}: data_wait_s is {text!r}; it must be seconds, 0 or more")
    return int(found * 10**9)


def _rank_windows(tags: Tags, rows: Sequence[_Row], idle_steps: float) -> tuple[list[Window], list[str]]:
    attempts, notes = _attempts(tags.rank, rows)
    median_ns = _median_ns(attempts)
    windows, done = [], -1
    for number, attempt in enumerate(attempts):
        for before, row in itertools.pairwise(attempt):
            if row.at_ns < before.at_ns:
                notes.append(f"rank {tags.rank}: the clock goes back at {row.where}, and that step is left out")
                continue
            spent, said = _spent(before, row, done, median_ns, idle_steps)
            notes += said
            windows.append(
                Window(
                    tags=replace(tags, attempt=tags.attempt + number),
                    start_ns=before.at_ns,
                    stop_ns=row.at_ns,
                    spent_ns=spent,
                    step=row.step,
                )
            )
        done = max(done, attempt[-1].step)
    return windows, notes


def _attempts(rank: int, rows: Sequence[_Row]) -> tuple[list[list[_Row]], list[str]]:
    """Rows by attempt: another begins where the step number falls."""
    attempts, notes, repeated = [[rows[0]]], [], 0
    for row in rows[1:]:
        before = attempts[-1][-1]
        if row.step > before.step:
            attempts[-1].append(row)
        elif row.step == before.step:
            repeated += 1
        else:
            attempts.append([row])
            away_s = (row.at_ns - before.at_ns) / 1e9
            notes.append(
                f"rank {rank}: after step {before.step} it began again, and {row.where} has step {row.step}, "
                f"{away_s:.0f} s later; whether that time was allocated is not in the log"
            )
    if repeated:
        notes.append(f"rank {rank}: rows that repeat the step of the row before them, left out: {repeated}")
    return attempts, notes


def _median_ns(attempts: Sequence[Sequence[_Row]]) -> int:
    """Of a step, over all rows that are in order; the lower one of two, so that it is whole."""
    took = [
        (row.at_ns - before.at_ns) // (row.step - before.step)
        for rows in attempts
        for before, row in itertools.pairwise(rows)
        if row.at_ns >= before.at_ns
    ]
    return statistics.median_low(took) if took else 0


def _spent(before: _Row, row: _Row, done: int, median_ns: int, idle_steps: float) -> tuple[dict[str, int], list[str]]:
    """What the time between two rows was spent on; sums to it."""
    steps, length_ns, notes = row.step - before.step, row.at_ns - before.at_ns, []
    wait_ns = min(row.wait_ns, length_ns)
    if row.wait_ns > length_ns:
        notes.append(f"{row.where} waited for data longer than its step took: the step's time counts")
    rest_ns = length_ns - wait_ns
    idle_ns = 0
    if median_ns and length_ns > idle_steps * median_ns * steps:
        idle_ns = max(rest_ns - median_ns * steps, 0)
    if idle_ns:
        notes.append(f"the run stood still for {idle_ns / 1e9:.0f} s before {row.where} (step {row.step})")
    lost_steps = min(max(min(row.step, done) - before.step, 0), steps)
    lost_ns = (rest_ns - idle_ns) * lost_steps // steps
    spent = {
        "data_wait": wait_ns,
        "idle": idle_ns,
        "lost_to_restart": lost_ns,
        "step": rest_ns - idle_ns - lost_ns,
    }
    return {bucket: took_ns for bucket, took_ns in spent.items() if took_ns}, notes
