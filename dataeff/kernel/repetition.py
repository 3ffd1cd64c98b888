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
_LAST = 16
"""Bytes at its end by which an n-gram is told from others with the same first bytes."""
_MOST_COUNTER_BITS = 24
"""A longer text than this has counters for shares more of them, which costs time, not truth."""
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
def _slot(key, keys, bits):
    """Where `key` is among the first 2**bits slots, or a free slot for it, which is 0."""
    last = np.uint64((1 << bits) - 1)
    slot = key >> np.uint64(64 - bits)
    while keys[slot] != 0 and keys[slot] != key:
        slot = slot + np.uint64(1) & last
    return slot


@allocating
def _top_ngrams(rows, hashes, chars, longest, found):
    most = 1
    for row in range(len(found)):
        most = max(most, rows[row + 1] - rows[row])
    every = np.arange(most).astype(np.uint32)
    places, chosen, grams = np.empty(most, np.uint32), np.empty(most, np.uint32), np.empty(most, np.uint64)
    met = np.empty(1 << _counter_bits(most, 1), np.uint8)
    room = 1 << _bits(most)
    keys, firsts, counts = np.empty(room, np.uint64), np.empty(room, np.uint32), np.empty(room, np.uint32)
    _top_of_rows(rows, hashes, chars, longest, every, places, chosen, grams, met, keys, firsts, counts, found)


@compiled
def _top_of_rows(rows, hashes, chars, longest, every, places, chosen, grams, met, keys, firsts, counts, found):
    for row in range(len(found)):
        first, num = rows[row], rows[row + 1] - rows[row]
        at_places, at_grams, alive = every, hashes[first:], num
        for n in range(2, min(longest, num) + 1):
            while alive > 0 and at_places[alive - 1] + n > num:
                alive -= 1
            wanted = _count_ngrams(at_places, at_grams, alive, hashes[first + n - 1 :], grams, met)
            shift = np.uint64(64 - _counter_bits(alive, 1))
            count, best = np.int64(1), np.int64(0)
            # A counter is at least as high as the count of each of its n-grams, or as high as it gets: what is as
            # frequent as the most frequent one of the highest counters can only be in counters that are as high.
            while wanted > 1:
                alive, num_chosen = _choose_frequent(at_places, grams, alive, met, shift, wanted, places, chosen)
                at_places, at_grams = places, grams
                count, best = _most_frequent(grams, chosen, num_chosen, keys, firsts, counts)
                best = np.int64(places[chosen[best]])
                if count >= wanted or wanted == 2:
                    break
                wanted = max(count, 2)
            if wanted < 2:
                alive = 0
            if count == 1:
                best = np.int64(0)
            gram = np.int64(chars[first + best + n]) - chars[first + best] + n - 1
            found[row, n - 2] = count * gram


@compiled
def _count_ngrams(places, grams, alive, words, longer, met):
    """Lengthen (n - 1)-grams by a word, and count them; returns the highest count, if not more than a counter holds.

    Args:
        places, grams, alive: Where the (n - 1)-grams are, and their hashes.
        words: Hashes of the words to add, by the n-gram's place.
        longer: Hashes of the n-grams.
        met: Counters.
    """
    bits = _counter_bits(alive, 1)
    shift = np.uint64(64 - bits)
    met[: 1 << bits] = 0
    highest = 0
    for at in range(alive):
        gram = grams[at]
        gram = (gram ^ gram >> np.uint64(29)) * _MULTIPLIER + words[places[at]]
        longer[at] = gram
        slot = gram >> shift
        count = min(met[slot] + 1, 255)
        met[slot] = count
        highest = max(highest, count)
    return highest


@compiled
def _choose_frequent(places, grams, alive, met, shift, least, kept_places, chosen):
    """Keep n-grams that can occur twice, and choose those of them whose counter is `least` or more.

    Args:
        places, grams, alive: Where the n-grams are, and their hashes; those kept are moved to the front.
        met, shift: Counters; the hash's bits from `shift` on say which.
        least: Two or more.
        kept_places: Where the kept are.
        chosen: Which of the kept.

    Returns:
        How many are kept, and how many chosen.
    """
    kept = num_chosen = 0
    for at in range(alive):
        gram = grams[at]
        kept_places[kept], grams[kept], chosen[num_chosen] = places[at], gram, kept
        count = met[gram >> shift]
        kept += count > 1
        num_chosen += count >= least
    return kept, num_chosen


@compiled
def _most_frequent(grams, chosen, num, keys, firsts, counts):
    """Count of the most frequent of the chosen n-grams, and which of those is its first copy; of equals the first."""
    bits = _bits(num)
    keys[: 1 << bits] = 0
    most, best = np.int64(0), np.int64(0)
    for at in range(num):
        key = max(grams[chosen[at]] * _MULTIPLIER, np.uint64(1))
        slot = _slot(key, keys, bits)
        if keys[slot] == 0:
            keys[slot], firsts[slot], counts[slot] = key, at, 0
        count, copy = np.int64(counts[slot]) + 1, np.int64(firsts[slot])
        counts[slot] = count
        if count > most or (count == most and copy < best):
            most, best = count, copy
    return most, best


@allocating
def _duplicate_ngrams(rows, text, starts, chars, shortest, longest, found):
    most = 1
    for row in range(len(found)):
        most = max(most, rows[row + 1] - rows[row])
    places, states = np.empty(most, np.uint32), np.zeros(most + 1, np.uint64)
    others, grams = np.empty(most, np.uint32), np.empty(most, np.uint64)
    met = np.empty(1 << _counter_bits(most, 2), np.uint8)
    keys = np.empty(1 << _bits(most), np.uint64)
    _duplicate_of_rows(rows, text, starts, chars, shortest, longest, places, states, others, grams, met, keys, found)


@compiled
def _duplicate_of_rows(rows, text, starts, chars, shortest, longest, places, states, others, grams, met, keys, found):
    for row in range(len(found)):
        first, num = rows[row], rows[row + 1] - rows[row]
        if num <= shortest:
            continue
        begins, before = starts[first : first + num + 1], chars[first : first + num + 1]
        alive = _repeated_starts(text, begins, begins[shortest:], places, states, met)
        prefix = _FIRST_PREFIX
        usual = _USUAL_SHARE * (begins[num] - begins[0]) / num
        for n in range(shortest, min(longest, num) + 1):
            while alive > 0 and places[alive - 1] + n > num:
                alive -= 1
            ends = begins[n:]
            while alive > 0 and prefix + 8 <= n * usual:
                prefix += 8
                alive = _keep_prefixes(text, begins, ends, prefix, places, states, alive, met)
            if alive == 0:
                break
            chosen = _choose_repeated(text, begins, ends, prefix, places, states, alive, met, others, grams)
            found[row, n - shortest] = _repeated(text, begins, before, n, prefix, others, grams, chosen, keys)


@compiled
def _repeated_starts(text, begins, ends, places, states, met):
    """As `_keep_prefixes`, for the first `_FIRST_PREFIX` bytes at all places: no state is there yet."""
    count = len(ends)
    bits = _counter_bits(count, 2)
    shift = np.uint64(64 - bits)
    met[: 1 << bits] = 0
    for at in range(count):
        start = np.int64(begins[at])
        state = mixed(mixed(np.uint64(0), load_u64(text, start)), load_u64(text, start + 8))
        states[at] = state
        met[state >> shift] = 2 * met[state >> shift] | 1
    kept = 0
    for at in range(count):
        state = states[at]
        places[kept], states[kept] = at, state
        kept += (ends[at] - begins[at] < _FIRST_PREFIX) | (met[state >> shift] > 1)
    return kept


@compiled
def _keep_prefixes(text, begins, ends, prefix, places, states, alive, met):
    """Keep the places where an n-gram can repeat: where its first bytes do, or where it is shorter than those.

    Words are joined by nothing, so equal n-grams may have other words; but they have equal first bytes. What is kept
    may be too much, since prefixes share counters, never too little. A counter is 1 for one that was met once, then
    more.

    Args:
        text, begins, ends: Where each word of a row begins, and where the n-gram from it on ends; any that is asked
            for later has as many words or more.
        prefix: How many first bytes, eight more than at the last call, whose hashes are in `states`.
        places, states, alive: What is left.
        met: Counters.

    Returns:
        How many places are left.
    """
    bits = _counter_bits(alive, 2)
    shift = np.uint64(64 - bits)
    met[: 1 << bits] = 0
    last = np.int64(begins[len(begins) - 1])
    for at in range(alive):
        # Beyond the row's end are no n-grams so long: what is read instead does not matter.
        state = mixed(states[at], load_u64(text, min(begins[places[at]] + prefix - 8, last)))
        states[at] = state
        met[state >> shift] = 2 * met[state >> shift] | 1
    kept = 0
    for at in range(alive):
        place, state = places[at], states[at]
        places[kept], states[kept] = place, state
        kept += (ends[place] - begins[place] < prefix) | (met[state >> shift] > 1)
    return kept


@compiled
def _choose_repeated(text, begins, ends, prefix, places, states, alive, met, chosen, grams):
    """Choose the places of n-grams that may occur more than once, for n-grams share counters; returns how many.

    Their places are put in `chosen`, in `grams` hashes of their length, their last `_LAST` bytes or fewer, and their
    first `prefix` unless they are shorter. That takes no branch, and is mostly the whole n-gram.
    """
    bits = _counter_bits(alive, 2)
    shift = np.uint64(64 - bits)
    met[: 1 << bits] = 0
    nothing = len(states) - 1  # whose state is 0: chosen by its number, for a choice of values would be a branch
    for at in range(alive):
        start, stop = np.int64(begins[places[at]]), np.int64(ends[places[at]])
        tail = max(start, stop - _LAST)
        left = np.uint64(stop - tail)
        state = states[np.uint64(at if stop - start >= prefix else nothing)]
        state = mixed(state, load_u64(text, tail) & FIRST_EIGHT[left])
        state = mixed(state, load_u64(text, tail + 8) & NEXT_EIGHT[left])
        key = finished(state ^ np.uint64(stop - start))
        grams[at] = key
        met[key >> shift] = 2 * met[key >> shift] | 1
    kept = 0
    for at in range(alive):
        key = grams[at]
        grams[kept], chosen[kept] = key, places[at]
        kept += met[key >> shift] > 1
    return kept


@compiled
def _repeated(text, begins, chars, n, prefix, chosen, grams, num_chosen, keys):
    """Characters in repeated n-grams."""
    bits = _bits(num_chosen)
    keys[: 1 << bits] = 0
    total = np.int64(0)
    free = np.int64(0)
    for at in range(num_chosen):
        place = np.int64(chosen[at])
        if place >= free:
            start, stop = np.int64(begins[place]), np.int64(begins[place + n])
            key = grams[at]
            if stop - start >= prefix:
                start += prefix
            while start < stop - _LAST:
                key = mixed(key, load_u64(text, start))
                start += 8
            key = max(key, np.uint64(1))
            slot = _slot(key, keys, bits)
            if keys[slot] == 0:
                keys[slot] = key
            else:
                total += chars[place + n] - chars[place]
                free = place + n
    return total
