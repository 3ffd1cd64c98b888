"""Rows of tokens out of many mapped shards into one batch, and what the boundaries of their documents say."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dataeff.arrow import I64, U8, U32, U64
from dataeff.kernel.compiled import compiled
from dataeff.kernel.memory import copy_from_address, prefetch

I32: TypeAlias = npt.NDArray[np.int32]
_AHEAD = 2
"""Rows before its turn that a row is asked for."""
_AHEAD_BYTES = 512
"""Bytes of it that are asked for; the processor sees by itself that the rest follows. A fifth faster than without."""
CHECKED = 1
"""State of a block whose checksum held."""


def gather(
    shards: I64, rows: I64, begin: int, addresses: U64, first_blocks: I64, states: U8, block_bytes: int, out: U8
) -> int:
    """Copy rows from mapped shards, up to the first that touches a block that is not `CHECKED`.

    Args:
        shards, rows: The shard of each row and its place in it, shape (rows,).
        begin: How many are copied already.
        addresses: Where the token data of each shard is mapped; only read where its blocks are checked.
        first_blocks: Number of each shard's first block in `states`, shape (shards,).
        states: State of every block of all shards.
        block_bytes: Bytes of a block.
        out: Shape (rows, bytes of a row).

    Returns:
        How many rows are copied now: all, or the number of the one in whose way a block is.
    """
    return int(
        _gather(shards, rows, begin, addresses, first_blocks, states, block_bytes, out.reshape(-1), out.shape[1])
    )


def positions(
    row_offsets: I32, starts: U32, continued: U32, row: int, padding: int, position_ids: I64, documents: I64
) -> None:
    """Position of every token of a row in its document, and the number of that document in the row.

    Args:
        row_offsets: Where the documents of each row begin in `starts`, shape (rows + 1,).
        starts: Where in its row each document, or its continuation, starts, shape (pieces,).
        continued: Tokens of the row's first document that stand in earlier rows, shape (rows,).
        row: Which row.
        padding: Tokens at its end that belong to no document: their number is -1 and their position 0.
        position_ids, documents: Filled in, shape (tokens,) each.
    """
    _positions(row_offsets, starts, continued, row, padding, position_ids, documents)


@compiled
def _gather(shards, rows, begin, addresses, first_blocks, states, block_bytes, out, row_bytes):
    count = len(rows)
    for at in range(begin, count):
        shard = shards[at]
        start = rows[at] * row_bytes
        for block in range(start // block_bytes, (start + row_bytes - 1) // block_bytes + 1):
            if states[first_blocks[shard] + block] != CHECKED:
                return at
        if at + _AHEAD < count:
            # Rows lie anywhere, so the processor cannot know where the next one begins.
            following = addresses[shards[at + _AHEAD]] + np.uint64(rows[at + _AHEAD] * row_bytes)
            for line in range(0, min(row_bytes, _AHEAD_BYTES), 64):
                prefetch(following + np.uint64(line))
        copy_from_address(out, at * row_bytes, addresses[shard] + np.uint64(start), row_bytes)
    return count


@compiled
def _positions(row_offsets, starts, continued, row, padding, position_ids, documents):
    first, last = row_offsets[row], row_offsets[row + 1]
    end = len(position_ids) - padding
    for piece in range(first, last):
        start = np.int64(starts[piece])
        stop = np.int64(starts[piece + 1]) if piece + 1 < last else end
        before = np.int64(continued[row]) if piece == first else 0
        for at in range(start, stop):
            position_ids[at] = before + at - start
            documents[at] = piece - first
    position_ids[end:] = 0
    documents[end:] = -1
