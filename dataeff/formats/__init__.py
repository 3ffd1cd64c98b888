"""Formats: what shards look like on disk. One format a module, found through the registry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSummary:
    """What one shard holds."""

    rows: int
    """Training rows: packed token rows, or documents where text is kept."""
    documents: int
    """Documents in it, counting each copy."""
    tokens: int
    """Tokens of documents, end-of-document tokens included; 0 where text is kept."""
    padding_tokens: int
    """Tokens that only fill the last row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardContext:
    """What a format may need to know beyond the documents."""

    name: str
    """Shard name without suffix: `web-00003`."""
    source: str | None
    """The only source in it, or None where sources are interleaved."""
    vocab_size: int
    """0 where text is kept."""
    end_of_document: int
    """-1 where text is kept."""
    fingerprint: str
    """Of the run that made the tokens, so that shards of two runs are never read as one set."""


class Format(Protocol):
    """What a module in this folder provides, as a frozen keyword-only dataclass named after its file."""

    suffix: ClassVar[str]
    """File ending: `.arrow`, `.tar`, `.parquet`."""
    grouping: ClassVar[Literal["source", "mixed", "part"]]
    """One source a shard and shuffled within it; all sources interleaved by the mixture; or corpus order."""
    content: ClassVar[Literal["tokens", "text", "either"]]
    """What a batch carries: `tokens` (large_list of uint16 or uint32), `text`, or tokens where there are any."""

    def num_shards(self, supply: int) -> int:
        """How many shards, 1 or more, hold `supply` tokens (`grouping` "source") or bytes of content ("mixed")."""

    def write(self, sink: BinaryIO, batches: Iterable[pa.RecordBatch], context: ShardContext) -> ShardSummary:
        """Write one shard, in the order given; the same batches give the same bytes, however they are cut.

        Args:
            sink: Where to write, sequentially; the caller opens, checksums, fsyncs and renames it.
            batches: Columns `doc`, `id`, `source`, then `tokens` or `text`, then the input's other columns.
            context: See `ShardContext`.
        """

    def verify(self, path: Path) -> list[str]:
        """What is wrong with a shard by its own evidence, one sentence each; empty where nothing is."""


def __getattr__(name: str) -> Any:
    from dataeff.registry import by_class_name

    found = by_class_name("formats", name) if name[:1].isupper() else None
    if found is None:
        raise AttributeError(f"module 'dataeff.formats' has no attribute {name!r}")
    return found
