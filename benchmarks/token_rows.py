"""Rows of random tokens, as a file and as token shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataeff.formats import ShardContext
from dataeff.formats.arrow_tokens import ArrowTokens

VOCABULARY = 50_257
SHARD_ROWS = 4_000


def random_rows(rows: int, length: int, seed: int = 0) -> npt.NDArray[np.uint16]:
    """Shape (rows, length)."""
    return np.random.default_rng(seed).integers(0, VOCABULARY - 1, (rows, length), dtype=np.uint16)


def write_shards(folder: Path, rows: npt.NDArray[np.uint16]) -> None:
    """Token shards of one source; every row is a document."""
    folder.mkdir(parents=True)
    length = rows.shape[1]
    for number, start in enumerate(range(0, len(rows), SHARD_ROWS)):
        part = np.ascontiguousarray(rows[start : start + SHARD_ROWS])
        name = f"web-{number:05d}"
        tokens = pa.LargeListArray.from_arrays(pa.array(np.arange(len(part) + 1) * length), pa.array(part.reshape(-1)))
        batch = pa.RecordBatch.from_pydict(
            {
                "doc": pa.array(range(start, start + len(part)), pa.uint64()),
                "id": pa.array([str(row) for row in range(start, start + len(part))]),
                "source": pa.array(["web"] * len(part)),
                "tokens": tokens,
            }
        )
        context = ShardContext(
            name=name, source="web", vocab_size=VOCABULARY, end_of_document=VOCABULARY - 1, fingerprint="random rows"
        )
        with (folder / f"{name}.arrow").open("wb") as sink:
            ArrowTokens(sequence_length=length, shard_tokens=SHARD_ROWS * length).write(sink, [batch], context)
