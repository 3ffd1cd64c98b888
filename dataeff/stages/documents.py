"""The first pass: text is read once and written once, and measured in the same task.

A part becomes three files below `documents/`: `NAME.text.arrow` (the text after edits and the input's other
columns), `NAME.columns.arrow` (id, source, bytes, signals, content hash, shingles: one row a document, for every
later decision), `NAME.signatures.npy` (MinHash signatures, shape (rows, num_perm)); and `NAME.rejected.arrow` where
something could not be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataeff import manifest
from dataeff.arrays import mapped_array
from dataeff.arrow import I64, U32, U64, text_array, text_views, with_text
from dataeff.dedup.minhash import MinHash
from dataeff.errors import EmptyError, InputError
from dataeff.inputs import Reject
from dataeff.kernel.content import content_hashes
from dataeff.kernel.newlines import normalise_newlines
from dataeff.kernel.unicode import UNICODE_VERSION
from dataeff.kernel.words import normal_form
from dataeff.manifest import FileRecord, committed
from dataeff.stages import edit as edits
from dataeff.stages import filter as filters
from dataeff.stages.edit import Edit
from dataeff.stages.filter import Filter
from dataeff.stages.read import Inputs, Part, Read, documents, extra_fields, find_inputs, part_name
from dataeff.stages.tasks import Context, Outcome, Task, commit_step, run_step

STEP = "documents"
VERSION = 2
REJECTED = pa.schema(
    [
        pa.field("file", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart:
    """The documents of one part, as the first pass stored them."""

    folder: Path
    number: int
    name: str
    digest: str
    """Equal where the part's files are equal."""
    batch_rows: tuple[int, ...]
    """Rows of each record batch of text."""
    text_bytes: int
    facts: Mapping[str, Mapping[str, int]]
    """Counts: `documents`, `text_bytes`, `newlines` (documents whose newlines were normalised) by source; `rejected`
    by reason; `removed` by editor and reason."""

    def columns(self) -> pa.Table:
        """Columns of the documents, memory-mapped."""
        return columns_of(self.folder, self.number)

    def signatures(self) -> U32:
        """MinHash signatures, memory-mapped, shape (rows, num_perm)."""
        loaded: U32 = mapped_array(self.folder / f"{self.name}.signatures.npy")
        return loaded

    def no_text(self) -> pa.RecordBatch:
        """A batch of no rows with the columns of `text_batches`."""
        with pa.OSFile(str(self.folder / f"{self.name}.text.arrow")) as file:
            return pa.RecordBatch.from_pylist([], schema=pa.ipc.open_file(file).schema)

    def text_batches(
        self, rows: npt.NDArray[np.bool_], *, text_only: bool = False
    ) -> Iterator[tuple[npt.NDArray[np.intp], pa.RecordBatch]]:
        """Text and extra columns of the chosen rows, batch by batch; a batch without any is not read.

        Args:
            rows: True for each row wanted, shape (rows of the part,).
            text_only: Leave the extra columns out.

        Yields:
            The rows' numbers in the part, and their text.
        """
        options = pa.ipc.IpcReadOptions(included_fields=[0] if text_only else None, use_threads=False)
        with pa.OSFile(str(self.folder / f"{self.name}.text.arrow")) as file:
            reader = pa.ipc.open_file(file, options=options)
            start = 0
            for index, num_rows in enumerate(self.batch_rows):
                chosen = rows[start : start + num_rows]
                if chosen.any():
                    batch = reader.get_batch(index)
                    if not chosen.all():
                        batch = batch.filter(pa.array(chosen))
                    yield start + np.flatnonzero(chosen), batch
                start += num_rows


def columns_of(folder: Path, number: int) -> pa.Table:
    """Columns of the documents of a part, memory-mapped."""
    return mapped(folder / f"{part_name(number)}.columns.arrow")


def mapped(path: Path) -> pa.Table:
    """A table in an uncompressed Arrow IPC file, memory-mapped."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What one task needs to know."""

    read: Read
    part: Part
    schema: pa.Schema
    extras: pa.Schema
    steps: tuple[Edit | Filter, ...]
    hashed: bool
    minhash: MinHash | None


def run(
    context: Context,
    reads: tuple[Read, ...],
    steps: tuple[Edit | Filter, ...],
    *,
    hashed: bool,
    minhash: MinHash | None,
) -> list[StoredPart]:
    """Read, edit, measure and store all documents.

    Args:
        context: Where and with what.
        reads: What to read, in order.
        steps: What to do to a batch, in order.
        hashed: Whether to hash contents, for exact deduplication.
        minhash: How to sketch, for near-deduplication.

    Raises:
        InputError: Nothing could be read, or more than `max_bad_share` of the rows are bad.
    """
    found: list[tuple[Read, Inputs]] = []
    for read in reads:
        found.append((read, find_inputs(read, sum(len(inputs.parts) for _, inputs in found))))
    extras = _all_extras(found)
    tasks = []
    for read, inputs in found:
        for part in inputs.parts:
            job = _Job(
                read=read,
                part=part,
                schema=inputs.schema,
                extras=extras,
                steps=steps,
                hashed=hashed,
                minhash=minhash,
            )
            tasks.append(Task(name=part.name, fingerprint=_fingerprint(job), arguments=job, num_bytes=part.num_bytes))
    outcomes = run_step(context, STEP, tasks, _write_part)
    unreadable = [reject for _, inputs in found for reject in inputs.unreadable]
    num_documents = sum(sum(outcome.facts["documents"].values()) for outcome in outcomes)
    if num_documents == 0:
        raise EmptyError(
            f"{sum(inputs.num_files for _, inputs in found)} input files hold no document that can be read; "
            "look at the input, and at `Read(text_column=...)`"
        )
    _check_bad_share(found, outcomes)
    _write_rejected(context.out / STEP, context.out / "rejected.parquet", outcomes, unreadable)
    commit_step(context, STEP, {"version": VERSION, "parts": [task.name for task in tasks]})
    return [
        StoredPart(
            folder=context.out / STEP,
            number=number,
            name=task.name,
            digest=outcome.digest,
            batch_rows=tuple(outcome.facts["batch_rows"]),
            text_bytes=sum(outcome.facts["text_bytes"].values()),
            facts={key: value for key, value in outcome.facts.items() if key != "batch_rows"},
        )
        for number, (task, outcome) in enumerate(zip(tasks, outcomes, strict=True))
    ]


def _fingerprint(job: _Job) -> str:
    steps = [step.definition() if isinstance(step, Filter) else step for step in job.steps]
    sketch = job.minhash.definition() if job.minhash else None
    schema = [[column.name, str(column.type)] for column in [*job.schema, *job.extras]]
    return manifest.fingerprint(
        VERSION, UNICODE_VERSION, job.read.definition(), job.part, schema, steps, job.hashed, sketch
    )


def _all_extras(found: list[tuple[Read, Inputs]]) -> pa.Schema:
    columns: dict[str, pa.Field] = {}
    for read, inputs in found:
        for column in extra_fields(read, inputs.schema):
            known = columns.setdefault(column.name, column)
            if known.type != column.type:
                try:
                    both = pa.unify_schemas([pa.schema([known]), pa.schema([column])], promote_options="permissive")
                except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
                    raise InputError(
                        f"the extra column {column.name!r} is {known.type} in one Read and {column.type} in another; "
                        "make them one type, or rename one"
                    ) from error
                columns[column.name] = both.field(0)
    return pa.schema([column.with_nullable(True).remove_metadata() for column in columns.values()])


@dataclass(slots=True)
class _Tally:
    """Counts of a part, by source."""

    documents: Counter[str] = field(default_factory=Counter)
    text_bytes: Counter[str] = field(default_factory=Counter)
    newlines: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)


def _write_part(folder: Path, job: _Job) -> Outcome:
    name = job.part.name
    records: dict[str, FileRecord] = {}
    tally = _Tally()
    columns: list[pa.RecordBatch] = []
    signatures: list[U32] = []
    rejects: list[Reject] = []
    stored = pa.schema([pa.field("text", pa.large_string()), *job.extras])
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with (
        committed(folder / f"{name}.text.arrow", records) as sink,
        pa.ipc.new_file(sink, stored, options=options) as writer,
    ):
        for batch, bad in documents(job.read, job.part, job.schema, job.extras):
            rejects.extend(bad)
            batch, signals = _process(job, batch, tally)
            if batch.num_rows:
                columns.append(_columns(job, batch, signals, signatures))
                writer.write_batch(batch.select(stored.names).cast(stored))
    _write_columns(folder / f"{name}.columns.arrow", job, columns, records)
    if job.minhash:
        shape = (0, job.minhash.num_perm)
        with committed(folder / f"{name}.signatures.npy", records) as sink:
            stacked = np.concatenate([np.zeros(shape, np.uint32), *signatures])
            np.lib.format.write_array(sink, stacked, allow_pickle=False)
    if rejects:
        tally.rejected.update(reject.reason for reject in rejects)
        rows = pa.Table.from_pylist([_reject_row(reject) for reject in rejects], REJECTED)
        with (
            committed(folder / f"{name}.rejected.arrow", records) as sink,
            pa.ipc.new_file(sink, REJECTED) as out,
        ):
            out.write_table(rows)
    facts: dict[str, Any] = {entry.name: dict(sorted(getattr(tally, entry.name).items())) for entry in fields(tally)}
    return Outcome(files=records, facts={**facts, "batch_rows": [batch.num_rows for batch in columns]})


def _process(job: _Job, batch: pa.RecordBatch, tally: _Tally) -> tuple[pa.RecordBatch, dict[str, Any]]:
    """Normalise newlines, then edit and measure in the recipe's order; tallies by the batch's sources."""
    source = batch.column("source")
    data, offsets, changed = normalise_newlines(*text_views(batch.column("text")))
    if changed.any():
        batch = with_text(batch, text_array(data, offsets))
        _add(tally.newlines, source, changed.astype(np.int64))
    signals: dict[str, Any] = {}
    rules = tuple(step for step in job.steps if isinstance(step, Filter))
    stage = 0
    for step in job.steps:
        if isinstance(step, Filter):
            signals |= filters.measure(stage, rules, batch)
            stage += 1
        else:
            batch, removed = edits.apply(step, batch)
            for name, numbers in removed.items():
                tally.removed[name] += int(numbers.sum())
    _add(tally.documents, source, np.ones(batch.num_rows, np.int64))
    _add(tally.text_bytes, source, np.diff(text_views(batch.column("text"))[1]))
    return batch, signals


def _add(counts: Counter[str], source: pa.Array, amounts: I64) -> None:
    coded = source.dictionary_encode()
    names = coded.dictionary.to_pylist()
    sums = np.bincount(coded.indices.to_numpy(), weights=amounts, minlength=len(names))
    for name, amount in zip(names, sums, strict=True):
        counts[name] += int(amount)


def _columns(job: _Job, batch: pa.RecordBatch, signals: dict[str, Any], signatures: list[U32]) -> pa.RecordBatch:
    data, offsets = text_views(batch.column("text"))
    made: dict[str, Any] = {
        "id": batch.column("id"),
        "source": batch.column("source"),
        "text_bytes": pa.array(np.diff(offsets)),
    }
    made |= {name: pa.array(values) for name, values in signals.items()}
    if job.hashed:
        data, offsets = normal_form(data, offsets, "NFC")
        hashes: U64 = content_hashes(data, offsets)
        made["content_low"], made["content_high"] = pa.array(hashes[:, 0]), pa.array(hashes[:, 1])
    if job.minhash:
        found, num_shingles = job.minhash.sketch(data, offsets, "NFC" if job.hashed else None)
        signatures.append(found)
        made["shingles"] = pa.array(num_shingles)
    return pa.RecordBatch.from_pydict(made)


def _write_columns(path: Path, job: _Job, columns: list[pa.RecordBatch], records: dict[str, FileRecord]) -> None:
    if columns:
        table = pa.Table.from_batches(columns).combine_chunks()
    else:
        nothing = pa.RecordBatch.from_pydict(
            {
                "doc": pa.array([], pa.uint64()),
                "id": pa.array([], pa.string()),
                "source": pa.array([], pa.string()),
                "text": pa.array([], pa.large_string()),
            }
        )
        rules = tuple(step for step in job.steps if isinstance(step, Filter))
        empty = {name: np.zeros(0) for name in filters.signal_names(rules)}
        table = pa.Table.from_batches([_columns(job, nothing, empty, [])])
    with committed(path, records) as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _check_bad_share(found: list[tuple[Read, Inputs]], outcomes: list[Outcome]) -> None:
    position = 0
    for read, inputs in found:
        mine = outcomes[position : position + len(inputs.parts)]
        position += len(inputs.parts)
        good = sum(sum(outcome.facts["documents"].values()) for outcome in mine)
        reasons: Counter[str] = Counter()
        for outcome in mine:
            reasons.update(outcome.facts["rejected"])
        bad = sum(reasons.values())
        if bad > read.max_bad_share * (good + bad):
            most = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common(3))
            raise InputError(
                f"{bad} of {good + bad} rows of {', '.join(read.inputs)} are bad ({most}), more than max_bad_share = "
                f"{read.max_bad_share}; they are listed in {STEP}/*.rejected.arrow of the output: mend the input, or "
                "raise `Read(max_bad_share=...)`"
            )


def _write_rejected(folder: Path, path: Path, outcomes: list[Outcome], unreadable: list[Reject]) -> None:
    """One table of all that could not be read; always there, so that its absence never has two meanings."""
    import pyarrow.parquet as pq

    with committed(path) as sink, pq.ParquetWriter(sink, REJECTED) as writer:
        writer.write_table(pa.Table.from_pylist([_reject_row(reject) for reject in unreadable], REJECTED))
        for outcome in outcomes:
            for name in outcome.files:
                if name.endswith(".rejected.arrow"):
                    writer.write_table(mapped(folder / name))


def _reject_row(reject: Reject) -> dict[str, Any]:
    return {
        "file": reject.url,
        "position": reject.position,
        "reason": reject.reason,
        "detail": reject.detail[:500],
    }
