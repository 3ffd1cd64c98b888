"""Tokenize: text of the survivors to token ids, kept in shuffled order by source."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataeff import exchange, manifest
from dataeff.arrays import mapped_array
from dataeff.arrow import PART_SHIFT, U64
from dataeff.errors import PlanError
from dataeff.manifest import FileRecord, committed
from dataeff.shuffle import fractions, shuffle_keys
from dataeff.stages.documents import StoredPart, mapped
from dataeff.stages.survivors import Survivors
from dataeff.stages.tasks import Context, Outcome, Task, commit_step, committed_step, log, remove_outcome, run_step
from dataeff.tokenizers import Encoder, Tokenizer, token_dtype

STEP = "tokens"
SAMPLE_STEP = "tokenizer"
VERSION = 2
SOURCE_SHIFT = 48
"""A token row's key is its source's number << 48 | the upper bits of its shuffle key."""


@dataclass(frozen=True, slots=True, init=False)
class Tokenize:
    """Turn the text of the surviving documents into token ids, each document ended by a token of its own.

    Args:
        tokenizer: A member of `dataeff.tokenizers`.
    """

    tokenizer: Tokenizer

    def __init__(self, tokenizer: Tokenizer) -> None:
        object.__setattr__(self, "tokenizer", tokenizer)
        if not callable(getattr(tokenizer, "prepare", None)) or not callable(getattr(tokenizer, "load", None)):
            raise PlanError(f"{tokenizer!r} is not a tokenizer: it must have the methods `prepare` and `load`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The token rows that the step committed."""

    paths: tuple[Path, ...]
    """A file a part, an exchange by source and shuffle key: `key, doc, id, source, tokens`, extra columns."""
    digests: tuple[str, ...]
    sources: tuple[str, ...]
    """Sources by number."""
    vocab_size: int
    end_of_document: int
    tokens: dict[str, int]
    """Tokens by source, end-of-document tokens included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    part: StoredPart
    kept: Path
    tokenizer: Tokenizer
    prepared: Path
    sources: tuple[str, ...]
    seed: int


def run(
    context: Context,
    tokenize: Tokenize,
    store: list[StoredPart],
    survivors: Survivors,
    text_bytes: dict[str, int],
) -> Tokens:
    """Prepare the tokenizer, then encode every surviving document.

    Args:
        context: Where and with what.
        tokenize: The tokenizer.
        store: The documents.
        survivors: Which of them are in the corpus.
        text_bytes: Bytes of surviving text by source.
    """
    sources = tuple(sorted(text_bytes))
    if len(sources) >= 1 << 16:
        raise PlanError(f"{len(sources)} sources; token shards hold at most 65535: name sources more coarsely")
    prepared, digest = _prepare(context, tokenize.tokenizer, store, survivors, sum(text_bytes.values()))
    tasks = [
        Task(
            name=part.name,
            fingerprint=manifest.fingerprint(VERSION, tokenize, digest, part.digest, survived, sources, context.seed),
            arguments=_Job(
                part=part,
                kept=kept,
                tokenizer=tokenize.tokenizer,
                prepared=prepared,
                sources=sources,
                seed=context.seed,
            ),
            num_bytes=part.text_bytes,
        )
        for part, kept, survived in zip(store, survivors.paths, survivors.digests, strict=True)
    ]
    outcomes = run_step(context, STEP, tasks, _write_tokens)
    encoder = _encoder(tokenize.tokenizer, prepared, digest)
    tokens: Counter[str] = Counter(dict.fromkeys(sources, 0))
    for outcome in outcomes:
        tokens.update(outcome.facts["tokens"])
    facts = {"version": VERSION, "vocab_size": encoder.vocab_size, "end_of_document": encoder.end_of_document}
    commit_step(context, STEP, {**facts, "sources": list(sources), "tokens": dict(sorted(tokens.items()))})
    return Tokens(
        paths=tuple(context.out / STEP / f"{task.name}.arrow" for task in tasks),
        digests=tuple(outcome.digest for outcome in outcomes),
        sources=sources,
        vocab_size=encoder.vocab_size,
        end_of_document=encoder.end_of_document,
        tokens=dict(sorted(tokens.items())),
    )


def _prepare(
    context: Context, tokenizer: Tokenizer, store: list[StoredPart], survivors: Survivors, total_bytes: int
) -> tuple[Path, str]:
    """Keep the prepared tokenizer beside the corpus; a trained one is trained on a seeded sample of survivors."""
    wanted = getattr(tokenizer, "sample_bytes", 0)
    share = min(1.0, wanted / max(1, total_bytes))
    inputs = [VERSION, context.seed, share, [part.digest for part in store], survivors.digests] if wanted else []
    fingerprint = manifest.fingerprint(VERSION, tokenizer, inputs)
    path = context.out / SAMPLE_STEP / "prepared.bin"
    done = committed_step(context, SAMPLE_STEP)
    if wanted and done is not None and done.get("fingerprint") == fingerprint and path.is_file():
        return path, done["digest"]
    tasks = [
        Task(
            name=part.name,
            fingerprint=manifest.fingerprint(VERSION, context.seed, share, part.digest, survived),
            arguments=(part, kept, share, context.seed),
        )
        for part, kept, survived in zip(store, survivors.paths, survivors.digests, strict=True)
    ]
    if wanted:
        run_step(context, SAMPLE_STEP, tasks, _write_sample)
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    prepared = tokenizer.prepare(_sample(context, tasks if wanted else []))
    log(
        context,
        step="tokenizer training",
        tasks=1,
        reused=0,
        wall_s=round(time.monotonic() - began_s, 3),
        cpu_s=round(time.process_time() - began_cpu_s, 3),
        bytes=0,
    )
    with committed(path) as sink:
        sink.write(prepared)
    digest = manifest.fingerprint(prepared)
    commit_step(context, SAMPLE_STEP, {"version": VERSION, "fingerprint": fingerprint, "digest": digest})
    for task in tasks:
        (context.out / SAMPLE_STEP / f"{task.name}.arrow").unlink(missing_ok=True)
        remove_outcome(context.out / SAMPLE_STEP, task.name)
    return path, digest


def _write_sample(folder: Path, arguments: tuple[StoredPart, Path, float, int]) -> Outcome:
    part, kept, share, seed = arguments
    keys = shuffle_keys(part.columns().column("id").combine_chunks(), seed)
    chosen = mapped_array(kept) & (fractions(keys) < share)
    schema = pa.schema([pa.field("text", pa.large_string())])
    records: dict[str, FileRecord] = {}
    with committed(folder / f"{part.name}.arrow", records) as sink, pa.ipc.new_file(sink, schema) as writer:
        for _, batch in part.text_batches(chosen, text_only=True):
            writer.write_batch(batch.cast(schema))
    return Outcome(files=records)


def _sample(context: Context, tasks: list[Task]) -> Iterator[str]:
    for task in tasks:
        for text in mapped(context.out / SAMPLE_STEP / f"{task.name}.arrow").column("text"):
            yield text.as_py()


def _write_tokens(folder: Path, job: _Job) -> Outcome:
    part = job.part
    columns = part.columns()
    kept = mapped_array(job.kept)
    encoder = _encoder(job.tokenizer, job.prepared, manifest.fingerprint(job.prepared.read_bytes()))
    kind = pa.large_list(pa.from_numpy_dtype(token_dtype(encoder.vocab_size)))
    pieces = []
    for rows, batch in part.text_batches(kept):
        ids, offsets = encoder.encode(batch.column("text"))
        tokens = pa.LargeListArray.from_arrays(
            pa.array(offsets), pa.array(ids.astype(kind.value_type.to_pandas_dtype()))
        )
        names = columns.select(["id", "source"]).take(pa.array(rows)).combine_chunks()
        made = {
            "key": pa.array(_keys(names, job)),
            "doc": pa.array((np.uint64(part.number) << np.uint64(PART_SHIFT)) + rows.astype(np.uint64)),
            "id": names.column("id"),
            "source": names.column("source"),
            "tokens": tokens,
        }
        extras = {name: batch.column(name) for name in batch.schema.names if name != "text"}
        pieces.append(pa.table({**made, **extras}))
    table = pa.concat_tables(pieces) if pieces else pa.table({"key": pa.array([], pa.uint64())})
    records: dict[str, FileRecord] = {}
    exchange.write_table(folder / f"{part.name}.arrow", table, records)
    counts: Counter[str] = Counter()
    for piece in pieces:
        lengths = np.diff(piece.column("tokens").chunk(0).offsets.to_numpy())
        sums = pa.table([piece.column("source"), pa.array(lengths)], names=["source", "n"]).group_by("source")
        for row in sums.aggregate([("n", "sum")]).to_pylist():
            counts[row["source"]] += row["n_sum"]
    return Outcome(files=records, facts={"tokens": dict(sorted(counts.items()))})


def _keys(names: pa.Table, job: _Job) -> U64:
    numbers = pa.compute.index_in(names.column("source").combine_chunks(), pa.array(job.sources)).to_numpy()
    shuffled = shuffle_keys(names.column("id").combine_chunks(), job.seed)
    keys: U64 = (numbers.astype(np.uint64) << np.uint64(SOURCE_SHIFT)) | (shuffled >> np.uint64(64 - SOURCE_SHIFT))
    return keys


def _encoder(tokenizer: Tokenizer, prepared: Path, digest: str) -> Encoder:
    return _loaded(_Loadable(tokenizer, prepared, digest))


class _Loadable:
    """A key for the cache of encoders: equal where the prepared bytes are equal."""

    def __init__(self, tokenizer: Tokenizer, prepared: Path, digest: str) -> None:
        self.tokenizer, self.prepared = tokenizer, prepared
        self._key = (manifest.fingerprint(tokenizer), digest)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Loadable) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@functools.lru_cache(maxsize=2)
def _loaded(key: _Loadable) -> Encoder:
    return key.tokenizer.load(key.prepared.read_bytes())
