"""Counts of signs and phrases in whole texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from dataeff.arrow import I64, U8

_BLOCK = 128
"""Bytes that are looked at together; their counts fit in a byte."""
_PHRASE = np.frombuffer(b"lorem ipsum", np.uint8)
_PHRASE_M = 4
"""Where the letter stands in it that, with what follows, it is looked for by."""


class Marks(NamedTuple):
    """Counts of each row, shape (rows,) each."""

    hashes: I64
    """Number signs."""
    ellipses: I64
    """Three full stops, none counted twice, and U+2026."""
    brackets: I64
    """Opening curly brackets."""
    lorem_ipsum: I64
    """The words "lorem ipsum", in any case."""


def count_marks(data: U8, offsets: I64) -> Marks:
    """Count signs in each row.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
    """
    counts = np.zeros((4, len(offsets) - 1), np.int64)
    _count_marks(data, offsets, _PHRASE, counts)
    return Marks(*counts)


@njit(nogil=True, cache=True)
def _count_marks(data, offsets, phrase, counts):
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        hashes = brackets = ellipses = phrases = 0
        run = 0
        for place in range(start, stop, _BLOCK):
            end = min(place + _BLOCK, stop)
            near = True
            if end - place == _BLOCK and end + 2 <= len(data):
                more_hashes, more_brackets, near = _look_at_block(data[place : end + 2])
                hashes += more_hashes
                brackets += more_brackets
            else:
                for at in range(place, end):
                    hashes += data[at] == 35
                    brackets += data[at] == 123
            if not near and run == 0:
                continue
            for at in range(place, end):
                byte = data[at]
                run = run + 1 if byte == 46 else 0
                ellipses += run == 3
                run %= 3
                if byte == 0xE2 and at + 2 < stop:
                    ellipses += data[at + 1] == 0x80 and data[at + 2] == 0xA6
                elif byte | 0x20 == 109:
                    phrases += _stands(data, at - _PHRASE_M, start, stop, phrase)
        counts[0, row], counts[1, row], counts[2, row], counts[3, row] = hashes, ellipses, brackets, phrases


@njit(nogil=True, cache=True, inline="always")
def _look_at_block(block):
    """Number signs and brackets in a block, and whether an ellipsis or the phrase may begin in it.

    Written for the compiler to take many bytes at once: nothing but bytes, and no branch.

    Args:
        block: `_BLOCK` bytes, then two more.
    """
    second, third = block[1:], block[2:]
    hashes = brackets = near = np.uint8(0)
    for at in range(_BLOCK):
        byte, next_byte, last = block[at], second[at], third[at]
        hashes = np.uint8(hashes + np.uint8(byte == np.uint8(35)))
        brackets = np.uint8(brackets + np.uint8(byte == np.uint8(123)))
        dots = np.uint8((byte == np.uint8(46)) & (next_byte == np.uint8(46)))
        sign = np.uint8((byte == np.uint8(0xE2)) & (next_byte == np.uint8(0x80)) & (last == np.uint8(0xA6)))
        m_space_i = (byte | np.uint8(32) == np.uint8(109)) & (next_byte == np.uint8(32))
        near |= dots | sign | np.uint8(m_space_i & (last | np.uint8(32) == np.uint8(105)))
    return np.int64(hashes), np.int64(brackets), near != 0


@njit(nogil=True, cache=True)
def _stands(data, place, start, stop, phrase):
    """Whether an ASCII phrase in lower case stands at `place`, in any case."""
    if place < start or place + len(phrase) > stop:
        return False
    for at in range(len(phrase)):
        byte = data[place + at]
        lower = byte | 0x20 if 65 <= byte <= 90 else byte
        if lower != phrase[at]:
            return False
    return True
