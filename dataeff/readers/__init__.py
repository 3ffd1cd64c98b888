"""Readers: files to rows of raw columns. One file format a module, found through the registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

import pyarrow as pa

from dataeff.arrow import I64


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file to read, as it was when the run was planned."""

    url: str
    """fsspec URL or local path."""
    num_bytes: int
    version: str
    """Modification time or etag: a change of it makes the parts that hold the file stale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A piece of one file that one part reads: bytes, row groups, batches or members, as the reader counts."""

    file: InputFile
    start: int
    stop: int
    num_bytes: int
    """Estimated bytes of decoded content, by which parts are cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A row or a file that could not be read."""

    url: str
    position: int
    """Line or row counted from 0, or byte offset, as the reader counts; -1 for the file as a whole."""
    reason: str
    """A short snake_case reason, counted by reason: `broken_json`, `invalid_utf8`, `truncated_file`, ..."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some rows of a slice: raw input columns, and what could not be read."""

    batch: pa.RecordBatch
    positions: I64
    """Place of each row in its file, shape (rows,): names the row where the input has no id."""
    rejects: tuple[Reject, ...] = ()


class Reader(Protocol):
    """What a module in this folder provides, as a frozen dataclass named after its file."""

    suffixes: ClassVar[tuple[str, ...]]
    """File endings that pick this reader, such as `.jsonl`, `.jsonl.zst`."""

    def split(self, file: InputFile, target_bytes: int) -> list[Slice]:
        """Cut a file into slices of about `target_bytes` of content, in order; one where it cannot be cut.

        Raises:
            InputError: The file cannot be opened as this format at all.
        """

    def schema(self, file: InputFile) -> pa.Schema:
        """Columns of the file, with types; read from its footer or its first megabyte."""

    def read(self, piece: Slice, schema: pa.Schema, batch_bytes: int) -> Iterator[Rows]:
        """Rows of the slice in order, at most about `batch_bytes` of content each.

        Only columns of `schema` (unified over all input files by the caller) are returned, cast to its types; a
        row that does not fit is a reject. Memory stays bounded by `batch_bytes` and the largest row.
        A file that ends early gives all whole rows before the damage, then one reject `truncated_file`.
        """
