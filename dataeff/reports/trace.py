"""A recorded run as a trace that Perfetto and chrome://tracing open: the Trace Event Format, JSON object form.

A rank is a process. Its loop is two threads, steps above waits and copies, and each worker is another, so what the
loop waited for stands below the wait; an arrow leads from where a batch was put together to where the loop received
it. Two counters say how many batches were ready, and which share of each step the device stalled.

Both viewers lose what is not as they expect. Slices of a thread must lie beside or inside each other. A thread number
of 0 is taken for that of the process, so numbers begin at 1000 a rank, and the loop's is that of its process, which
makes it the main thread. Perfetto orders ranks and workers by their names, so numbers in them are of one length, and
takes colours from names, so names were chosen that differ in it.

Ranks on different machines are laid beside each other by their machines' time of day, and so as well as that agrees.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dataeff.manifest import committed
from dataeff.steps import CAUSES, RunRecord

LOOP, BATCHES = 0, 1
_FIRST_WORKER = 100
"""Threads of workers begin here; the loop's own making of batches has that of its waits."""
_NUMBERS = 1000
"""So many numbers a rank has for its threads; more of them than that are no fault, but no longer only its own."""
_STAMPS = ("worker", "fetch_start_ns", "fetch_stop_ns", "fetch_cpu_ns", "collate_start_ns", "collate_stop_ns")
_OWN = ("wait", "copy", "sync", "evaluation", "checkpoint")

_Lane = tuple[int, int]
"""A worker, and which of its lanes; -1 is a thread of the loop's process."""
_INSIDE: _Lane = -1, -1
"""Made by the loop's own thread, inside its wait."""


def write_trace(record: RunRecord, path: Path) -> Path:
    """Write the trace of all ranks.

    Raises:
        StorageError: It cannot be written.
    """
    told = {name: value for name, value in dataclasses.asdict(record.info).items() if value is not None}
    content = {"traceEvents": list(events(record)), "displayTimeUnit": "ms", "otherData": told}
    with committed(path) as sink:
        sink.write(json.dumps(content, separators=(",", ":"), allow_nan=False).encode())
    return path


def events(record: RunRecord) -> Iterator[dict[str, Any]]:
    """Names of what is shown, then slices, arrows and counters, in microseconds from the first of all."""
    ranks = sorted(record.steps.keys() | record.batches.keys())
    digits = len(str(ranks[-1])) if ranks else 1
    zero = min((record.unix_ns(rank, start) for rank in ranks for start in _starts(record, rank)), default=0)
    for rank in ranks:
        shown = _Rank(rank, zero - record.unix_ns(rank, 0))
        yield from shown.named("process", LOOP, f"rank {rank:0{digits}}")
        yield shown.event("M", "process_labels", LOOP, shown.zero_ns, args={"labels": record.info.device})
        if rank in record.steps:
            yield from _steps(shown, record.steps[rank])
        if rank in record.batches:
            yield from _batches(shown, record.batches[rank])


def _starts(record: RunRecord, rank: int) -> Iterator[int]:
    """The earliest of a rank's steps, waits and fetches."""
    for tables, name in (
        (record.steps, "start_ns"),
        (record.batches, "wait_start_ns"),
        (record.batches, "fetch_start_ns"),
    ):
        earliest = pc.min(tables[rank].column(name)).as_py() if rank in tables else None
        if earliest is not None:
            yield earliest


@dataclasses.dataclass(frozen=True, slots=True)
class _Rank:
    """Makes the events of one rank."""

    rank: int
    zero_ns: int
    """By the rank's clock."""

    def event(self, phase: str, name: str, thread: int, at_ns: int, **more: Any) -> dict[str, Any]:
        process = (self.rank + 1) * _NUMBERS
        ts = (at_ns - self.zero_ns) / 1e3
        return {"name": name, "ph": phase, "pid": process, "tid": process + thread, "ts": ts, **more}

    def named(self, what: str, thread: int, name: str) -> Iterator[dict[str, Any]]:
        """The name of a process or thread, and its place among the others."""
        named = self.event("M", f"{what}_name", thread, self.zero_ns, args={"name": name})
        yield named
        yield self.event("M", f"{what}_sort_index", thread, self.zero_ns, args={"sort_index": named["tid"]})

    def slice(
        self, name: str, kind: str, thread: int, start_ns: int, stop_ns: int, told: Mapping[str, Any]
    ) -> dict[str, Any]:
        return self.event("X", name, thread, start_ns, cat=kind, dur=max(stop_ns - start_ns, 0) / 1e3, args=told)

    def arrow(self, number: int, source: int, left_ns: int, target: int, arrived_ns: int) -> Iterator[dict[str, Any]]:
        """From the slice on a thread at a time to another one, both of which come before it in the file."""
        known: dict[str, Any] = {"cat": "batch", "id": self.rank << 32 | number}
        yield self.event("s", "batch", source, left_ns, **known)
        yield self.event("f", "batch", target, arrived_ns, bp="e", **known)

    def count(self, name: str, unit: str, at_ns: int, value: float) -> dict[str, Any]:
        return self.event("C", name, LOOP, at_ns, args={unit: value})


def _steps(shown: _Rank, table: pa.Table) -> Iterator[dict[str, Any]]:
    yield from shown.named("thread", LOOP, "loop: steps")
    row: dict[str, Any] = {}
    for row in table.to_pylist():
        start, stop = row["start_ns"], row["stop_ns"]
        told = {name: row[name] for name in ("steady", "micro_batches", "samples", "tokens")}
        if row["loss"] is not None:
            # JSON has no number for a loss that diverged.
            told["loss"] = row["loss"] if math.isfinite(row["loss"]) else str(row["loss"])
        told["loop_ms"] = {kind: row[f"{kind}_ns"] / 1e6 for kind in _OWN}
        told["stall_ms"] = {kind: row[f"stall_{kind}_ns"] / 1e6 for kind in CAUSES}
        yield shown.slice(f"step {row['step']}", "step", LOOP, start, stop, told)
        yield shown.count("stalled", "% of the step", start, 100 * row["stall_ns"] / max(stop - start, 1))
    if row:
        yield shown.count("stalled", "% of the step", row["stop_ns"], 0)


def _batches(shown: _Rank, table: pa.Table) -> Iterator[dict[str, Any]]:
    yield from shown.named("thread", BATCHES, "loop: waits and copies")
    rows = table.to_pylist()
    lanes = _lanes(rows)
    threads = _threads(set(lanes.values()) - {_INSIDE})
    for lane, thread in threads.items():
        yield from shown.named("thread", thread, _title(lane, max(worker for worker, _ in threads)))
    made_and_taken: list[tuple[int, int]] = []
    for number, row in enumerate(rows):
        told = {
            name: row[name] for name in ("step", "batch", "worker", "samples", "num_bytes") if row[name] is not None
        }
        asked, had = row["wait_start_ns"], row["wait_stop_ns"]
        yield shown.slice("wait for batch", "wait", BATCHES, asked, had, told)
        if row["copy_start_ns"] is not None and row["copy_stop_ns"] is not None:
            yield shown.slice("copy", "copy", BATCHES, row["copy_start_ns"], row["copy_stop_ns"], told)
        if number not in lanes:
            continue
        thread = threads.get(lanes[number], BATCHES)
        yield from _making(shown, row, thread, told)
        made = row["collate_stop_ns"]
        if thread == BATCHES or made >= had:
            continue
        received = max(asked, made)
        yield shown.slice("handover", "handover", BATCHES, received, had, told)
        if row["collate_start_ns"] < made:
            yield from shown.arrow(number, thread, row["collate_start_ns"], BATCHES, received)
        made_and_taken += [(made, 1), (had, -1)]
    yield from _ready(shown, made_and_taken)


def _making(shown: _Rank, row: Mapping[str, Any], thread: int, told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    start, stop = row["fetch_start_ns"], row["fetch_stop_ns"]
    decode = min(max(row["fetch_cpu_ns"], 0), stop - start)
    causes = {"storage_ms": (stop - start - decode) / 1e6, "decode_ms": decode / 1e6}
    yield shown.slice("fetch", "fetch", thread, start, stop, {**told, **causes})
    yield shown.slice("collate", "collate", thread, row["collate_start_ns"], row["collate_stop_ns"], told)


def _ready(shown: _Rank, made_and_taken: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """How many batches workers had made that the loop had not taken, whenever that changes."""
    ready = 0
    for at_ns, change in sorted(made_and_taken, key=lambda event: (event[0], -event[1])):
        ready += change
        yield shown.count("batches", "ready", at_ns, ready)


def _lanes(rows: Sequence[Mapping[str, Any]]) -> dict[int, _Lane]:
    """Which row was made where: slices of one lane lie beside each other.

    A worker has a second lane where two loaders have a worker of its number at a time. Rows without stamps are left
    out, and so are those that bear the stamps of another one's batch, as the profiler guesses for a prefetching thread.
    """
    lanes: dict[int, _Lane] = {}
    busy_until: dict[_Lane, int] = {}
    stamped = [number for number, row in enumerate(rows) if all(row[name] is not None for name in _STAMPS)]
    seen: set[tuple[int, int]] = set()
    for number in sorted(stamped, key=lambda number: int(rows[number]["fetch_start_ns"])):
        row = rows[number]
        worker, start, stop = row["worker"], row["fetch_start_ns"], row["collate_stop_ns"]
        if (worker, start) in seen:
            continue
        seen.add((worker, start))
        if worker < 0 and row["wait_start_ns"] <= start and stop <= row["wait_stop_ns"]:
            lanes[number] = _INSIDE
            continue
        beside = next(beside for beside in count() if busy_until.get((worker, beside), start) <= start)
        lanes[number] = worker, beside
        busy_until[worker, beside] = stop
    return lanes


def _threads(lanes: Collection[_Lane]) -> dict[_Lane, int]:
    """The thread of each lane: that of worker 7 ends in 7 where all lanes are workers of one loader."""
    ordered = sorted(lanes, key=lambda lane: (lane[0] < 0, lane[1], lane[0]))
    return {lane: _FIRST_WORKER + place for place, lane in enumerate(ordered)}


def _title(lane: _Lane, last_worker: int) -> str:
    worker, beside = lane
    name = "prefetching thread" if worker < 0 else f"worker {worker:0{len(str(last_worker))}}"
    return f"{name}, beside {beside}" if beside else name
