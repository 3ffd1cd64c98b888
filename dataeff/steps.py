"""The record of a training run: what every rank's loop and loader did, when. One format, whoever measured.

A run directory holds

    run.json                             what ran, where, with which loader settings
    ranks/rank-00000.json                `RankClock`: how to read the rank's stamps
    steps/rank-00000-000000.parquet      `STEPS`: one row an optimizer step
    batches/rank-00000-000000.parquet    `BATCHES`: one row a batch that the loop took

Rows are written a few hundred at a time, each file whole under its final name, so a killed run keeps all but its last
moments. All `_ns` columns that end in `start_ns` or `stop_ns` are readings of `time.perf_counter_ns()`, which on
Linux is one clock for all processes of a machine, and has nothing to do with that of another machine.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dataeff.errors import FormatError, InputError
from dataeff.manifest import committed

VERSION = 2
RUN_FILE = "run.json"
FLUSH_ROWS = 512

CAUSES = ("storage", "decode", "collate", "handover", "copy", "sync")
"""What a stall is split into: the loader waited for storage, computed samples, put them together, handed them to the
loop's process; the batch was copied to the device; or a synchronisation had drained the device first, so that a wait
was exposed which queued work would have hidden."""

_I64 = pa.int64()
STEPS = pa.schema(
    [
        pa.field("step", _I64, nullable=False),
        pa.field("start_ns", _I64, nullable=False),
        pa.field("stop_ns", _I64, nullable=False),
        pa.field("micro_batches", _I64, nullable=False),
        pa.field("samples", _I64, nullable=False),
        pa.field("tokens", _I64, nullable=False),
        pa.field("loss", pa.float64()),
        # Of the loop's own time in the step.
        pa.field("wait_ns", _I64, nullable=False),
        pa.field("copy_ns", _I64, nullable=False),
        pa.field("sync_ns", _I64, nullable=False),
        pa.field("evaluation_ns", _I64, nullable=False),
        pa.field("checkpoint_ns", _I64, nullable=False),
        # Device time without work because the loop had no batch, and its causes, which sum to it.
        pa.field("stall_ns", _I64, nullable=False),
        *(pa.field(f"stall_{cause}_ns", _I64, nullable=False) for cause in CAUSES),
        # False in the first step of an epoch, a compilation, and so on: charged, but no part of a share.
        pa.field("steady", pa.bool_(), nullable=False),
    ]
)
"""One row an optimizer step of a rank, in order. A step goes from the end of the one before to the end of its own
optimizer call, so steps tile the time of the loop."""

BATCHES = pa.schema(
    [
        pa.field("step", _I64, nullable=False),
        pa.field("batch", _I64, nullable=False),
        # The loop asked for it, and had it.
        pa.field("wait_start_ns", _I64, nullable=False),
        pa.field("wait_stop_ns", _I64, nullable=False),
        # The worker process that made it; -1 where the loop's own process did, null where nobody stamped it, and
        # then null in all that follows but samples, bytes and the copy.
        pa.field("worker", _I64),
        pa.field("fetch_start_ns", _I64),
        pa.field("fetch_stop_ns", _I64),
        # Processor time of the fetching thread between the two: the rest of it, it waited for storage.
        pa.field("fetch_cpu_ns", _I64),
        pa.field("collate_start_ns", _I64),
        pa.field("collate_stop_ns", _I64),
        pa.field("samples", _I64),
        pa.field("num_bytes", _I64),
        pa.field("pinned", pa.bool_()),
        pa.field("copy_start_ns", _I64),
        pa.field("copy_stop_ns", _I64),
    ]
)
"""One row a batch that the loop of a rank took, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What ran, where, and how its loader was set."""

    run: str
    """A name that no other run has."""
    world: int
    clock: str
    """`cuda`: stalls were taken from device events. `cpu`: from the loop's clock; the device may have had work."""
    device: str
    """Its name, or that of the processor."""
    command: str
    cores: float | None = None
    """Processors for the loop and its workers, of one rank."""
    num_workers: int | None = None
    """Of the loader; 0 where the loop's process makes batches itself, None where it is not known."""
    prefetch_factor: int | None = None
    """Batches that each worker may be ahead."""
    pin_memory: bool | None = None
    batch_size: int | None = None
    """Samples a batch of one rank."""
    sequence_length: int | None = None
    flops_per_token: float | None = None
    """Of the model, forward and backward, without recomputation."""
    team: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClock:
    """A rank's clock beside the time of day, read together."""

    host: str
    """Ranks of equal hosts have one clock."""
    unix_ns: int
    clock_ns: int

    @classmethod
    def now(cls) -> RankClock:
        """That of this process."""
        return cls(host=_host(), unix_ns=time.time_ns(), clock_ns=time.perf_counter_ns())


def _host() -> str:
    """A name of this machine since it was started; containers on it share the name as they share the clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


class StepRecorder:
    """Writes the rows of one rank; `close` writes what is left.

    Args:
        directory: The run's.
        rank: Whose rows.
        info: Written by rank 0, at once.
        clock: The rank's.
    """

    def __init__(self, directory: Path, rank: int, info: RunInfo, clock: RankClock) -> None:
        self._directory, self._rank = directory, rank
        self._rows: dict[str, list[Mapping[str, Any]]] = {"steps": [], "batches": []}
        self._written = {"steps": 0, "batches": 0}
        with committed(directory / "ranks" / f"rank-{rank:05d}.json") as sink:
            sink.write(json.dumps(dataclasses.asdict(clock), indent=1).encode())
        if rank == 0:
            with committed(directory / RUN_FILE) as sink:
                sink.write(json.dumps({"version": VERSION, **dataclasses.asdict(info)}, indent=1).encode())

    def step(self, row: Mapping[str, Any]) -> None:
        """Note a row of `STEPS`; what is left out is 0, `steady` true, `loss` null."""
        self._add("steps", row)

    def batch(self, row: Mapping[str, Any]) -> None:
        """Note a row of `BATCHES`; what is left out is null."""
        self._add("batches", row)

    def add(self, steps: pa.Table, batches: pa.Table) -> None:
        """Note many rows at once, tables of `STEPS` and of `BATCHES`: each goes to a file of its own, at once."""
        self.flush()
        for name, table in (("steps", steps), ("batches", batches)):
            if table.num_rows:
                self._write(name, table)

    def flush(self) -> None:
        """Write what was noted since the last time."""
        for table in self._rows:
            self._flush(table)

    close = flush

    def _add(self, table: str, row: Mapping[str, Any]) -> None:
        self._rows[table].append(row)
        if len(self._rows[table]) >= FLUSH_ROWS:
            self._flush(table)

    def _flush(self, table: str) -> None:
        rows = self._rows[table]
        if not rows:
            return
        schema = STEPS if table == "steps" else BATCHES
        filled = [{**_DEFAULTS[table], **row} for row in rows]
        self._write(table, pa.Table.from_pylist(filled, schema))
        self._rows[table] = []

    def _write(self, name: str, table: pa.Table) -> None:
        file = f"rank-{self._rank:05d}-{self._written[name]:06d}.parquet"
        with committed(self._directory / name / file) as sink:
            pq.write_table(table, sink)
        self._written[name] += 1


_DEFAULTS: dict[str, dict[str, Any]] = {
    "steps": {field.name: True if field.name == "steady" else None if field.nullable else 0 for field in STEPS},
    "batches": {field.name: None for field in BATCHES},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run that was recorded."""

    info: RunInfo
    steps: dict[int, pa.Table]
    """`STEPS` by rank."""
    batches: dict[int, pa.Table]
    """`BATCHES` by rank."""
    clocks: dict[int, RankClock]
    """By rank."""

    def unix_ns(self, rank: int, reading_ns: int) -> int:
        """The time of day at a reading of a rank's clock, by the time of day on its machine.

        One offset serves all ranks of a machine, so that two of their readings lie as far apart as they did.
        """
        own = self.clocks[rank]
        first = next(clock for _, clock in sorted(self.clocks.items()) if clock.host == own.host)
        return reading_ns + first.unix_ns - first.clock_ns


def read_run(directory: Path) -> RunRecord:
    """Everything that was recorded of a run.

    Raises:
        InputError: The directory holds no run.
        FormatError: It is of another version, or a file is damaged.
    """
    path = directory / RUN_FILE
    if not path.is_file():
        inside = ", ".join(sorted(str(found.parent) for found in directory.glob(f"*/{RUN_FILE}")))
        remedy = f"give a record in it: {inside}" if inside else "give what `dataeff profile` printed"
        raise InputError(f"{directory} holds no recorded run (no {RUN_FILE}): {remedy}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content.pop("version")
        if version != VERSION:
            raise FormatError(
                f"{path} is version {version}; this dataeff reads version {VERSION}: record the run again"
            )
        info = RunInfo(**content)
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"{path} is damaged ({error}): record the run again") from error
    record = RunRecord(
        info=info,
        steps=_by_rank(directory / "steps", STEPS),
        batches=_by_rank(directory / "batches", BATCHES),
        clocks=_clocks(directory / "ranks"),
    )
    lacking = sorted((record.steps.keys() | record.batches.keys()) - record.clocks.keys())
    if lacking:
        raise FormatError(f"{directory} has no clock of rank {lacking[0]} (ranks/*.json): record the run again")
    return record


def _clocks(folder: Path) -> dict[int, RankClock]:
    clocks = {}
    for path in sorted(folder.glob("rank-*.json")):
        try:
            clocks[int(path.stem.split("-")[1])] = RankClock(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise FormatError(f"{path} is damaged ({error}): record the run again") from error
    return clocks


def _by_rank(folder: Path, schema: pa.Schema) -> dict[int, pa.Table]:
    pieces: dict[int, list[pa.Table]] = {}
    for path in sorted(folder.glob("rank-*.parquet")):
        try:
            table = pq.read_table(path, schema=schema)
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"{path} is damaged ({error}): remove it to go on without its rows") from error
        pieces.setdefault(int(path.name.split("-")[1]), []).append(table)
    return {rank: pa.concat_tables(tables) for rank, tables in sorted(pieces.items())}
