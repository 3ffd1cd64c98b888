"""How much of a text repeats: equal lines or paragraphs, and n-grams of words."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from dataeff.arrow import F64, I64, U64

I32: TypeAlias = npt.NDArray[np.int32]
_STEP = np.uint64(0xC6A4A7935BD1E995)
_MIX = np.uint64(0xFF51AFD7ED558CCD)


def repeated(hashes: U64, chars: I32, counted: npt.NDArray[np.bool_], rows: I64) -> tuple[I64, I64]:
    """Elements of each row that equal an earlier one of the row, and their characters.

    Args:
        hashes: Of all elements, in order.
        chars: Code points of each.
        counted: Elements to look at; the others are passed over.
        rows: Row boundaries into the elements, shape (rows + 1,).

    Returns:
        Their number and the sum of their characters, shape (rows,) each.
    """
    numbers, sums = np.zeros(len(rows) - 1, np.int64), np.zeros(len(rows) - 1, np.int64)
    _repeated(hashes, chars, counted, rows, numbers, sums)
    return numbers, sums


def ngrams(hashes: U64, chars: I32, rows: I64, top: tuple[int, int], duplicate: tuple[int, int]) -> tuple[F64, F64]:
    """Characters in the most frequent n-gram, and in repeated ones, of each row.

    Args:
        hashes: Of all words, in order.
        chars: Code points of each.
        rows: Row boundaries into the words, shape (rows + 1,).
        top: First and last n for which the most frequent n-gram is wanted, first at least 2.
        duplicate: First and last n for which repeated n-grams are wanted, first above `top`'s last.

    Returns:
        For each row and n of `top`: characters of the most frequent n-gram, words joined by one space, times its
        count; of equally frequent ones the first (shape (rows, ns)). For each row and n of `duplicate`: characters,
        words joined by nothing, of n-grams that equal an earlier one, none overlapping (shape (rows, ns)). 0 where
        a row has fewer than n words.
    """
    most = int(np.diff(rows).max(initial=0))
    size = 1 << max(4, int(2 * most).bit_length())
    tops = np.zeros((len(rows) - 1, top[1] - top[0] + 1))
    duplicates = np.zeros((len(rows) - 1, duplicate[1] - duplicate[0] + 1))
    _ngrams(hashes, chars, rows, top[0], top[1], duplicate[0], duplicate[1], size, tops, duplicates)
    return tops, duplicates


@njit(nogil=True, cache=True)
def _repeated(hashes, chars, counted, rows, numbers, sums):
    most = 1
    for row in range(len(rows) - 1):
        most = max(most, rows[row + 1] - rows[row])
    size = 16
    while size < 2 * most:
        size *= 2
    keys = np.empty(size, np.uint64)
    stamps = np.full(size, -1, np.int64)
    for row in range(len(rows) - 1):
        mask = _mask(rows[row + 1] - rows[row], size)
        for at in range(rows[row], rows[row + 1]):
            if counted[at]:
                slot, found = _find(hashes[at], keys, stamps, row, mask)
                if found:
                    numbers[row] += 1
                    sums[row] += chars[at]
                else:
                    keys[slot], stamps[slot] = hashes[at], row


@njit(nogil=True, cache=True, inline="always")
def _mask(count, size):
    """Of a table twice as large as `count`, so that short rows stay in cache."""
    small = 16
    while small < 2 * count:
        small *= 2
    return np.uint64(min(small, size) - 1)


@njit(nogil=True, cache=True, inline="always")
def _find(key, keys, stamps, stamp, mask):
    """Where `key` stands, or the free slot for it. A slot of another stamp is free: nothing is ever cleared."""
    slot = np.int64((key ^ key >> np.uint64(31)) & mask)
    while stamps[slot] == stamp:
        if keys[slot] == key:
            return slot, True
        slot = np.int64(np.uint64(slot + 1) & mask)
    return slot, False


@njit(nogil=True, cache=True)
def _ngrams(hashes, chars, rows, top_low, top_high, low, high, size, tops, duplicates):
    keys = np.empty(size, np.uint64)
    stamps = np.full(size, -1, np.int64)
    counts = np.empty(size, np.int32)
    grams = np.empty(size, np.uint64)
    places = np.empty(size, np.int64)
    slots = np.empty(size, np.int64)
    stamp = 0
    for row in range(len(rows) - 1):
        start, num = rows[row], rows[row + 1] - rows[row]
        alive = num
        for at in range(num):
            grams[at] = hashes[start + at]
            places[at] = at
        for n in range(2, high + 1):
            alive = _lengthen(hashes, start, num, n, grams, places, alive)
            if n < top_low:
                continue
            if n <= top_high and num >= n:
                tops[row, n - top_low] = _joined(chars, start, n, 1)
            if alive == 0:
                continue
            stamp += 1
            _count(grams, alive, keys, stamps, counts, slots, stamp, _mask(alive, size))
            if n <= top_high:
                best = 1
                for at in range(alive):
                    if counts[slots[at]] > best:
                        best = counts[slots[at]]
                        tops[row, n - top_low] = best * _joined(chars, start + places[at], n, 1)
            alive = _keep_repeated(grams, places, alive, counts, slots)
            if n >= low:
                stamp += 1
                free = 0
                mask = _mask(alive, size)
                for at in range(alive):
                    if places[at] >= free:
                        slot, found = _find(_mixed(grams[at]), keys, stamps, stamp, mask)
                        if found:
                            duplicates[row, n - low] += _joined(chars, start + places[at], n, 0)
                            free = places[at] + n
                        else:
                            keys[slot], stamps[slot] = _mixed(grams[at]), stamp


@njit(nogil=True, cache=True, inline="always")
def _mixed(gram):
    gram = (gram ^ gram >> np.uint64(32)) * _MIX
    return gram ^ gram >> np.uint64(29)


@njit(nogil=True, cache=True)
def _lengthen(hashes, start, num, n, grams, places, alive):
    """Make n-grams of the (n - 1)-grams that are left, where a word follows; returns how many."""
    kept = 0
    for at in range(alive):
        place = places[at]
        if place + n <= num:
            grams[kept] = grams[at] * _STEP + hashes[start + place + n - 1]
            places[kept] = place
            kept += 1
    return kept


@njit(nogil=True, cache=True)
def _count(grams, alive, keys, stamps, counts, slots, stamp, mask):
    for at in range(alive):
        key = _mixed(grams[at])
        slot, found = _find(key, keys, stamps, stamp, mask)
        if found:
            counts[slot] += 1
        else:
            keys[slot], stamps[slot], counts[slot] = key, stamp, 1
        slots[at] = slot


@njit(nogil=True, cache=True)
def _keep_repeated(grams, places, alive, counts, slots):
    """Only an n-gram that repeats can begin a longer one that does."""
    kept = 0
    for at in range(alive):
        if counts[slots[at]] > 1:
            grams[kept], places[kept] = grams[at], places[at]
            kept += 1
    return kept


@njit(nogil=True, cache=True)
def _joined(chars, first, n, gap):
    total = gap * (n - 1)
    for at in range(first, first + n):
        total += chars[at]
    return total
