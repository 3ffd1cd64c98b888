"""What should the next run train on: the text as it is, without duplicates, filtered, and in which mixture?

Raw text as it comes is the baseline. The others differ from it in one thing each, so that the table says what that one
thing is worth.
"""

from __future__ import annotations

from pathlib import Path

from dataeff import Candidate, Comparison, Dedup, Filter, Pipeline, Proxy, Read
from dataeff.filters import GopherRepetition, Length
from dataeff.mixers import Temperature, Unimax
from dataeff.screeners import SuccessiveHalving
from dataeff.tokenizers import TrainedBpe


def mixtures(
    inputs: Path,
    domains: tuple[str, ...] = (),
    tokens: int = 1_000_000,
    real_tokens: int | None = None,
    width: int = 64,
    layers: int = 2,
    vocab_size: int = 1024,
    sequence_length: int = 128,
    seeds: int = 3,
    max_epochs: float = 4.0,
    seed: int = 0,
) -> Comparison:
    """Compare three corpora, and three more mixtures of one of them, by validation loss on some sources or on all."""
    read = Read(str(inputs))
    repetitive = Filter(Length(min_words=5), GopherRepetition())
    return Comparison(
        corpora={
            "raw": Pipeline(read),
            "deduplicated": Pipeline(read, Dedup()),
            "filtered": Pipeline(read, repetitive, Dedup()),
        },
        candidates={
            "raw": Candidate(corpus="raw"),
            "deduplicated": Candidate(corpus="deduplicated"),
            "filtered": Candidate(corpus="filtered"),
            "flatter": Candidate(corpus="deduplicated", mixer=Temperature(temperature=2.0)),
            "even": Candidate(corpus="deduplicated", mixer=Temperature(temperature=float("inf"))),
            "unimax": Candidate(corpus="deduplicated", mixer=Unimax(max_epochs=max_epochs)),
        },
        baseline="raw",
        proxies={"full": Proxy(width=width, layers=layers, heads=max(1, width // 32))},
        domains=dict.fromkeys(domains, 1.0) if domains else None,
        tokens=tokens,
        real_tokens=real_tokens,
        tokenizer=TrainedBpe(vocab_size=vocab_size),
        sequence_length=sequence_length,
        screener=SuccessiveHalving(eta=3),
        seeds=seeds,
        seed=seed,
    )
