"""How much of a text is n-grams of words that repeat, by the definitions of datatrove 0.10.1."""

from __future__ import annotations

import numpy as np

from dataeff.arrow import F64
from dataeff.kernel.compiled import allocating, compiled, inlined
from dataeff.kernel.memory import load_u64
from dataeff.kernel.segment import FIRST_EIGHT, NEXT_EIGHT, Words, finished, mixed

_USUAL_SHARE = 0.8
"""Share of the usual n-gram's bytes by which it is told where one can repeat at all."""
_FIRST_PREFIX = 16
"""Bytes by which n-grams are first told apart."""
_MOST_COUNTER_BITS = 24
"""A longer text than this has counters for shares more of them, which costs time, not truth."""
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


@allocating
def _new_table(bits):
    """Keys, and for each when it was put there (below the current base: the slot is free) and how often it was met."""
    return np.empty(1 << bits, np.uint64), np.full(1 << bits, -1, np.int64), np.empty(1 << bits, np.int32)


@inlined
def _bits(count):
    bits = 4
    while 1 << bits < 2 * count:
        bits += 1
    return bits


@inlined
def _counter_bits(count, more):
    """Bits of counters for `count` n-grams: 2 << `more` for each or more, so that few share one, up to a limit."""
    return min(_bits(count) + more, _MOST_COUNTER_BITS)


@inlined
def _slot(key, keys, marks, base, bits):
    """Where `key` is among the first 2**bits slots, or the free slot for it."""
    last = (1 << bits) - 1
    slot = np.int64(key >> np.uint64(64 - bits))
    while marks[slot] >= base and keys[slot] != key:
        slot = (slot + 1) & last
    return slot


@allocating
def _top_ngrams(rows, hashes, chars, longest, found):
    most = 1
    for row in range(len(found)):
        most = max(most, rows[row + 1] - rows[row])
    places, grams = np.empty(most, np.int32), np.empty(most, np.uint64)
    others, other_grams = np.empty(most, np.int32), np.empty(most, np.uint64)
    met = np.empty(1 << _counter_bits(most, 1), np.int32)
    table = _new_table(_FIRST_BITS)
    base = np.int64(0)
    for row in range(len(found)):
        first, num = rows[row], rows[row + 1] - rows[row]
        alive = num
        for at in range(num):
            places[at] = at
            grams[at] = hashes[first + at]
        for n in range(2, min(longest, num) + 1):
            while alive > 0 and places[alive - 1] + n > num:
                alive -= 1
            shift = np.uint64(64 - _counter_bits(alive, 1))
            wanted = _count_ngrams(hashes, first, n, places, grams, alive, met)
            alive = _choose_frequent(places, grams, alive, met, shift, 2, places, grams)
            count, best = np.int64(1), np.int64(0)
            # A counter is at least as high as the count of each of its n-grams: what is as frequent as the most
            # frequent one of the highest counters can only be in counters that are as high.
            while wanted > 1:
                chosen = _choose_frequent(places, grams, alive, met, shift, wanted, others, other_grams)
                if len(table[0]) < 1 << _bits(chosen):
                    table = _new_table(_bits(chosen))
                count, best = _most_frequent(other_grams, chosen, table[0], table[1], table[2], base)
                base += chosen
                best = np.int64(others[best])
                if count >= wanted or wanted == 2:
                    break
                wanted = max(count, 2)
            if count == 1:
                best = np.int64(0)
            gram = np.int64(chars[first + best + n]) - chars[first + best] + n - 1
            found[row, n - 2] = count * gram


@compiled
def _count_ngrams(hashes, first, n, places, grams, alive, met):
    """Lengthen (n - 1)-grams by a word, and count them; returns the highest count."""
    bits = _counter_bits(alive, 1)
    shift = np.uint64(64 - bits)
    met[: 1 << bits] = 0
    highest = 0
    for at in range(alive):
        gram = grams[at]
        gram = (gram ^ gram >> np.uint64(29)) * _MULTIPLIER + hashes[first + places[at] + n - 1]
        grams[at] = gram
        slot = np.int64((gram ^ gram >> np.uint64(32)) * _MULTIPLIER >> shift)
        count = met[slot] + 1
        met[slot] = count
        highest = max(highest, count)
    return highest


@compiled
def _choose_frequent(places, grams, alive, met, shift, least, to_places, to_grams):
    """Choose n-grams whose counter, by the bits of their hash from `shift` on, is `least` or more; returns how many."""
    kept = 0
    for at in range(alive):
        gram = grams[at]
        to_places[kept], to_grams[kept] = places[at], gram
        kept += met[np.int64((gram ^ gram >> np.uint64(32)) * _MULTIPLIER >> shift)] >= least
    return kept


@compiled
def _most_frequent(grams, num, keys, marks, counts, base):
    """Count of the most frequent of some n-grams, and which is its first copy; of equally frequent ones the first."""
    bits = _bits(num)
    most, best = np.int64(0), np.int64(0)
    for at in range(num):
        gram = grams[at]
        slot = _slot(gram * _MULTIPLIER, keys, marks, base, bits)
        if marks[slot] < base:
            keys[slot], marks[slot], counts[slot] = gram * _MULTIPLIER, base + at, 0
        counts[slot] += 1
        copy = marks[slot] - base
        if counts[slot] > most or (counts[slot] == most and copy < best):
            most, best = np.int64(counts[slot]), copy
    return most, best


@allocating
def _duplicate_ngrams(rows, text, starts, chars, shortest, longest, found):
    most = 1
    for row in range(len(found)):
        most = max(most, rows[row + 1] - rows[row])
    places, states = np.empty(most, np.int32), np.empty(most, np.uint64)
    others, grams = np.empty(most, np.int32), np.empty(most, np.uint64)
    met = np.empty(1 << _counter_bits(most, 2), np.uint8)
    bits = _FIRST_BITS
    keys, marks, _ = _new_table(bits)
    base = np.int64(0)
    for row in range(len(found)):
        first, num = rows[row], rows[row + 1] - rows[row]
        if num <= shortest:
            continue
        alive = _repeated_starts(text, starts, first, num, shortest, places, states, met)
        prefix = _FIRST_PREFIX
        usual = _USUAL_SHARE * (starts[first + num] - starts[first]) / num
        for n in range(shortest, min(longest, num) + 1):
            if alive == 0:
                break
            while prefix + 8 <= n * usual:
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


@compiled
def _repeated_starts(text, starts, first, num, shortest, places, states, met):
    """As `_keep_prefixes`, for the first `_FIRST_PREFIX` bytes at all places: no state is there yet."""
    count = num - shortest + 1
    bits = _counter_bits(count, 2)
    shift = np.uint64(64 - bits)
    met[: 1 << bits] = 0
    for at in range(count):
        start = np.int64(starts[first + at])
        state = mixed(mixed(np.uint64(0), load_u64(text, start)), load_u64(text, start + 8))
        states[at] = state
        slot = np.int64(state * _MULTIPLIER >> shift)
        met[slot] = min(met[slot] + 1, 2)
    kept = 0
    for at in range(count):
        state = states[at]
        places[kept], states[kept] = at, state
        short = starts[first + at + shortest] - starts[first + at] < _FIRST_PREFIX
        kept += short | (met[np.int64(state * _MULTIPLIER >> shift)] > 1)
    return kept


@compiled
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
    bits = _counter_bits(alive, 2)
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


@inlined
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
    left = np.uint64(stop - start)
    state = mixed(state, load_u64(text, start) & FIRST_EIGHT[left])
    state = mixed(state, load_u64(text, start + 8) & NEXT_EIGHT[left])
    return finished(state ^ np.uint64(length))


@compiled
def _choose_repeated(text, starts, first, n, prefix, places, states, alive, met, grams, chosen):
    """Choose the places of n-grams that may occur more than once, for n-grams share counters; returns how many.

    Their hashes are put in `grams`, their places in `chosen`.
    """
    bits = _counter_bits(alive, 2)
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


@compiled
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
