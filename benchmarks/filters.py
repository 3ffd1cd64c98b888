"""All four families of filters in one pass over the text, on one core."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from benchmarks import corpora
from benchmarks.harness import BenchmarkError, Figure, Report, medians
from dataeff.filters import C4Quality, FineWebQuality, GopherQuality, GopherRepetition
from dataeff.segments import Segments

ROUNDS = 5
_BATCH_BYTES = 4 << 20


def run() -> Report:
    """Median over all corpora, batches as the pipeline cuts them; batches of another size must give the same."""
    text = corpora.texts()
    size_mb = corpora.size_mb(text)
    rows = max(1, int(len(text) * _BATCH_BYTES / (size_mb * 1e6)))
    filters = (GopherRepetition(), GopherQuality(), C4Quality(), FineWebQuality())

    def signals(part: pa.Array) -> list[np.ndarray]:
        segments = Segments(part)
        return [values for rule in filters for values in rule.measure(segments).values()]

    whole, halves = signals(text.slice(0, 2 * rows)), [signals(text.slice(at * rows, rows)) for at in range(2)]
    if not all(
        np.array_equal(one, np.concatenate(two)) for one, two in zip(whole, zip(*halves, strict=True), strict=True)
    ):
        raise BenchmarkError("parity: signals depend on how the rows were cut into batches")

    def once() -> float:
        began = time.perf_counter()
        for start in range(0, len(text), rows):
            signals(text.slice(start, rows))
        return time.perf_counter() - began

    seconds = medians({"filters": once}, ROUNDS)["filters"]
    return Report(
        name="filters",
        figures=(Figure(name="four families, one pass", value=size_mb / seconds, unit="MB/s a core", at_least=80),),
        notes=(f"median of {ROUNDS} passes over {size_mb:.0f} MB, {len(whole)} signals a document",),
    )
