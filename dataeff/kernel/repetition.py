"""How much of a text is n-grams of words that repeat, by the definitions of datatrove 0.10.1."""

from __future__ import annotations

import numpy as np
from numba import njit

from dataeff.arrow import F64
from dataeff.kernel.memory import load_u64
from dataeff.kernel.segment import Words, finished, mixed

_PREFIX_A_WORD = 4
"""First bytes for each word by which it is told where a long n-gram can repeat at all; most words are longer."""
_SLOTS_A_PLACE = 4
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
    met = np.empty(_SLOTS_A_PLACE << _bits(most), np.uint8)
    bits = _FIRST_BITS
    keys, marks, counts = _new_table(bits)
    base = np.int64(0)
    for row in range(len(found)):
        first, num = rows[row], rows[row + 1] - rows[row]
        alive = _repeated_pairs(hashes, first, num, places, met)
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
def _repeated_pairs(hashes, first, num, places, met):
    """Places of pairs of words that may occur more than once; returns how many. Pairs share counters."""
    bits = _bits(num) + 2
    shift = np.uint64(64 - bits)
    met[: 1 << bits] = 0
    for at in range(first, first + num - 1):
        slot = np.int64((hashes[at] * _MULTIPLIER + hashes[at + 1]) * _MULTIPLIER >> shift)
        met[slot] = min(met[slot] + 1, 2)
    kept = 0
    for at in range(first, first + num - 1):
        places[kept] = at - first
        kept += met[np.int64((hashes[at] * _MULTIPLIER + hashes[at + 1]) * _MULTIPLIER >> shift)] > 1
    return kept


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
    places, states = np.empty(most, np.int32), np.empty(most, np.uint64)
    others, grams = np.empty(most, np.int32), np.empty(most, np.uint64)
    met = np.empty(_SLOTS_A_PLACE << _bits(most), np.uint8)
    bits = _FIRST_BITS
    keys, marks, _ = _new_table(bits)
    base = np.int64(0)
    for row in range(len(found)):
        first, num = rows[row], rows[row + 1] - rows[row]
        if num <= shortest:
            continue
        alive = num - shortest + 1
        for at in range(alive):
            places[at] = at
            states[at] = mixed(np.uint64(0), load_u64(text, np.int64(starts[first + at])))
        prefix = 8
        for n in range(shortest, min(longest, num) + 1):
            if alive == 0:
                break
            while prefix < _PREFIX_A_WORD * n:
                prefix += 8
                alive = _keep_prefixes(text, starts, first, num, n, prefix, places, states, alive, met)
            while alive > 0 and places[alive - 1] + n > num:
                alive -= 1
            chosen = _choose_repeated(text, starts, first, n, prefix, places, states, alive, met, grams, others)
            while True:
                total = _repeated(starts, chars, first, n, grams, others, chosen, keys, marks, base, bits)
                base += num
                if total >= 0:
                    break
                bits += 2
                keys, marks, _ = _new_table(bits)
            found[row, n - shortest] = total


@njit(nogil=True, cache=True)
def _keep_prefixes(text, starts, first, num, n, prefix, places, states, alive, met):
    """Keep the places where an n-gram can repeat: where its first bytes do, or where it is shorter than those.

    Words are joined by nothing, so equal n-grams may have other words; but they have equal first bytes. What is kept
    may be too much, since prefixes share counters, never too little.

    Args:
        text, starts, first, num: Words of a row.
        n: Words of the n-gram, and of any that is asked for later, or fewer.
        prefix: How many first bytes, eight more than at the last call, whose hashes are in `states`.
        places, states, alive: What is left.
        met: Counters.

    Returns:
        How many places are left.
    """
    bits = _bits(alive) + 2
    shift = np.uint64(64 - bits)
    met[: 1 << bits] = 0
    end = np.int64(starts[first + num]) - prefix
    for at in range(alive):
        start = np.int64(starts[first + places[at]])
        state = mixed(states[at], load_u64(text, start + prefix - 8)) if start <= end else np.uint64(0)
        states[at] = state
        slot = np.int64(state * _MULTIPLIER >> shift)
        met[slot] = min(met[slot] + 1, 2)
    kept = 0
    for at in range(alive):
        place = np.int64(places[at])
        start = np.int64(starts[first + place])
        state = states[at]
        places[kept], states[kept] = place, state
        if place + n <= num:
            short = starts[first + place + n] - start < prefix
            kept += short | (met[np.int64(state * _MULTIPLIER >> shift)] > 1)
    return kept


@njit(nogil=True, cache=True, inline="always")
def _some_bytes(value, count):
    """The first `count` of eight bytes, zeros for the others; all for a count above 8, none for one below 0."""
    count = max(min(count, 8), 0)
    mask = (np.uint64(1) << np.uint64(8 * count & 63)) - np.uint64(1)
    return value & (mask | np.uint64(0) - np.uint64(count == 8))


@njit(nogil=True, cache=True, inline="always")
def _hash(text, start, stop, prefix, state):
    """64-bit hash of `text[start:stop]`; `state` is that of its first `prefix` bytes, if it has so many.

    Nearly always without a branch: what is left has mostly at most 16 bytes.
    """
    length = stop - start
    if length >= prefix:
        start += prefix
    else:
        state = np.uint64(0)
    while stop - start > 16:
        state = mixed(state, load_u64(text, start))
        start += 8
    state = mixed(state, _some_bytes(load_u64(text, start), stop - start))
    state = mixed(state, _some_bytes(load_u64(text, start + 8), stop - start - 8))
    return finished(state ^ np.uint64(length))


@njit(nogil=True, cache=True)
def _choose_repeated(text, starts, first, n, prefix, places, states, alive, met, grams, chosen):
    """Choose the places of n-grams that may occur more than once, for n-grams share counters; returns how many.

    Their hashes are put in `grams`, their places in `chosen`.
    """
    bits = _bits(alive) + 2
    shift = np.uint64(64 - bits)
    met[: 1 << bits] = 0
    for at in range(alive):
        word = first + np.int64(places[at])
        key = _hash(text, np.int64(starts[word]), np.int64(starts[word + n]), prefix, states[at])
        grams[at] = key
        slot = np.int64(key >> shift)
        met[slot] = min(met[slot] + 1, 2)
    kept = 0
    for at in range(alive):
        key = grams[at]
        grams[kept], chosen[kept] = key, places[at]
        kept += met[np.int64(key >> shift)] > 1
    return kept


@njit(nogil=True, cache=True)
def _repeated(starts, chars, first, n, grams, chosen, num_chosen, keys, marks, base, bits):
    """Characters in repeated n-grams, or -1 where the table is full."""
    bits = min(bits, _bits(num_chosen))
    room = 1 << (bits - 1)
    total = np.int64(0)
    free = np.int64(0)
    for at in range(num_chosen):
        place = np.int64(chosen[at])
        if place >= free:
            key = grams[at]
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
