"""Shard: the corpus as files that training reads."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataeff import exchange, manifest
from dataeff.arrays import mapped_array
from dataeff.arrow import PART_SHIFT
from dataeff.errors import PlanError
from dataeff.formats import Format, ShardContext
from dataeff.manifest import FileRecord, committed
from dataeff.mixture import copies
from dataeff.registry import name_of
from dataeff.shuffle import shuffle_keys
from dataeff.stages.documents import StoredPart, mapped
from dataeff.stages.survivors import Survivors
from dataeff.stages.tasks import Context, Outcome, Task, commit_step, committed_step, run_step
from dataeff.stages.tokenize import SOURCE_SHIFT, Tokens

STEP = "shards"
VERSION = 2


@dataclass(frozen=True, slots=True, init=False)
class Shard:
    """Write the corpus as shards.

    Args:
        formats: Members of `dataeff.formats`; each writes its own folder below `shards/`.
    """

    formats: tuple[Format, ...]

    def __init__(self, *formats: Format) -> None:
        object.__setattr__(self, "formats", formats)
        if not formats:
            raise PlanError("Shard needs at least one format (`dataeff list formats`)")
        for form in formats:
            if not callable(getattr(form, "write", None)) or not hasattr(form, "grouping"):
                raise PlanError(f"{form!r} is not a format: it must have the method `write` and a `grouping`")
        names = [name_of(form) for form in formats]
        if len(set(names)) < len(names):
            raise PlanError(f"Shard(...) names a format twice: {', '.join(names)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What the steps before committed."""

    store: tuple[StoredPart, ...]
    survivors: Survivors
    text_bytes: dict[str, int]
    """Bytes of surviving text by source."""
    tokens: Tokens | None
    epochs: dict[str, float]
    """How often each source is seen; text is repeated accordingly, token rows are left to the loader."""
    fingerprint: str
    """Of the corpus before sharding."""


def run(context: Context, shard: Shard, corpus: Corpus) -> dict[str, list[dict[str, Any]]]:
    """Write all formats; returns by format what each shard holds: name, rows, documents, tokens, bytes, checksum."""
    written: dict[str, list[dict[str, Any]]] = {}
    for form in shard.formats:
        name = name_of(form)
        if form.content == "tokens" and corpus.tokens is None:
            raise PlanError(f"the format {name} holds tokens: put a Tokenize stage before Shard")
        run_group = {"source": _by_source, "mixed": _mixed, "part": _by_part}[form.grouping]
        tasks = run_group(context, form, corpus)
        outcomes = run_step(context, f"{STEP}/{name}", tasks, functools.partial(_write_shard, form))
        written[name] = [
            {**outcome.facts, **asdict(record), "file": file}
            for outcome in outcomes
            for file, record in outcome.files.items()
        ]
        shutil.rmtree(context.out / STEP / f"{name}-spill", ignore_errors=True)
        commit_step(context, f"{STEP}/{name}", {"version": VERSION, "inputs": _inputs(tasks), "shards": written[name]})
    return written


def _inputs(tasks: list[Task]) -> str:
    """Of all that determines a format's shards."""
    return manifest.fingerprint([task.fingerprint for task in tasks])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """Rows of an exchange that make one shard."""

    context: ShardContext
    paths: tuple[Path, ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartCopy:
    """Surviving documents of a part that are seen more than `copy` times."""

    context: ShardContext
    part: StoredPart
    kept: Path
    copy: int
    epochs: dict[str, float]
    seed: int


def _shard_context(corpus: Corpus, form: Format, name: str, source: str | None = None) -> ShardContext:
    tokens = corpus.tokens if form.content != "text" else None
    return ShardContext(
        name=name,
        source=source,
        vocab_size=tokens.vocab_size if tokens else 0,
        end_of_document=tokens.end_of_document if tokens else -1,
        fingerprint=corpus.fingerprint,
    )


def _by_source(context: Context, form: Format, corpus: Corpus) -> list[Task]:
    """Shards of one source each, in shuffled order within it."""
    tokens = corpus.tokens
    assert tokens is not None
    tasks = []
    slugs = _slugs(tokens.sources)
    for number, source in enumerate(tokens.sources):
        if tokens.tokens[source] == 0:
            continue
        num_shards = form.num_shards(tokens.tokens[source])
        low = number << SOURCE_SHIFT
        for index, (start, stop) in enumerate(exchange.even_ranges(num_shards, low, low + (1 << SOURCE_SHIFT))):
            name = f"{slugs[source]}-{index:05d}"
            piece = _Range(context=_shard_context(corpus, form, name, source), paths=tokens.paths, low=start, high=stop)
            fingerprint = manifest.fingerprint(VERSION, form, tokens.digests, piece.context, start, stop)
            tasks.append(Task(name=name, fingerprint=fingerprint, arguments=piece))
    return tasks


def _by_part(context: Context, form: Format, corpus: Corpus) -> list[Task]:
    """Shards in corpus order; repeats of a document stand in later shards, never beside it."""
    tasks = []
    for copy in range(int(np.ceil(max(corpus.epochs.values(), default=0.0)))):
        for part, kept, digest in zip(corpus.store, corpus.survivors.paths, corpus.survivors.digests, strict=True):
            name = f"epoch-{copy}-{part.name}"
            piece = _PartCopy(
                context=_shard_context(corpus, form, name),
                part=part,
                kept=kept,
                copy=copy,
                epochs=corpus.epochs,
                seed=context.seed,
            )
            fingerprint = manifest.fingerprint(
                VERSION, form, part.digest, digest, piece.context, copy, corpus.epochs, context.seed
            )
            tasks.append(
                Task(
                    name=name,
                    fingerprint=fingerprint,
                    arguments=piece,
                    num_bytes=part.text_bytes,
                )
            )
    return tasks


def _mixed(context: Context, form: Format, corpus: Corpus) -> list[Task]:
    """Shards of all sources, interleaved and shuffled, each document as often as the mixture says."""
    with_tokens = corpus.tokens is not None and form.content != "text"
    supply = corpus.tokens.tokens if with_tokens and corpus.tokens else corpus.text_bytes
    width = 2 if with_tokens else 1
    total = sum(supply[source] * corpus.epochs.get(source, 0.0) * width for source in supply)
    step = f"{STEP}/{name_of(form)}-spill"
    digests = corpus.tokens.digests if with_tokens and corpus.tokens else corpus.survivors.digests
    tasks = [
        Task(
            name=part.name,
            fingerprint=manifest.fingerprint(VERSION, part.digest, digest, corpus.epochs, context.seed),
            arguments=_Spill(
                part=part,
                kept=kept,
                tokens=corpus.tokens.paths[number] if with_tokens and corpus.tokens else None,
                epochs=corpus.epochs,
                seed=context.seed,
            ),
            num_bytes=part.text_bytes,
        )
        for number, (part, kept, digest) in enumerate(zip(corpus.store, corpus.survivors.paths, digests, strict=True))
    ]
    ranges = exchange.even_ranges(form.num_shards(int(total)))
    shards = []
    for index, (low, high) in enumerate(ranges):
        piece = _Range(
            context=_shard_context(corpus, form, f"{index:06d}"),
            paths=tuple(context.out / step / f"{task.name}.arrow" for task in tasks),
            low=low,
            high=high,
        )
        fingerprint = manifest.fingerprint(
            VERSION, form, [task.fingerprint for task in tasks], piece.context, low, high
        )
        shards.append(Task(name=piece.context.name, fingerprint=fingerprint, arguments=piece))
    done = committed_step(context, f"{STEP}/{name_of(form)}")
    if done is None or done.get("inputs") != _inputs(shards):
        run_step(context, step, tasks, _write_spill)
    return shards


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spill:
    part: StoredPart
    kept: Path
    tokens: Path | None
    epochs: dict[str, float]
    seed: int


def _write_spill(folder: Path, job: _Spill) -> Outcome:
    """All copies of the part's documents, sorted by a key a copy, for the shards to pick their ranges from."""
    if job.tokens is not None:
        batches = mapped(job.tokens).combine_chunks().to_batches()
    else:
        batches = list(_text_documents(job.part, mapped_array(job.kept)))
    spilled = []
    for batch in batches:
        wanted = _copies(batch, job.epochs, job.seed)
        named = batch.select([name for name in batch.schema.names if name != "key"])
        for copy in range(int(wanted.max(initial=0))):
            chosen = pa.array(wanted > copy)
            keys = pa.array(shuffle_keys(batch.column("id"), job.seed, copy)).filter(chosen)
            spilled.append(pa.Table.from_batches([named.filter(chosen)]).add_column(0, "key", keys))
    table = pa.concat_tables(spilled) if spilled else pa.table({"key": pa.array([], pa.uint64())})
    records: dict[str, FileRecord] = {}
    exchange.write_table(folder / f"{job.part.name}.arrow", table, records)
    return Outcome(files=records)


def _text_documents(part: StoredPart, kept: npt.NDArray[np.bool_]) -> Iterator[pa.RecordBatch]:
    """Document batches of the chosen rows."""
    for rows, batch in part.text_batches(kept):
        yield _as_documents(part, rows, batch)


def _as_documents(part: StoredPart, rows: npt.NDArray[np.intp], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Stored text with the columns that name it."""
    named = part.columns().select(["id", "source"]).take(pa.array(rows)).combine_chunks()
    docs = (np.uint64(part.number) << np.uint64(PART_SHIFT)) + rows.astype(np.uint64)
    names = [column.combine_chunks() for column in named.columns]
    made = [pa.array(docs), *names, *batch.columns]
    return pa.RecordBatch.from_arrays(made, names=["doc", *named.column_names, *batch.schema.names])


def _copies(batch: pa.RecordBatch, epochs: dict[str, float], seed: int) -> npt.NDArray[np.int32]:
    """How often each document is seen, shape (rows,)."""
    coded = batch.column("source").dictionary_encode()
    keys = shuffle_keys(batch.column("id"), seed)
    wanted = np.zeros(len(keys), np.int32)
    numbers = coded.indices.to_numpy()
    for number, name in enumerate(coded.dictionary.to_pylist()):
        mine = numbers == number
        wanted[mine] = copies(keys[mine], epochs.get(name, 0.0))
    return wanted


def _write_shard(form: Format, folder: Path, piece: _Range | _PartCopy) -> Outcome:
    records: dict[str, FileRecord] = {}
    batches = _range(piece) if isinstance(piece, _Range) else _part_copy(piece)
    with committed(folder / f"{piece.context.name}{form.suffix}", records) as sink:
        summary = form.write(cast("BinaryIO", sink), batches, piece.context)
    return Outcome(files=records, facts={**asdict(summary), "source": piece.context.source})


def _range(piece: _Range) -> Iterator[pa.RecordBatch]:
    for batch in exchange.read_table(piece.paths, piece.low, piece.high):
        yield batch.drop_columns(["key"])


def _part_copy(piece: _PartCopy) -> Iterator[pa.RecordBatch]:
    # A part without survivors still tells which columns there are.
    yield _as_documents(piece.part, np.zeros(0, np.intp), piece.part.no_text())
    for batch in _text_documents(piece.part, mapped_array(piece.kept)):
        chosen = _copies(batch, piece.epochs, piece.seed) > piece.copy
        if chosen.any():
            yield batch if chosen.all() else batch.filter(pa.array(chosen))


def _slugs(sources: tuple[str, ...]) -> dict[str, str]:
    """File names for sources: readable, portable, distinct."""
    slugs: dict[str, str] = {}
    for number, source in enumerate(sources):
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", source).strip("-")[:60] or "source"
        slugs[source] = slug if slug not in slugs.values() else f"{slug}-{number}"
    return slugs
