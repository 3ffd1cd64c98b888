"""Counts of signs and phrases in whole texts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dataeff.arrow import I64, U8
from dataeff.kernel.blocks import BLOCK, between
from dataeff.kernel.compiled import compiled, inlined
from dataeff.kernel.memory import count_ones, trailing_zeros
from dataeff.kernel.segment import first_bits

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


@compiled
def _count_marks(data, offsets, phrase, counts):
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        hashes = brackets = ellipses = phrases = 0
        last_dot, dots_in_run = start - 2, 0
        for place in range(start, stop, BLOCK):
            if place + BLOCK + 2 <= len(data):
                more_hashes, more_brackets, dots, signs, ms = _look_at_block(data, place)
            else:
                more_hashes, more_brackets, dots, signs, ms = _look_at_end(data, place, stop)
            if stop - place < BLOCK + 2:
                here = first_bits(min(stop - place, BLOCK))
                more_hashes, more_brackets, dots, ms = more_hashes & here, more_brackets & here, dots & here, ms & here
                signs &= first_bits(max(stop - place - 2, 0))
            hashes += np.int64(count_ones(more_hashes))
            brackets += np.int64(count_ones(more_brackets))
            ellipses += np.int64(count_ones(signs))
            while dots:
                at = place + np.int64(trailing_zeros(dots))
                dots &= dots - np.uint64(1)
                dots_in_run = dots_in_run % 3 + 1 if at == last_dot + 1 else 1
                ellipses += dots_in_run == 3
                last_dot = at
            while ms:
                at = place + np.int64(trailing_zeros(ms))
                ms &= ms - np.uint64(1)
                phrases += _stands(data, at - _PHRASE_M, start, stop, phrase)
        counts[0, row], counts[1, row], counts[2, row], counts[3, row] = hashes, ellipses, brackets, phrases


@inlined
def _look_at_block(data, place):
    """A bit for each of 64 bytes that is a number sign, bracket or full stop, begins U+2026, or may be the phrase's m.

    Two bytes more are looked at.
    """
    signs = (
        between(data, place, 0xE2, 0xE2) & between(data, place + 1, 0x80, 0x80) & between(data, place + 2, 0xA6, 0xA6)
    )
    ms = (between(data, place, 77, 77) | between(data, place, 109, 109)) & between(data, place + 1, 32, 32)
    ms &= between(data, place + 2, 73, 73) | between(data, place + 2, 105, 105)
    return between(data, place, 35, 35), between(data, place, 123, 123), between(data, place, 46, 46), signs, ms


@compiled
def _look_at_end(data, place, stop):
    """The same of up to 64 bytes, one by one, where two more may not be there; more m than need be."""
    hashes = brackets = dots = signs = ms = np.uint64(0)
    for at in range(place, min(place + BLOCK, stop)):
        bit = np.uint64(1) << np.uint64(at - place)
        byte = data[at]
        hashes |= bit * np.uint64(byte == 35)
        brackets |= bit * np.uint64(byte == 123)
        dots |= bit * np.uint64(byte == 46)
        signs |= bit * np.uint64(byte == 0xE2 and at + 2 < stop and data[at + 1] == 0x80 and data[at + 2] == 0xA6)
        ms |= bit * np.uint64(byte | 0x20 == 109)
    return hashes, brackets, dots, signs, ms


@compiled
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
