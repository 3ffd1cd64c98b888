"""Drive a tokenizer over a batch in bounded memory: strings exist a piece of the batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from dataeff.arrow import I64, U8, U32, text_views
from dataeff.cuts import CUT_BYTES, cuts
from dataeff.errors import InputError

EncodeStrings: TypeAlias = Callable[[list[str]], tuple[U32, I64]]
"""Strings to the ids of all of them, shape (ids,), and the number of ids of each, shape (strings,)."""
BATCH_BYTES = 1 << 20
BATCH_STRINGS = 1 << 13


def encode_rows(text: pa.Array, encode: EncodeStrings, *, end_of_document: int, cut: bool) -> tuple[U32, I64]:
    """Ids of every row, each closed by `end_of_document`.

    Args:
        text: large_string without nulls.
        encode: Tokenizes some strings.
        end_of_document: Id to append to each row.
        cut: Cut documents above `CUT_BYTES`, where it is proved that the tokenizer gives the same ids.

    Returns:
        `(ids, offsets)`, the offsets of shape (rows + 1,).

    Raises:
        InputError: A row is not UTF-8, or holds text that the tokenizer turns into `end_of_document`.
    """
    data, offsets = text_views(text)
    bounds, first_piece = _bounds(data, offsets, cut)
    found = [np.zeros(0, np.uint32)]
    counts = np.zeros(len(bounds), np.int64)
    for start, stop in _batches(bounds):
        ids, counts[start + 1 : stop + 1] = encode(_strings(data, bounds, start, stop))
        found.append(ids)
    ids = np.concatenate(found)
    ends = np.cumsum(counts)[first_piece]
    hits = np.flatnonzero(ids == end_of_document)
    if len(hits):
        row = int(np.searchsorted(ends, hits[0], "right")) - 1
        raise InputError(
            f"row {row} of a batch holds text that the tokenizer turns into its end-of-document id "
            f"{end_of_document}: name another `end_of_document`, one that its vocabulary does not have"
        )
    return close_rows(ids, ends, end_of_document)


def close_rows(ids: U32, ends: I64, end_of_document: int) -> tuple[U32, I64]:
    """Put `end_of_document` after each row.

    Args:
        ids: Ids of all rows.
        ends: Row boundaries into `ids`, shape (rows + 1,), starting at 0.
        end_of_document: Id to put.

    Returns:
        `(ids, offsets)`, one id a row longer.
    """
    return np.insert(ids, ends[1:], np.uint32(end_of_document)), ends + np.arange(len(ends))


def pieces_of(string: str) -> Iterator[str]:
    """A string cut as `encode_rows` cuts a row."""
    if len(string) * 4 <= CUT_BYTES:
        yield string
        return
    data = np.frombuffer(string.encode(), np.uint8)
    bounds, _ = _bounds(data, np.asarray([0, len(data)], np.int64), True)
    for piece in range(len(bounds) - 1):
        yield from _strings(data, bounds, piece, piece + 1)


def _bounds(data: U8, offsets: I64, cut: bool) -> tuple[I64, I64]:
    """Piece boundaries into `data`, and the number of the first piece of each row, with an end."""
    big = np.flatnonzero(np.diff(offsets) > CUT_BYTES) if cut else np.zeros(0, np.int64)
    num_pieces = np.ones(len(offsets) - 1, np.int64)
    inner = []
    for row in big:
        places = cuts(data[offsets[row] : offsets[row + 1]])
        num_pieces[row] += len(places)
        inner.append(offsets[row] + places)
    first_piece = np.concatenate([np.zeros(1, np.int64), np.cumsum(num_pieces)])
    return np.sort(np.concatenate([offsets, *inner])), first_piece


def _batches(bounds: I64) -> Iterator[tuple[int, int]]:
    """Ranges of pieces of about `BATCH_BYTES`, one piece at least."""
    start, pieces = 0, len(bounds) - 1
    while start < pieces:
        fits = int(np.searchsorted(bounds, bounds[start] + BATCH_BYTES, "right")) - 1
        stop = min(pieces, start + BATCH_STRINGS, max(start + 1, fits))
        yield start, stop
        start = stop


def _strings(data: U8, bounds: I64, start: int, stop: int) -> list[str]:
    array = pa.Array.from_buffers(
        pa.large_string(), stop - start, [None, pa.py_buffer(bounds[start : stop + 1]), pa.py_buffer(data)]
    )
    try:
        strings: list[str] = array.to_pylist()
    except UnicodeDecodeError as error:
        raise InputError(
            f"a document is not valid UTF-8 ({error.reason}): read it through `Read`, which rejects such rows"
        ) from error
    return strings
