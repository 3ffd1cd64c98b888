"""A pipeline: a tuple of stages that reads like a sentence; plan, run, resume."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from dataeff import manifest
from dataeff.errors import EmptyError, InputError, PlanError, StorageError
from dataeff.stages import documents, mix, shard, survivors, tokenize, verdicts
from dataeff.stages.dedup import Dedup
from dataeff.stages.documents import StoredPart
from dataeff.stages.edit import Edit
from dataeff.stages.filter import Filter
from dataeff.stages.mix import Mix
from dataeff.stages.read import Read
from dataeff.stages.shard import Corpus, Shard
from dataeff.stages.survivors import Survivors
from dataeff.stages.tasks import Context
from dataeff.stages.tokenize import Tokenize, Tokens
from dataeff.stages.verdicts import Verdicts

VERSION = 1
MANIFEST = "manifest.json"
FILES = ("rejected.parquet", "removals.parquet", "clusters.parquet")
"""Tables at the top of an output directory."""
STARTED = ".dataeff"
Stage = Read | Edit | Filter | Dedup | Tokenize | Mix | Shard
_ORDER: tuple[tuple[type, ...], ...] = ((Read,), (Edit, Filter), (Dedup,), (Tokenize,), (Mix,), (Shard,))
T = TypeVar("T")


@dataclass(frozen=True, slots=True, init=False)
class Pipeline:
    """What to do to make a corpus.

    Args:
        stages: Read (one or more), then Edit and Filter in any order, Dedup, Tokenize, Mix, Shard; all but the
            first may be absent.
        seed: Of every choice that is random.
    """

    stages: tuple[Stage, ...]
    seed: int

    def __init__(self, *stages: Stage, seed: int = 0) -> None:
        object.__setattr__(self, "stages", stages)
        object.__setattr__(self, "seed", seed)
        position = 0
        for stage in stages:
            places = [place for place, kind in enumerate(_ORDER) if isinstance(stage, kind)]
            if not places:
                raise PlanError(
                    f"{stage!r} is not a stage; a pipeline is made of Read, Edit, Filter, Dedup, Tokenize, Mix, Shard"
                )
            if places[0] < position or (places[0] == position > 1):
                raise PlanError(
                    f"{type(stage).__name__} stands at the wrong place in the pipeline; the order is Read..., "
                    "Edit and Filter..., Dedup, Tokenize, Mix, Shard, each of the last four at most once"
                )
            position = places[0]
        if not self.all_of(Read):
            raise PlanError("a pipeline begins with Read: nothing says where the documents come from")
        if not 0 <= seed < 1 << 63:
            raise PlanError.out_of_range(self, "seed", "in [0, 2**63)")

    def all_of(self, kind: type[T]) -> tuple[T, ...]:
        """All stages of a kind, in order."""
        return tuple(stage for stage in self.stages if isinstance(stage, kind))

    def one_of(self, kind: type[T]) -> T | None:
        """The stage of a kind, or None."""
        found = self.all_of(kind)
        return found[0] if found else None


def run(pipeline: Pipeline, context: Context, recipe: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run a pipeline into `context.out`, or what of it is not there yet.

    Args:
        pipeline: What to do.
        context: Where and with what.
        recipe: Name and options of the recipe, for the manifest.

    Returns:
        The manifest of the corpus.

    Raises:
        DataeffError: See `dataeff.errors`; all finished parts stay, and the same call goes on from them.
    """
    created = claim(context.out)
    try:
        content = _run(pipeline, context)
    except (PlanError, InputError) as error:
        if created and (isinstance(error, (PlanError, EmptyError)) or not (context.out / documents.STEP).exists()):
            shutil.rmtree(context.out, ignore_errors=True)
        raise
    content["recipe"] = dict(recipe or {})
    content["files"] = {name: asdict(manifest.record_of(context.out / name)) for name in FILES}
    manifest.write(context.out / MANIFEST, content)
    return content


def claim(out: Path) -> bool:
    """Make the output directory ours; returns whether it was made now.

    Raises:
        StorageError: It holds something that no run of dataeff put there.
    """
    if out.exists() and not out.is_dir():
        raise StorageError(f"{out} is a file; --out must name a directory, new or from an earlier run")
    fresh = not out.exists()
    if not fresh and any(out.iterdir()) and not (out / STARTED).exists():
        raise StorageError(
            f"{out} is not empty and no dataeff run made it; choose a new directory for --out, or empty this one"
        )
    with manifest.storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        (out / STARTED).write_text(f"dataeff output, version {VERSION}\n")
    (out / MANIFEST).unlink(missing_ok=True)
    return fresh


def _run(pipeline: Pipeline, context: Context) -> dict[str, Any]:
    dedup = pipeline.one_of(Dedup)
    steps = tuple(stage for stage in pipeline.stages if isinstance(stage, (Edit, Filter)))
    store = documents.run(
        context,
        pipeline.all_of(Read),
        steps,
        hashed=dedup is not None,
        minhash=dedup.minhash if dedup else None,
    )
    judged = verdicts.run(context, store, pipeline.all_of(Filter))
    left = survivors.run(context, dedup, store, judged)
    text_bytes = left.text_bytes
    tokenizing, mixing, sharding = pipeline.one_of(Tokenize), pipeline.one_of(Mix), pipeline.one_of(Shard)
    tokens = tokenize.run(context, tokenizing, store, left, text_bytes) if tokenizing else None
    supply, unit = (tokens.tokens, "tokens") if tokens else (text_bytes, "bytes")
    mixture = mix.run(context, mixing, supply, unit) if mixing else None
    epochs = (
        {source: share.epochs for source, share in mixture.sources.items()} if mixture else dict.fromkeys(supply, 1.0)
    )
    corpus = Corpus(
        store=tuple(store),
        survivors=left,
        text_bytes=text_bytes,
        tokens=tokens,
        epochs=epochs,
        fingerprint=manifest.fingerprint(VERSION, left.digests, tokens.digests if tokens else [], pipeline.seed),
    )
    shards = shard.run(context, sharding, corpus) if sharding else {}
    return {
        "version": VERSION,
        "fingerprint": corpus.fingerprint,
        "stages": [manifest.canonical(stage) for stage in pipeline.stages],
        "seed": pipeline.seed,
        "unit": unit,
        "funnel": _funnel(store, judged, left, tokens),
        "bounds": manifest.canonical({rule: asdict(passes) for rule, passes in judged.bounds.items()}),
        "skipped_comparisons": left.skipped_comparisons,
        "mixture": manifest.canonical(asdict(mixture)) if mixture else None,
        "shards": shards,
    }


def _funnel(store: list[StoredPart], judged: Verdicts, left: Survivors, tokens: Tokens | None) -> dict[str, Any]:
    """Where every document and byte went, by source and reason."""
    totals: dict[str, Counter[str]] = {}
    for part in store:
        for name, counts in part.facts.items():
            totals.setdefault(name, Counter()).update(counts)
    read = {
        source: {"documents": count, "bytes": totals["text_bytes"][source]}
        for source, count in sorted(totals["documents"].items())
    }
    kept, duplicates = {}, {}
    for source, before in read.items():
        dropped = judged.dropped.get(source, {}).values()
        kept[source] = {"documents": left.documents.get(source, 0), "bytes": left.text_bytes.get(source, 0)}
        duplicates[source] = {
            "documents": before["documents"] - sum(count for count, _ in dropped) - kept[source]["documents"],
            "bytes": before["bytes"] - sum(num_bytes for _, num_bytes in dropped) - kept[source]["bytes"],
        }
        if tokens:
            kept[source]["tokens"] = tokens.tokens.get(source, 0)
    return {
        "read": read,
        "rejected": dict(sorted(totals["rejected"].items())),
        "newlines": dict(sorted(totals["newlines"].items())),
        "edited": dict(sorted(totals["removed"].items())),
        "dropped": {
            source: {rule: {"documents": count, "bytes": num_bytes} for rule, (count, num_bytes) in rules.items()}
            for source, rules in judged.dropped.items()
        },
        "duplicates": duplicates,
        "kept": kept,
    }
