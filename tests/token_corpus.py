"""Corpora of token shards whose rows say which row they are, for tests of what reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dataeff.formats import ShardContext
from dataeff.formats.arrow_tokens import ArrowTokens
from dataeff.manifest import committed

VOCABULARY = 50_000
END = 49_999


def row_tokens(source: int, shard: int, row: int, length: int, end: int = END) -> list[int]:
    """Tokens of one row; no two rows have the same, whatever their place."""
    rng = np.random.default_rng([source, shard, row])
    return [source, shard, row % end, *rng.integers(0, end, length - 4).tolist(), end]


def write_corpus(
    folder: Path,
    shards: Mapping[str, Sequence[int]],
    *,
    length: int = 8,
    epochs: Mapping[str, float] | None = None,
    fingerprint: str = "0123456789abcdef" * 2,
    vocabulary: int = VOCABULARY,
) -> Path:
    """A finished corpus of token shards as `dataeff run` leaves it; each row is one document.

    Args:
        folder: Where.
        shards: Rows of each shard by source.
        length: Tokens a row.
        epochs: How often each source is to be seen; once if nothing is given.
        fingerprint: Of the run.
        vocabulary: Token ids are below it; the last one ends documents.
    """
    entries: list[dict[str, Any]] = []
    for number, (source, counts) in enumerate(sorted(shards.items())):
        for index, rows in enumerate(counts):
            name = f"{source}-{index:05d}"
            tokens = [row_tokens(number, index, row, length, vocabulary - 1) for row in range(rows)]
            context = ShardContext(
                name=name, source=source, vocab_size=vocabulary, end_of_document=vocabulary - 1, fingerprint=fingerprint
            )
            batch = pa.RecordBatch.from_pydict(
                {
                    "doc": pa.array(range(rows), pa.uint64()),
                    "id": pa.array([f"{name}-{row}" for row in range(rows)]),
                    "source": pa.array([source] * rows, pa.string()),
                    "tokens": pa.array(tokens, pa.large_list(pa.uint32())),
                }
            )
            form = ArrowTokens(sequence_length=length, shard_tokens=max(length, rows * length))
            records: dict[str, Any] = {}
            path = folder / "shards" / "arrow_tokens" / f"{name}.arrow"
            with committed(path, records) as sink:
                summary = form.write(sink, [batch], context)
            record = records[path.name]
            entries.append(
                {"file": path.name, "source": source, "rows": summary.rows, "tokens": summary.tokens}
                | {"num_bytes": record.num_bytes, "crc32c": record.crc32c}
            )
    mixture = {"sources": {name: {"epochs": (epochs or {}).get(name, 1.0)} for name in shards}}
    manifest = {"shards": {"arrow_tokens": entries}, "mixture": mixture}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def shard_paths(corpus: Path) -> list[Path]:
    """Its shards, by name."""
    return sorted((corpus / "shards" / "arrow_tokens").glob("*.arrow"))


def whole_corpus(shards: Mapping[str, Sequence[int]]) -> list[tuple[int, int]]:
    """(number of the shard among all, row) of every row."""
    counts = [rows for _, mine in sorted(shards.items()) for rows in mine]
    return [(number, row) for number, rows in enumerate(counts) for row in range(rows)]
