"""What is left after filters and dedup: a mark a document, the removal ledger, the cluster table."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from dataeff import exchange, manifest
from dataeff.arrays import mapped_array
from dataeff.arrow import I64, PART_SHIFT, U64
from dataeff.kernel import greedy
from dataeff.manifest import FileRecord, committed
from dataeff.stages import dedup as deduplication
from dataeff.stages.dedup import Dedup
from dataeff.stages.documents import StoredPart, columns_of, mapped
from dataeff.stages.tasks import Context, Outcome, Task, commit_step, committed_step, run_step
from dataeff.stages.verdicts import Verdicts

STEP = "survivors"
VERSION = 1
REMOVALS = pa.schema(
    [
        pa.field("removed_id", pa.string()),
        pa.field("survivor_id", pa.string()),
        pa.field("jaccard", pa.float64()),
        pa.field("containment", pa.float64()),
        pa.field("cluster", pa.uint64()),
        pa.field("removed_source", pa.string()),
        pa.field("survivor_source", pa.string()),
        pa.field("removed_doc", pa.uint64()),
        pa.field("survivor_doc", pa.uint64()),
    ]
)
"""The ledger: who was removed, which kept document decided, how much of their shingles they share."""
CLUSTERS = pa.schema(
    [
        pa.field("cluster", pa.uint64()),
        pa.field("doc", pa.uint64()),
        pa.field("id", pa.string()),
        pa.field("source", pa.string()),
        pa.field("kept", pa.bool_()),
    ]
)
"""Documents linked by candidate keys, directly or through others; `cluster` is the smallest document of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """Which documents of each part are in the corpus."""

    paths: tuple[Path, ...]
    """A file a part: whether each document is in the corpus; bool, shape (rows,)."""
    digests: tuple[str, ...]
    documents: dict[str, int]
    """Documents in the corpus by source."""
    text_bytes: dict[str, int]
    """Bytes of their text by source."""
    skipped_comparisons: int
    """Comparisons that the greedy rule's limits left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    part: StoredPart
    verdict: Path
    decisions: tuple[Path, ...]


def run(context: Context, dedup: Dedup | None, store: list[StoredPart], verdicts: Verdicts) -> Survivors:
    """Decide which documents stay; without a `Dedup` all that passed the filters do."""
    config = {**asdict(dedup), "limits": [greedy.SCAN_LIMIT, greedy.VERIFY_LIMIT]} if dedup else None
    whole = manifest.fingerprint(VERSION, config, [part.digest for part in store], verdicts.digests)
    done = committed_step(context, STEP)
    decisions: list[Path] = []
    skipped = 0
    if done is not None and done.get("fingerprint") == whole:
        skipped = done["skipped_comparisons"]
    elif dedup is not None:
        decisions, skipped = deduplication.decide(context, dedup, whole, store, verdicts)
    tasks = [
        Task(
            name=part.name,
            fingerprint=manifest.fingerprint(whole, part.name),
            arguments=_Job(part=part, verdict=verdict, decisions=tuple(decisions)),
        )
        for part, verdict in zip(store, verdicts.paths, strict=True)
    ]
    outcomes = run_step(context, STEP, tasks, _write_survivors)
    folder = context.out / STEP
    names = [part.name for part in store]
    _merge([folder / f"{name}.removals.arrow" for name in names], context.out / "removals.parquet", REMOVALS)
    _merge([folder / f"{name}.clusters.arrow" for name in names], context.out / "clusters.parquet", CLUSTERS)
    commit_step(context, STEP, {"version": VERSION, "fingerprint": whole, "skipped_comparisons": skipped})
    shutil.rmtree(context.out / deduplication.STEP, ignore_errors=True)
    documents: Counter[str] = Counter()
    text_bytes: Counter[str] = Counter()
    for outcome in outcomes:
        documents.update(outcome.facts["documents"])
        text_bytes.update(outcome.facts["text_bytes"])
    return Survivors(
        paths=tuple(folder / f"{name}.npy" for name in names),
        digests=tuple(outcome.digest for outcome in outcomes),
        documents=dict(sorted(documents.items())),
        text_bytes=dict(sorted(text_bytes.items())),
        skipped_comparisons=skipped,
    )


def _write_survivors(folder: Path, job: _Job) -> Outcome:
    name, base = job.part.name, job.part.number << PART_SHIFT
    columns = job.part.columns()
    kept = mapped_array(job.verdict) < 0
    rows = (
        exchange.read_rows(job.decisions, base, base + (1 << PART_SHIFT))
        if job.decisions
        else np.zeros((6, 0), np.uint64)
    )
    members = (rows[0] - np.uint64(base)).astype(np.int64) if rows.shape[1] else np.zeros(0, np.int64)
    removed = rows[2] != rows[0]
    kept[members[removed]] = False
    records: dict[str, FileRecord] = {}
    with committed(folder / f"{name}.npy", records) as sink:
        np.lib.format.write_array(sink, kept, allow_pickle=False)
    mine = columns.select(["id", "source"]).take(pa.array(members))
    clusters = pa.table([pa.array(rows[1]), pa.array(rows[0]), *mine.columns, pa.array(~removed)], schema=CLUSTERS)
    _write(folder / f"{name}.clusters.arrow", clusters, records)
    _write(
        folder / f"{name}.removals.arrow",
        _ledger(rows[:, removed], mine.filter(pa.array(removed)), job),
        records,
    )
    return Outcome(files=records, facts=_counts(columns, kept))


def _ledger(rows: U64, removed: pa.Table, job: _Job) -> pa.Table:
    doc, cluster, survivor = rows[:3]
    shared, own, others = (part.astype(np.float64) for part in rows[3:])
    union = own + others - shared
    # Without shingles only equal content removes, and equal content shares everything.
    jaccard = np.divide(shared, union, out=np.ones_like(shared), where=union > 0)
    containment = np.divide(shared, own, out=np.ones_like(shared), where=own > 0)
    found = _look_up(survivor, job.part.folder)
    return pa.table(
        [
            removed.column("id"),
            found.column("id"),
            pa.array(jaccard),
            pa.array(containment),
            pa.array(cluster),
            removed.column("source"),
            found.column("source"),
            pa.array(doc),
            pa.array(survivor),
        ],
        schema=REMOVALS,
    )


def _look_up(docs: U64, folder: Path) -> pa.Table:
    """Id and source of documents of any part, in the order given."""
    parts: I64 = (docs >> np.uint64(PART_SHIFT)).astype(np.int64)
    rows: I64 = (docs & np.uint64((1 << PART_SHIFT) - 1)).astype(np.int64)
    order = np.argsort(parts, kind="stable")
    pieces = [pa.schema([pa.field("id", pa.string()), pa.field("source", pa.string())]).empty_table()]
    for number in np.unique(parts):
        chosen = pa.array(rows[order[parts[order] == number]])
        pieces.append(columns_of(folder, int(number)).select(["id", "source"]).take(chosen))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return pa.concat_tables(pieces).take(pa.array(back))


def _counts(columns: pa.Table, kept: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """Documents and bytes in the corpus, by source."""
    chosen = columns.select(["source", "text_bytes"]).filter(pa.array(kept))
    documents: Counter[str] = Counter()
    num_bytes: Counter[str] = Counter()
    for row in chosen.group_by("source").aggregate([([], "count_all"), ("text_bytes", "sum")]).to_pylist():
        documents[row["source"]], num_bytes[row["source"]] = row["count_all"], row["text_bytes_sum"]
    return {"documents": dict(sorted(documents.items())), "text_bytes": dict(sorted(num_bytes.items()))}


def _write(path: Path, table: pa.Table, records: dict[str, FileRecord]) -> None:
    with committed(path, records) as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def _merge(paths: list[Path], into: Path, schema: pa.Schema) -> None:
    """One Parquet file of all parts' tables, in their order, a part in memory at a time."""
    with committed(into) as sink, pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for path in paths:
            table = mapped(path)
            if table.num_rows:
                writer.write_table(table)
