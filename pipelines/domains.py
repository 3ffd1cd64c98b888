"""Several sources to token shards: web rules for web sources only, one dedup over all, mixed by UniMax.

Rules made for web prose destroy code and mathematics, so only the sources named in `web` are judged by them; the
others must only be long enough. Where two sources hold the same document, the one named first in `prefer` keeps it.
"""

from __future__ import annotations

from pathlib import Path

from dataeff import Dedup, Filter, Mix, Pipeline, Read, Shard, Tokenize
from dataeff.filters import FineWebQuality, GopherQuality, GopherRepetition, Length
from dataeff.formats import ArrowTokens, WebdatasetTar
from dataeff.mixers import Unimax
from dataeff.tokenizers import Pretrained, TrainedBpe


def domains(
    inputs: str,
    web: tuple[str, ...] = ("web*",),
    prefer: tuple[str, ...] = (),
    tokenizer: Path | None = None,
    vocab_size: int = 16_384,
    budget: int | None = None,
    max_epochs: float = 4.0,
    sequence_length: int = 2048,
    seed: int = 0,
) -> Pipeline:
    """Filter by source, deduplicate across sources, tokenize, mix, and write token shards."""
    return Pipeline(
        Read(inputs),
        Filter(GopherRepetition(), GopherQuality(), FineWebQuality(), sources=web),
        Filter(Length(min_words=10)),
        Dedup(prefer=prefer),
        Tokenize(Pretrained(source=str(tokenizer)) if tokenizer else TrainedBpe(vocab_size=vocab_size)),
        Mix(Unimax(max_epochs=max_epochs), budget=budget, max_epochs=max_epochs),
        Shard(ArrowTokens(sequence_length=sequence_length), WebdatasetTar()),
        seed=seed,
    )
