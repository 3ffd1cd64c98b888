"""Line ends: CRLF and lone CR become LF."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dataeff.arrow import I64, U8
from dataeff.kernel.compiled import compiled
from dataeff.kernel.memory import load_u64


def normalise_newlines(data: U8, offsets: I64) -> tuple[U8, I64, npt.NDArray[np.bool_]]:
    """Rows with every CRLF and every lone CR as LF.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).

    Returns:
        `(data, offsets, changed)`: the given arrays themselves where there is no CR at all; and which rows had one,
        shape (rows,).
    """
    changed = np.zeros(len(offsets) - 1, np.bool_)
    if not _has_carriage_return(data, offsets[0], offsets[-1]):
        return data, offsets, changed
    out = np.empty(offsets[-1] - offsets[0], np.uint8)
    bounds = np.zeros(len(offsets), np.int64)
    end = _rewrite(data, offsets, out, bounds, changed)
    return out[:end], bounds, changed


@compiled
def _has_carriage_return(data, start, stop):
    found = np.uint64(0)
    while start + 8 <= stop:
        word = load_u64(data, start) ^ np.uint64(0x0D0D0D0D0D0D0D0D)
        found |= (word - np.uint64(0x0101010101010101)) & ~word & np.uint64(0x8080808080808080)
        start += 8
    for place in range(start, stop):
        if data[place] == 13:
            return True
    return found != 0


@compiled
def _rewrite(data, offsets, out, bounds, changed):
    at = 0
    for row in range(len(changed)):
        for place in range(offsets[row], offsets[row + 1]):
            byte = data[place]
            if byte == 13:
                changed[row] = True
                if place + 1 < offsets[row + 1] and data[place + 1] == 10:
                    continue
                byte = np.uint8(10)
            out[at] = byte
            at += 1
        bounds[row + 1] = at
    return at
