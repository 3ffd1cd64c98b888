"""A 128-bit hash of a text's content, for exact deduplication.

The content is the NFC text with every run of white space (as `str.split()` sees it) as one space and none at the
ends; case and punctuation count. Two independent 64-bit hashes are taken of it, eight bytes at a time. They are not
made to withstand an adversary.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dataeff.arrow import I64, U8, U64
from dataeff.kernel.memory import load_u64, store_u64
from dataeff.kernel.unicode import SPACE
from dataeff.kernel.words import PADDING, decode, tables_for

_HIGH = np.uint64(0x8080808080808080)


def content_hashes(data: U8, offsets: I64) -> U64:
    """Hash the content of each row.

    Args:
        data: UTF-8 bytes of all rows, in NFC (see `words.normal_form`).
        offsets: Row boundaries into `data`, shape (rows + 1,).

    Returns:
        Shape (rows, 2); (0, 0) for a row of nothing but white space.
    """
    unicode = tables_for(data, offsets)
    out = np.zeros((len(offsets) - 1, 2), np.uint64)
    content = np.empty(int(np.diff(offsets).max(initial=0)) + PADDING, np.uint8)
    _content_hashes(data, offsets, unicode, content, out)
    return out


@njit(nogil=True, cache=True)
def _content_hashes(data, offsets, unicode, content, out):
    for row in range(len(out)):
        end = _without_runs(data, offsets[row], offsets[row + 1], unicode, content)
        if end:
            out[row, 0], out[row, 1] = _hash(content, end)


@njit(nogil=True, cache=True)
def _without_runs(data, start, stop, unicode, out):
    """Copy a row with white space runs as one space; returns where it ends, eight zeros after it."""
    at = 0
    gap = False
    place = start
    while place < stop:
        if place + 8 <= stop:
            word = load_u64(data, place)
            spaces = _ascii_spaces(word)
            if word & _HIGH == 0 and spaces & (spaces << np.uint64(8) | np.uint64(0x80)) == 0:
                if gap:
                    out[at] = 32
                    at += 1
                whole = spaces | spaces - (spaces >> np.uint64(7))
                store_u64(out, at, word & ~whole | whole & np.uint64(0x2020202020202020))
                gap = spaces >> np.uint64(63) != 0
                at += 7 if gap else 8
                place += 8
                continue
        byte = data[place]
        if byte < 0x80:
            length = 1
            space = byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31
        else:
            code, length = decode(data, place, stop)
            space = unicode.flags[np.int64(unicode.block[code >> 8]) << 8 | code & 255] & SPACE != 0
        if space:
            gap = at > 0
        else:
            if gap:
                out[at] = 32
                at += 1
                gap = False
            for ahead in range(length):
                out[at + ahead] = data[place + ahead]
            at += length
        place += length
    out[at : at + 8] = 0
    return at


@njit(nogil=True, cache=True, inline="always")
def _ascii_spaces(word):
    """The high bit of each of eight ASCII bytes that is white space: 9 to 13, 28 to 32."""
    tabs = (word + np.uint64(0x7777777777777777)) & ~(word + np.uint64(0x7272727272727272))
    blanks = (word + np.uint64(0x6464646464646464)) & ~(word + np.uint64(0x5F5F5F5F5F5F5F5F))
    return (tabs | blanks) & _HIGH


@njit(nogil=True, cache=True)
def _hash(content, end):
    low = np.uint64(end) * np.uint64(0x9E3779B97F4A7C15)
    high = np.uint64(end) * np.uint64(0xC2B2AE3D27D4EB4F)
    for place in range(0, end, 8):
        word = load_u64(content, place)
        low = (low ^ word) * np.uint64(0xD6E8FEB86659FD93)
        low ^= low >> np.uint64(32)
        high = (high ^ word) * np.uint64(0xFF51AFD7ED558CCD)
        high ^= high >> np.uint64(29)
    low *= np.uint64(0xC4CEB9FE1A85EC53)
    high *= np.uint64(0xC6A4A7935BD1E995)
    return low ^ low >> np.uint64(31), high ^ high >> np.uint64(33)
