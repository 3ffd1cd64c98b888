"""The candidates' corpora and the validation set that they share: made alike, and kept apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dataeff import manifest
from dataeff.compare.comparison import Comparison
from dataeff.errors import PlanError
from dataeff.filters.held_out import HeldOut
from dataeff.formats.arrow_tokens import ArrowTokens
from dataeff.kernel.passages import Passages
from dataeff.loader.shards import Shards
from dataeff.loader.validation import ValidationRows, ValidationSet, read_validation, write_validation
from dataeff.pipeline import Pipeline, run
from dataeff.stages.dedup import Dedup
from dataeff.stages.filter import Filter
from dataeff.stages.read import Read
from dataeff.stages.shard import Shard
from dataeff.stages.tasks import Context
from dataeff.stages.tokenize import SAMPLE_STEP, Tokenize
from dataeff.tokenizers import Tokenizer
from dataeff.tokenizers.pretrained import Pretrained
from dataeff.tokenizers.trained_bpe import TrainedBpe

VALIDATION = "validation"
OVERLAP = "overlap.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What trials train on and are judged by."""

    corpora: Mapping[str, Path]
    validation: Path
    tokens: Mapping[str, Mapping[str, int]]
    """Distinct tokens of each corpus by source."""
    overlap: Mapping[str, Any]
    """Of each source's validation tokens, the share that stands in each corpus, and how many are left."""
    digest: str
    """Of all shards and the validation set."""


def prepare(comparison: Comparison, context: Context) -> Prepared:
    """Make what is not there yet.

    Raises:
        DataeffError: A pipeline cannot run.
        PlanError: A source has no validation text, or most of it stands in a corpus; the message shows where.
    """
    folder = context.out / "corpora"
    first = comparison.candidates[comparison.baseline].corpus
    tokenizer = comparison.tokenizer
    paths, tokens = {}, {}
    for name in (first, *(name for name in comparison.corpora if name != first)):
        pipeline = comparison.corpora[name]
        training = Filter(HeldOut(share=comparison.holdout_share, keep="training"))
        stages = (*pipeline.all_of(Read), training, *comparison.steps_of(name))
        made = _made(comparison, context, folder / name, (*stages, *pipeline.all_of(Dedup)), tokenizer, pipeline.seed)
        tokens[name] = {source: kept["tokens"] for source, kept in made["funnel"]["kept"].items() if kept["tokens"]}
        tokenizer = _shared(tokenizer, folder / name)
        paths[name] = folder / name
    held = Filter(HeldOut(share=comparison.holdout_share, keep="validation"))
    _made(comparison, context, folder / VALIDATION, (*comparison.reads(), held, Dedup()), tokenizer, comparison.seed)
    path = context.out / "validation.arrow"
    overlap = _validation(comparison, paths, folder / VALIDATION, path)
    digests = [Shards(found).digest for found in paths.values()]
    return Prepared(
        corpora=paths,
        validation=path,
        tokens=tokens,
        overlap=overlap,
        digest=manifest.fingerprint(digests, read_validation(path).digest),
    )


def _made(
    comparison: Comparison, context: Context, out: Path, stages: tuple[Any, ...], tokenizer: Tokenizer, seed: int
) -> dict[str, Any]:
    sharded = Shard(ArrowTokens(sequence_length=comparison.sequence_length))
    pipeline = Pipeline(*stages, Tokenize(tokenizer), sharded, seed=seed)
    return run(pipeline, dataclasses.replace(context, out=out, seed=seed), {"name": f"compare {out.name}"})


def _shared(tokenizer: Tokenizer, corpus: Path) -> Tokenizer:
    """The tokenizer that the first corpus trained, for the others; one that is not trained is shared as it is."""
    if not isinstance(tokenizer, TrainedBpe):
        return tokenizer
    return Pretrained(source=str(corpus / SAMPLE_STEP / "prepared.bin"), end_of_document=tokenizer.end_of_document)


def _validation(
    comparison: Comparison, corpora: Mapping[str, Path], held_out: Path, path: Path
) -> dict[str, dict[str, Any]]:
    """Write the validation set; per source, how much of it stands in which corpus."""
    wanted = manifest.fingerprint(
        [Shards(found).digest for found in (held_out, *corpora.values())],
        *(comparison.validation_rows, comparison.passage_tokens, comparison.max_overlap, list(corpora)),
        comparison.domains and manifest.canonical(comparison.domains),
    )
    done = manifest.read(path.with_name(OVERLAP))
    if done and done["fingerprint"] == wanted and path.exists():
        return dict(done["sources"])
    rows = _rows(held_out, comparison.validation_rows)
    streams = {name: tokens.reshape(-1) for name, tokens in rows.items()}
    counts = {name: np.ones(len(stream), np.bool_) for name, stream in streams.items()}
    found: dict[str, dict[str, Any]] = {name: {"tokens": len(stream)} for name, stream in streams.items()}
    for corpus, folder in corpora.items():
        passages = Passages(list(streams.values()), comparison.passage_tokens)
        shards = Shards(folder)
        for number in range(len(shards.files)):
            passages.meet(shards.shard(number).tokens.reshape(-1))
        for name, stream in streams.items():
            met = passages.met(stream)
            counts[name] &= ~met
            found[name][corpus] = float(met.mean())
    for name, entry in found.items():
        entry["left"] = int(counts[name].sum())
        if comparison.domains is None or comparison.domains.get(name):
            _check_overlap(comparison, name, entry, corpora)
    sources = {
        name: ValidationRows(tokens=tokens, counts=counts[name].reshape(tokens.shape))
        for name, tokens in rows.items()
        if comparison.domains is None or comparison.domains.get(name)
    }
    if not sources:
        raise PlanError(
            f"no domain has validation rows; {', '.join(rows) or 'no source'} has: name those in `domains`, or hold "
            "out more (holdout_share)"
        )
    write_validation(path, ValidationSet(sources=sources))
    manifest.write(path.with_name(OVERLAP), {"fingerprint": wanted, "sources": found})
    return found


def _rows(held_out: Path, limit: int) -> dict[str, Any]:
    """Whole rows of each source, the first ones, which stand in random order of documents."""
    shards = Shards(held_out)
    found: dict[str, list[Any]] = {}
    for number, file in enumerate(shards.files):
        shard = shards.shard(number)
        shard.check_all()
        whole = len(shard.tokens) - (shard.summary.padding_tokens > 0)
        taken = sum(map(len, found.get(file.source, [])))
        found.setdefault(file.source, []).append(shard.tokens[: min(whole, limit - taken)])
    rows = {name: np.concatenate(parts).astype(np.uint32) for name, parts in found.items()}
    return {name: tokens for name, tokens in rows.items() if len(tokens)}


def _check_overlap(comparison: Comparison, name: str, entry: Mapping[str, Any], corpora: Mapping[str, Path]) -> None:
    if 1 - entry["left"] / entry["tokens"] > comparison.max_overlap:
        shares = ", ".join(f"{100 * entry[corpus]:.0f} % in {corpus}" for corpus in corpora)
        raise PlanError(
            f"of the {entry['tokens']:,} validation tokens of {name}, {entry['left']:,} are left: the others stand, in "
            f"stretches of {comparison.passage_tokens} tokens or more, in what candidates train on ({shares}). At most "
            f"{100 * comparison.max_overlap:.0f} % may (max_overlap): deduplicate every corpus, hold out more "
            "(holdout_share), or leave the source out of `domains`, the validation losses that count"
        )
