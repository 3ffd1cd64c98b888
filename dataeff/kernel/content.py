"""A 128-bit hash of a text's content, for exact deduplication.

The content is the NFC text with every run of white space (as `str.split()` sees it) as one space and none at the
ends; case and punctuation count. So it is a sequence of words, and nothing has to be copied: two independent 64-bit
hashes are taken of the words where they stand, eight bytes at a time. They are not made to withstand an adversary.
"""

from __future__ import annotations

import numpy as np

from dataeff.arrow import I64, U8, U64
from dataeff.kernel.compiled import compiled, inlined
from dataeff.kernel.memory import trailing_zeros
from dataeff.kernel.segment import filled, first_bytes, load

_LOW = np.uint64(0xD6E8FEB86659FD93)
_HIGH = np.uint64(0xFF51AFD7ED558CCD)
_LENGTH = np.uint64(0x9E3779B97F4A7C15)


def content_hashes(data: U8, offsets: I64) -> U64:
    """Hash the content of each row.

    Args:
        data: UTF-8 bytes of all rows, in NFC (see `words.normal_form`).
        offsets: Row boundaries into `data`, shape (rows + 1,).

    Returns:
        Shape (rows, 2); (0, 0) for a row of nothing but white space.
    """
    out = np.zeros((len(offsets) - 1, 2), np.uint64)
    _content_hashes(data, offsets, out)
    return out


@compiled
def _content_hashes(data, offsets, out):
    for row in range(len(out)):
        place, stop = offsets[row], offsets[row + 1]
        low, high = np.uint64(0), np.uint64(0)
        begun, spill = -1, 0
        before = np.uint64(0)
        while place < stop:
            here, spill = filled(data, place, stop, spill)
            after = here << np.uint64(1) | before
            starts, ends = here & ~after, after & ~here
            before = here >> np.uint64(63)
            if begun >= 0 and ends:
                end = place + np.int64(trailing_zeros(ends))
                ends &= ends - np.uint64(1)
                low, high = _with_word(data, begun, end - begun, low, high)
                begun = -1
            while ends:
                start, end = np.int64(trailing_zeros(starts)), np.int64(trailing_zeros(ends))
                starts &= starts - np.uint64(1)
                ends &= ends - np.uint64(1)
                low, high = _with_word(data, place + start, end - start, low, high)
            if starts:
                begun = place + np.int64(trailing_zeros(starts))
            place += 64
        if begun >= 0:
            low, high = _with_word(data, begun, stop - begun, low, high)
        out[row, 0], out[row, 1] = low ^ low >> np.uint64(31), high ^ high >> np.uint64(33)


@inlined
def _with_word(data, begun, length, low, high):
    """Both hashes after one word more; its length tells it from one with other zeros at the end."""
    tag = np.uint64(length) * _LENGTH
    while length > 8:
        low, high = _mixed(low, high, load(data, begun))
        begun += 8
        length -= 8
    return _mixed(low, high, first_bytes(load(data, begun), length) ^ tag)


@inlined
def _mixed(low, high, value):
    low = (low ^ value) * _LOW
    high = (high ^ value) * _HIGH
    return low ^ low >> np.uint64(32), high ^ high >> np.uint64(29)
