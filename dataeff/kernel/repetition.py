"""How much of a text is n-grams of words that repeat, by the definitions of datatrove 0.10.1."""

from __future__ import annotations

import numpy as np
from numba import njit

from dataeff.arrow import F64
from dataeff.kernel.memory import load_u64
from dataeff.kernel.segment import Words, finished, hash_bytes, mixed

_PREFIX = 16
"""Bytes by which it is told where a long n-gram can repeat at all."""
_FIRST_BITS = 12
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def top_ngrams(words: Words, longest: int) -> F64:
    """Characters in the most frequent n-gram of each row, for n = 2 to `longest`.

    An n-gram is n words joined by one space; its characters count as often as it occurs, even once; of equally
    frequent ones the first counts.

    Returns:
        Shape (rows, longest - 1); 0 where a row has fewer than n words.
    """
    found = np.zeros((len(words.rows) - 1, longest - 1))
    _top_ngrams(words.rows, words.hashes, words.chars, longest, found)
    return found


def duplicate_ngrams(words: Words, shortest: int, longest: int) -> F64:
    """Characters in repeated n-grams of each row, for n = `shortest` to `longest`.

    An n-gram is n words joined by nothing. From left to right, one that equals an earlier one counts, and the next
    that is looked at begins after it; only n-grams that were looked at are remembered.

    Returns:
        Shape (rows, longest - shortest + 1); 0 where a row has fewer than n words.
    """
    found = np.zeros((len(words.rows) - 1, longest - shortest + 1))
    _duplicate_ngrams(words.rows, words.text, words.starts, words.chars, shortest, longest, found)
    return found


@njit(nogil=True, cache=True)
def _new_table(bits):
    """Keys, and for each when it was put there (below the current base: the slot is free) and how often it was met."""
    return np.empty(1 << bits, np.uint64), np.full(1 << bits, -1, np.int64), np.empty(1 << bits, np.int32)


@njit(nogil=True, cache=True, inline="always")
def _bits(count):
    bits = 4
    while 1 << bits < 2 * count:
        bits += 1
    return bits


@njit(nogil=True, cache=True, inline="always")
def _slot(key, keys, marks, base, bits):
    """Where `key` is among the first 2**bits slots, or the free slot for it."""
    last = (1 << bits) - 1
    slot = np.int64(key >> np.uint64(64 - bits))
    while marks[slot] >= base and keys[slot] != key:
        slot = (slot + 1) & last
    return slot


@njit(nogil=True, cache=True)
def _top_ngrams(rows, hashes, chars, longest, found):
    most = 1
    for row in range(len(found)):
        most = max(most, rows[row + 1] - rows[row])
    places, again = np.empty(most, np.int32), np.zeros(most, np.uint8)
    bits = _FIRST_BITS
    keys, marks, counts = _new_table(bits)
    base = np.int64(0)
    for row in range(len(found)):
        first, num = rows[row], rows[row + 1] - rows[row]
        alive = num
        for at in range(num):
            places[at] = at
        for n in range(2, longest + 1):
            while alive > 0 and places[alive - 1] + n > num:
                alive -= 1
            if num < n:
                break
            count, best = 1, 0
            if alive > 0:
                while True:
                    mine = min(bits, _bits(alive))
                    count, best = _count(hashes, first, n, places, alive, again, keys, marks, counts, base, mine)
                    base += alive
                    if count > 0:
                        break
                    bits += 2
                    keys, marks, counts = _new_table(bits)
                    again[:alive] = 0
                best = np.int64(places[best]) if count > 1 else 0
            gram = np.int64(chars[first + best + n]) - chars[first + best] + n - 1
            found[row, n - 2] = count * gram
            alive = _keep(places, again, alive)


@njit(nogil=True, cache=True)
def _count(hashes, first, n, places, alive, again, keys, marks, counts, base, bits):
    """Count the n-grams that begin at some places, and note in `again` which of them occur more than once.

    Returns:
        Count of the most frequent and which of the places has its first copy; a count of 0 where the table is full.
    """
    room = 1 << (bits - 1)
    filled = 0
    most, best = 1, np.int64(0)
    for at in range(alive):
        place = first + np.int64(places[at])
        key = hashes[place]
        for ahead in range(1, n):
            key = (key ^ key >> np.uint64(29)) * _MULTIPLIER + hashes[place + ahead]
        key = (key ^ key >> np.uint64(32)) * _MULTIPLIER
        slot = _slot(key, keys, marks, base, bits)
        if marks[slot] < base:
            filled += 1
            if filled > room:
                return 0, best
            keys[slot], marks[slot], counts[slot] = key, base + at, 1
        else:
            count = counts[slot] + 1
            counts[slot] = count
            copy = marks[slot] - base
            again[copy] = again[at] = 1
            if count > most or (count == most and copy < best):
                most, best = count, copy
    return most, best


@njit(nogil=True, cache=True, inline="always")
def _keep(places, again, alive):
    """Keep the places of n-grams that occur again, for only there can a longer one do so; returns how many."""
    kept = 0
    for at in range(alive):
        places[kept] = places[at]
        kept += np.int64(again[at])
        again[at] = 0
    return kept


@njit(nogil=True, cache=True)
def _duplicate_ngrams(rows, text, starts, chars, shortest, longest, found):
    most = 1
    for row in range(len(found)):
        most = max(most, rows[row + 1] - rows[row])
    places, again = np.empty(most, np.int32), np.zeros(most, np.uint8)
    bits = _FIRST_BITS
    keys, marks, _ = _new_table(bits)
    base = np.int64(0)
    for row in range(len(found)):
        first, num = rows[row], rows[row + 1] - rows[row]
        if num <= shortest:
            continue
        while not _see_prefixes(text, starts, first, num, shortest, again, keys, marks, base, min(bits, _bits(num))):
            base += num
            bits += 2
            keys, marks, _ = _new_table(bits)
            again[:num] = 0
        base += num
        for at in range(num):
            places[at] = at
        alive = _keep(places, again, num)
        for n in range(shortest, min(longest, num) + 1):
            while True:
                total = _repeated(text, starts, chars, first, num, n, places, alive, keys, marks, base, bits)
                base += num
                if total >= 0:
                    break
                bits += 2
                keys, marks, _ = _new_table(bits)
            found[row, n - shortest] = total


@njit(nogil=True, cache=True)
def _see_prefixes(text, starts, first, num, shortest, again, keys, marks, base, bits):
    """Note in `again` where an n-gram can repeat: where its first bytes do, or where it may be shorter than those.

    Words are joined by nothing, so equal n-grams may have other words; but they have equal first bytes.

    Returns:
        False where the table is full.
    """
    room = 1 << (bits - 1)
    filled = 0
    end = np.int64(starts[first + num])
    for at in range(num):
        start = np.int64(starts[first + at])
        if at + shortest > num:
            break
        if starts[first + at + shortest] - start < _PREFIX:
            again[at] = 1
        if end - start < _PREFIX:
            continue
        key = finished(mixed(mixed(np.uint64(0), load_u64(text, start)), load_u64(text, start + 8)))
        slot = _slot(key, keys, marks, base, bits)
        if marks[slot] < base:
            filled += 1
            if filled > room:
                return False
            keys[slot], marks[slot] = key, base + at
        else:
            again[at] = again[marks[slot] - base] = 1
    return True


@njit(nogil=True, cache=True)
def _repeated(text, starts, chars, first, num, n, places, alive, keys, marks, base, bits):
    """Characters in repeated n-grams, or -1 where the table is full."""
    bits = min(bits, _bits(alive))
    room = 1 << (bits - 1)
    total = np.int64(0)
    free = np.int64(0)
    for at in range(alive):
        place = np.int64(places[at])
        if place + n > num:
            break
        if place >= free:
            key = hash_bytes(text, np.int64(starts[first + place]), np.int64(starts[first + place + n]))
            slot = _slot(key, keys, marks, base, bits)
            if marks[slot] < base:
                room -= 1
                if room < 0:
                    return np.int64(-1)
                keys[slot], marks[slot] = key, base + at
            else:
                total += chars[first + place + n] - chars[first + place]
                free = place + n
    return total
