"""The whole lane on two cores: read, filter, deduplicate, and write Parquet shards or token shards."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

from benchmarks import corpora
from benchmarks.harness import BenchmarkError, Figure, Report, medians
from benchmarks.running import THREADS, run_pipeline
from dataeff import Dedup, Filter, Pipeline, Read, Shard, Tokenize
from dataeff.filters import C4Quality, FineWebQuality, GopherQuality, GopherRepetition
from dataeff.formats import ArrowTokens, TextParquet
from dataeff.stages import tokenize
from dataeff.tokenizers import Pretrained, pretrained

ROUNDS = 3
MEASURED = (
    GopherRepetition(
        max_paragraph_share=1,
        max_paragraph_char_share=1,
        max_line_share=1,
        max_line_char_share=1,
        max_top_ngram_shares=(9, 9, 9),
        max_duplicate_ngram_shares=(9,) * 6,
    ),
    GopherQuality(
        min_words=5,
        max_words=10**9,
        min_mean_word_chars=0,
        max_mean_word_chars=10**9,
        max_symbols_per_word=9,
        max_bullet_line_share=1,
        max_ellipsis_line_share=1,
        min_letter_word_share=0,
        min_stop_words=0,
    ),
    C4Quality(max_lorem_ipsum=10**9, max_curly_brackets=10**9, min_sentences=0),
    FineWebQuality(
        min_ended_line_share=0, max_short_line_share=1, max_duplicate_char_share=1, max_newlines_per_word=10**9
    ),
)
"""All four families, measured on every document, with thresholds that let nearly all of them pass, so that the text
goes all the way."""
TOKEN_SOURCES = ("linux_doc", "manpages", "postgres_doc", "python_doc")
_TOKENIZER = corpora.FOLDER.parent / "tokenizers" / "gpt2.json"
_BATCH_ROWS = 400


def run() -> Report:
    """Text shards of all corpora; token shards of three, beside the tokenizer alone on the same text.

    The tokenizer is `tokenizers`, which every installation has; with the extra `fast`, which is many times faster, the
    same figures come after it, without a target.
    """
    if not _TOKENIZER.is_file():
        raise BenchmarkError("shared/tokenizers/gpt2.json is not beside the checkout")
    read_mb = 0.0

    def to_text() -> float:
        nonlocal read_mb
        pipeline = Pipeline(Read(*map(str, corpora.files())), Filter(*MEASURED), Dedup(), Shard(TextParquet()))
        with tempfile.TemporaryDirectory() as folder:
            seconds, content = run_pipeline(pipeline, Path(folder) / "out")
        read_mb = sum(entry["bytes"] for entry in content["funnel"]["read"].values()) / 1e6
        return seconds

    to_text()
    text_s = medians({"text": to_text}, ROUNDS)["text"]
    with patch.dict(sys.modules, {"fastokens": None}):
        usual = _tokens("tokenizers", target=0.8)
    figures = [Figure(name="to text Parquet shards", value=read_mb / text_s, unit="MB/s", at_least=60), *usual]
    if importlib.util.find_spec("fastokens"):
        figures += _tokens("fastokens", target=None)
    return Report(
        name="lane",
        figures=tuple(figures),
        notes=(f"medians of {ROUNDS} rounds on {THREADS} threads", f"tokens: {', '.join(TOKEN_SOURCES)}"),
    )


def _tokens(engine: str, target: float | None) -> list[Figure]:
    """MB/s of text to token shards, of the tokenizer alone, and their ratio."""
    tokenize._loaded.cache_clear()
    pretrained._encoder.cache_clear()
    tokenizer = Pretrained(source=str(_TOKENIZER))
    encoder = tokenizer.load(tokenizer.prepare(iter(())))
    if not encoder.engine.startswith(engine):
        raise BenchmarkError(f"the tokenizer runs on {encoder.engine}, not on {engine}")
    files = list(map(str, corpora.files(*TOKEN_SOURCES)))
    text = corpora.texts(*TOKEN_SOURCES)
    batches = [text.slice(start, _BATCH_ROWS) for start in range(0, len(text), _BATCH_ROWS)]
    kept_mb = 0.0

    def lane() -> float:
        nonlocal kept_mb
        reading = Read(*files, part_bytes=4 << 20, batch_bytes=1 << 20)
        with tempfile.TemporaryDirectory() as folder:
            seconds, content = run_pipeline(
                Pipeline(reading, Dedup(), Tokenize(tokenizer), Shard(ArrowTokens())), Path(folder) / "out"
            )
        kept_mb = sum(entry["bytes"] for entry in content["funnel"]["kept"].values()) / 1e6
        return seconds

    def alone() -> float:
        began = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(encoder.encode, batches))
        return time.perf_counter() - began

    lane()
    seconds = medians({"lane": lane, "alone": alone}, ROUNDS)
    lane_mb_s, alone_mb_s = kept_mb / seconds["lane"], corpora.size_mb(text) / seconds["alone"]
    return [
        Figure(name=f"to token shards, {engine}", value=lane_mb_s, unit="MB/s", note="of text that was tokenized"),
        Figure(name=f"{engine} alone", value=alone_mb_s, unit="MB/s", note=encoder.engine),
        Figure(name=f"to token shards / {engine} alone", value=lane_mb_s / alone_mb_s, unit="share", at_least=target),
    ]
