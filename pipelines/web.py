"""Web text to Parquet, by the rules that made FineWeb: repetition, quality, C4, near-duplicates."""

from __future__ import annotations

from dataeff import Dedup, Edit, Filter, MinHash, Pipeline, Read, Shard
from dataeff.editors import C4Lines, MaskPersonalData
from dataeff.filters import C4Quality, FineWebQuality, GopherQuality, GopherRepetition
from dataeff.formats import TextParquet


def web(
    inputs: str,
    text_column: str = "text",
    min_words: int = 50,
    threshold: float = 0.8,
    seed: int = 0,
) -> Pipeline:
    """Filter, clean and deduplicate one collection of web pages."""
    return Pipeline(
        Read(inputs, text_column=text_column),
        Filter(GopherRepetition(), GopherQuality(min_words=min_words)),
        Edit(C4Lines(require_terminal_punctuation=False), MaskPersonalData()),
        Filter(C4Quality(), FineWebQuality()),
        Dedup(minhash=MinHash(threshold=threshold)),
        Shard(TextParquet()),
        seed=seed,
    )
