"""Deduplicate a corpus and change nothing else: Parquet out, with a ledger of what went and why."""

from __future__ import annotations

from typing import Literal

from dataeff import Dedup, MinHash, Pipeline, Read, Shard
from dataeff.formats import TextParquet


def dedup(
    inputs: str,
    threshold: float = 0.8,
    measure: Literal["jaccard", "containment"] = "jaccard",
    exact_only: bool = False,
    prefer: tuple[str, ...] = (),
) -> Pipeline:
    """Remove exact and near duplicates; the preferred, then the longer document stays."""
    minhash = None if exact_only else MinHash(threshold=threshold, measure=measure)
    return Pipeline(Read(inputs), Dedup(minhash=minhash, prefer=prefer), Shard(TextParquet()))
