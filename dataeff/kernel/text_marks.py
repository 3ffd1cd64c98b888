"""Counts of signs in whole texts: hashes, ellipses, braces, phrases, sentence ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from dataeff.arrow import I64, U8
from dataeff.kernel.unicode import SPACE, TERMINAL, tables
from dataeff.kernel.words import decode


class Marks(NamedTuple):
    """Counts of each row, shape (rows,) each."""

    hashes: I64
    """Number signs."""
    ellipses: I64
    """Three full stops, none counted twice, or U+2026."""
    newlines: I64
    braces: I64
    """Opening curly brackets."""
    lorem_ipsum: I64
    """The words "lorem ipsum", in any case."""
    sentences: I64
    """Runs of text that end with a mark of Unicode's Sentence_Terminal before white space or a closing sign, or with
    the line."""


def count_marks(data: U8, offsets: I64) -> Marks:
    """Count signs in each row.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
    """
    counts = np.zeros((6, len(offsets) - 1), np.int64)
    _count_marks(data, offsets, tables(), np.frombuffer(b"lorem ipsum", np.uint8), counts)
    return Marks(*counts)


@njit(nogil=True, cache=True)
def _count_marks(data, offsets, unicode, phrase, counts):
    for row in range(len(offsets) - 1):
        place, stop = offsets[row], offsets[row + 1]
        dots = 0
        filled = False
        ended = False
        while place < stop:
            byte = data[place]
            length = 1
            flags = 0
            if byte < 0x80:
                counts[0, row] += byte == 35
                counts[3, row] += byte == 123
                dots = dots + 1 if byte == 46 else 0
                if dots == 3:
                    counts[1, row] += 1
                    dots = 0
                if byte | 0x20 == 108 and _follows(data, place, stop, phrase):
                    counts[4, row] += 1
                if byte == 10:
                    counts[2, row] += 1
                    counts[5, row] += filled
                    filled = ended = False
                    place += 1
                    continue
                if byte == 32 or 9 <= byte <= 13:
                    flags = SPACE
                elif byte == 46 or byte == 33 or byte == 63:
                    flags = TERMINAL
                elif ended and (byte == 34 or byte == 39 or byte == 41 or byte == 93):
                    place += 1
                    continue
            else:
                dots = 0
                code, length = decode(data, place, stop)
                counts[1, row] += code == 0x2026
                flags = np.int64(unicode.flags[np.int64(unicode.block[code >> 8]) << 8 | code & 255])
                if flags & TERMINAL and code >= 0x3000:
                    counts[5, row] += filled
                    filled = ended = False
                    place += length
                    continue
            if flags & SPACE:
                if ended:
                    counts[5, row] += 1
                    filled = ended = False
            elif flags & TERMINAL:
                ended = filled
            else:
                filled = True
                ended = False
            place += length
        counts[5, row] += filled


@njit(nogil=True, cache=True)
def _follows(data, place, stop, phrase):
    """Whether an ASCII phrase in lower case stands at `place`, in any case."""
    if place + len(phrase) > stop:
        return False
    for at in range(len(phrase)):
        byte = data[place + at]
        lower = byte | 0x20 if 65 <= byte <= 90 else byte
        if lower != phrase[at]:
            return False
    return True
