"""A recorded run as a trace that Perfetto and chrome://tracing open: the Trace Event Format, JSON object form.

A rank is a process. Its loop is one thread, each worker another, so what the loop waited for stands below the wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from dataeff.manifest import committed
from dataeff.steps import CAUSES, RunRecord

LOOP, BATCHES = 0, 1
_FIRST_WORKER = 10
"""Thread number of worker 0; the loop's own making of batches has that of its waits."""


def write_trace(record: RunRecord, path: Path) -> Path:
    """Write the trace of all ranks.

    Raises:
        StorageError: It cannot be written.
    """
    content = {"traceEvents": list(events(record)), "displayTimeUnit": "ms", "otherData": {"run": record.info.run}}
    with committed(path) as sink:
        sink.write(json.dumps(content, separators=(",", ":")).encode())
    return path


def events(record: RunRecord) -> Iterator[dict[str, Any]]:
    """Complete events (`X`) with `ts` and `dur` in microseconds from the first of all, and names of what is shown."""
    zero = min((table.column("start_ns")[0].as_py() for table in record.steps.values() if table.num_rows), default=0)
    for table in record.batches.values():
        starts = [start for start in table.column("fetch_start_ns").to_pylist() if start is not None]
        zero = min([zero, *starts, *table.column("wait_start_ns").to_pylist()])
    for rank, table in record.steps.items():
        yield _named("process_name", rank, LOOP, f"rank {rank}")
        yield _named("thread_name", rank, LOOP, "loop: steps")
        for row in table.to_pylist():
            stalls = {f"stall_{cause}_ms": row[f"stall_{cause}_ns"] / 1e6 for cause in CAUSES}
            told = {"loss": row["loss"], "samples": row["samples"], "steady": row["steady"], **stalls}
            yield _complete(f"step {row['step']}", "step", rank, LOOP, row["start_ns"], row["stop_ns"], zero, told)
    for rank, table in record.batches.items():
        yield from _batches(rank, table, zero)


def _batches(rank: int, table: pa.Table, zero: int) -> Iterator[dict[str, Any]]:
    yield _named("thread_name", rank, BATCHES, "loop: waits and copies")
    workers: set[int] = set()
    for row in table.to_pylist():
        told = {"step": row["step"], "batch": row["batch"], "worker": row["worker"]}
        yield _complete("wait", "wait", rank, BATCHES, row["wait_start_ns"], row["wait_stop_ns"], zero, told)
        if row["copy_start_ns"] is not None and row["copy_stop_ns"] is not None:
            yield _complete("copy", "copy", rank, BATCHES, row["copy_start_ns"], row["copy_stop_ns"], zero, told)
        worker = row["worker"]
        if worker is None:
            continue
        thread = BATCHES if worker < 0 else _FIRST_WORKER + worker
        if worker >= 0 and worker not in workers:
            workers.add(worker)
            yield _named("thread_name", rank, thread, f"worker {worker}")
        for kind in ("fetch", "collate"):
            start, stop = row[f"{kind}_start_ns"], row[f"{kind}_stop_ns"]
            if start is not None and stop is not None:
                yield _complete(kind, kind, rank, thread, start, stop, zero, told)


def _complete(
    name: str, kind: str, rank: int, thread: int, start: int, stop: int, zero: int, told: dict[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "ts": (start - zero) / 1e3,
        "dur": max(stop - start, 0) / 1e3,
        "pid": rank,
        "tid": thread,
        "args": told,
    }


def _named(event: str, rank: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": event, "ph": "M", "pid": rank, "tid": thread, "ts": 0, "args": {"name": name}}
