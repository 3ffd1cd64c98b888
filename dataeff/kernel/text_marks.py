"""Counts of signs and phrases in whole texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from dataeff.arrow import I64, U8
from dataeff.kernel.segment import first_bytes, load

_ONES = np.uint64(0x0101010101010101)
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_HIGH = np.uint64(0x8080808080808080)
_CASE = np.uint64(0x2020202020202020)
_ENDS = np.uint64(0x8000000000000080)
_PHRASE = np.frombuffer(b"lorem ipsum", np.uint8)
_PHRASE_M = 4
"""Where the letter stands in it that, with the space behind it, it is looked for by."""


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


@njit(nogil=True, cache=True, inline="always")
def _equal(value, byte):
    """The highest bit of each of eight bytes that is `byte`."""
    other = value ^ _ONES * np.uint64(byte)
    return ~((other & _LOW7) + _LOW7 | other) & _HIGH


@njit(nogil=True, cache=True, inline="always")
def _how_many(high_bits):
    return np.int64((high_bits >> np.uint64(7)) * _ONES >> np.uint64(56))


@njit(nogil=True, cache=True)
def _count_marks(data, offsets, phrase, counts):
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        hashes = brackets = ellipses = 0
        run = 0
        place = start
        while place < stop:
            value = load(data, place)
            if stop - place < 8:
                value = first_bytes(value, stop - place)
            hashes += _how_many(_equal(value, 35))
            brackets += _how_many(_equal(value, 123))
            dots = _equal(value, 46)
            # Full stops matter that stand together, or at either end of the eight bytes.
            if dots & (dots << np.uint64(8) | _ENDS):
                for at in range(place, min(place + 8, stop)):
                    run = run + 1 if data[at] == 46 else 0
                    ellipses += run == 3
                    run %= 3
            else:
                run = 0
            if _equal(value, 0xE2):
                for at in range(place, min(place + 8, stop - 2)):
                    ellipses += data[at] == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == 0xA6
            if _equal(value | _CASE, 109) & _equal(load(data, place + 1), 32):
                for at in range(place, min(place + 8, stop)):
                    if data[at] | 0x20 == 109:
                        counts[3, row] += _stands(data, at - _PHRASE_M, start, stop, phrase)
            place += 8
        counts[0, row], counts[1, row], counts[2, row] = hashes, ellipses, brackets


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
