"""What readers take and give: input files, slices of them, rows, and what could not be read."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from dataeff.arrow import I64

MAX_ROW_BYTES = 1 << 30
"""A row of more bytes is rejected (`too_long`) without being held in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file to read, as it was when the run was planned."""

    url: str
    """fsspec URL or absolute local path."""
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
