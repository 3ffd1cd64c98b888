"""Document batches and shard contexts, for tests of formats."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataeff.formats import Format, ShardContext, ShardSummary

END = 256
VOCABULARY = 257


def context(**changes: Any) -> ShardContext:
    made: dict[str, Any] = {"name": "web-00000", "source": "web", "vocab_size": VOCABULARY, "end_of_document": END}
    return ShardContext(**{**made, "fingerprint": "0123456789abcdef" * 2, **changes})


def text_batch(texts: Sequence[str], first: int = 0, **columns: Any) -> pa.RecordBatch:
    """Documents of text, numbered from `first`; `columns` come behind."""
    return _batch(len(texts), first, {"text": pa.array(texts, pa.large_string()), **columns})


def token_batch(documents: Sequence[Sequence[int]], first: int = 0, **columns: Any) -> pa.RecordBatch:
    """Documents of tokens, numbered from `first`; `columns` come behind."""
    offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
    values = np.array([token for tokens in documents for token in tokens], np.uint32)
    tokens = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))
    return _batch(len(documents), first, {"tokens": tokens, **columns})


def _batch(rows: int, first: int, columns: dict[str, Any]) -> pa.RecordBatch:
    made = {
        "doc": pa.array(range(first, first + rows), pa.uint64()),
        "id": pa.array([f"id-{number}" for number in range(first, first + rows)], pa.string()),
        "source": pa.array(["web"] * rows, pa.string()),
    }
    return pa.RecordBatch.from_pydict({**made, **columns})


def cut(batch: pa.RecordBatch, places: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """The batch in slices, cut at `places`; places that repeat give empty slices."""
    edges = [0, *sorted(place % (batch.num_rows + 1) for place in places), batch.num_rows]
    for start, stop in itertools.pairwise(edges):
        yield batch.slice(start, stop - start)


def written(form: Format, batches: Iterable[pa.RecordBatch], **changes: Any) -> tuple[bytes, ShardSummary]:
    sink = io.BytesIO()
    summary = form.write(sink, batches, context(**changes))
    return sink.getvalue(), summary


def problems(form: Format, data: bytes, folder: Path) -> list[str]:
    """What the format's `verify` says of a file with these bytes."""
    path = folder / f"shard{form.suffix}"
    path.write_bytes(data)
    return form.verify(path)
