"""Run records made up for tests: what a loop and a torch loader would have written, to the nanosecond."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dataeff.steps import RankClock, RunInfo, StepRecorder

MS = 1_000_000
CLOCK = RankClock(host="a machine", unix_ns=1_790_000_000_000_000_000, clock_ns=1_000_000_000)


def info(**changes: Any) -> RunInfo:
    known: dict[str, Any] = {
        "run": "made-up",
        "world": 1,
        "clock": "cpu",
        "device": "a processor",
        "command": "train.py",
        "num_workers": 1,
        "prefetch_factor": 2,
        "pin_memory": False,
        "batch_size": 8,
        "sequence_length": 128,
    }
    return RunInfo(**{**known, **changes})


def stepwise(
    directory: Path,
    rows: Sequence[dict[str, Any]],
    *,
    rank: int = 0,
    rank_clock: RankClock = CLOCK,
    began_ns: int = 2_000_000_000,
    batch: Callable[[int, dict[str, Any]], dict[str, Any] | None] = lambda number, row: None,
    **changes: Any,
) -> Path:
    """Write steps given as {"ms": ..., "wait": ms by cause, ...}; `batch` makes the batch of each."""
    recorder = StepRecorder(directory, rank, info(**changes), rank_clock)
    now = began_ns
    for number, row in enumerate(rows):
        spent = round(row["ms"] * MS)
        causes = {f"stall_{cause}_ns": round(ms * MS) for cause, ms in row.get("stall", {}).items()}
        stall = sum(causes.values())
        full = {
            "step": number,
            "start_ns": now,
            "stop_ns": now + spent,
            "micro_batches": 1,
            "samples": 8,
            "tokens": 1024,
            "wait_ns": stall,
            "stall_ns": stall,
            **causes,
            **row.get("also", {}),
        }
        recorder.step(full)
        made = batch(number, full)
        if made is not None:
            recorder.batch(made)
        now += spent
    recorder.close()
    return directory


def half_stalled(directory: Path, num_steps: int = 200, **changes: Any) -> Path:
    """One second of waiting for storage, one of work; one worker that reads for two seconds a batch."""

    def made(number: int, row: dict[str, Any]) -> dict[str, Any]:
        ready = row["start_ns"] + 1000 * MS
        return {
            "step": number,
            "batch": number,
            "wait_start_ns": row["start_ns"],
            "wait_stop_ns": ready,
            "worker": 0,
            "fetch_start_ns": ready - 2000 * MS,
            "fetch_stop_ns": ready,
            "fetch_cpu_ns": 0,
            "collate_start_ns": ready,
            "collate_stop_ns": ready,
            "samples": 8,
            "num_bytes": 65536,
        }

    return stepwise(directory, [{"ms": 2000, "stall": {"storage": 1000}}] * num_steps, batch=made, **changes)


def loaded(
    directory: Path,
    *,
    storage_ms: float,
    decode_ms: float,
    loop_ms: float,
    workers: int,
    collate_ms: float = 0.5,
    receive_ms: float = 1.0,
    copy_ms: float = 0.0,
    num_steps: int = 120,
    **changes: Any,
) -> Path:
    """What a loop and a torch loader record where every batch takes the same, so that they arrive in order."""
    recorder = StepRecorder(directory, 0, info(num_workers=workers, **changes), CLOCK)
    began = 2_000_000_000
    prefetch = changes.get("prefetch_factor", 2)
    free, taken = [began] * max(workers, 1), []
    stop = began
    storage, decode, collate, receive, loop, copy = (
        round(ms * MS) for ms in (storage_ms, decode_ms, collate_ms, receive_ms, loop_ms, copy_ms)
    )
    for number in range(num_steps):
        asked, worker = stop, number % max(workers, 1)
        if workers:
            issued = began if number < workers * prefetch else taken[number - workers * prefetch]
            fetch = max(free[worker], issued)
        else:
            fetch = asked
        made = fetch + storage + decode + collate
        free[worker] = made
        had = max(asked, made) + (receive if workers else 0)
        taken.append(had)
        stop = had + copy + loop
        fetched = made - collate
        # The part of the wait in which the batch was still being made, from its end backwards.
        left, parts = had - asked, {}
        for cause, part in (("handover", receive if workers else 0), ("collate", collate), ("decode", decode)):
            parts[f"stall_{cause}_ns"] = min(left, part)
            left -= parts[f"stall_{cause}_ns"]
        recorder.step(
            {
                "step": number,
                "start_ns": asked,
                "stop_ns": stop,
                "micro_batches": 1,
                "samples": 8,
                "tokens": 1024,
                "wait_ns": had - asked,
                "copy_ns": copy,
                "stall_ns": had - asked + copy,
                **parts,
                "stall_copy_ns": copy,
                "stall_storage_ns": left,
                "steady": number >= workers * prefetch,
            }
        )
        recorder.batch(
            {
                "step": number,
                "batch": number,
                "wait_start_ns": asked,
                "wait_stop_ns": had,
                "worker": worker if workers else -1,
                "fetch_start_ns": fetch,
                "fetch_stop_ns": fetched,
                "fetch_cpu_ns": decode,
                "collate_start_ns": fetched,
                "collate_stop_ns": made,
                "samples": 8,
                "num_bytes": 65536,
            }
        )
    recorder.close()
    return directory
