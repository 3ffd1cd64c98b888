"""Text to shingles, as sets for exact comparison, or straight to MinHash signatures.

A shingle is `n` consecutive words, or `n` consecutive code points of the folded words written together. A text that
has some but fewer than `n` is one shingle of them all; a text without a word has none.
"""

from __future__ import annotations

import itertools
from typing import Literal, TypeAlias

import numpy as np

from dataeff.arrow import I64, U8, U32, U64
from dataeff.errors import PlanError
from dataeff.kernel import words
from dataeff.kernel.compiled import allocating, compiled, inlined
from dataeff.kernel.minhash import EMPTY, filled_up, lower, mixed
from dataeff.kernel.words import GROWTH, PADDING, PIECE, decode, fold_words, hash_words, piece_end, room_for

Unit: TypeAlias = Literal["word", "char"]
Form: TypeAlias = Literal["NFC", "NFKC"]

_STEP = np.uint64(0xC6A4A7935BD1E995)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_ROOM = 1024
_FOLLOWING = 64
"""Largest `n`: so many units of one block are carried over to the next."""


def sketch(
    data: U8, offsets: I64, *, unit: Unit = "word", n: int = 5, form: Form | None = "NFC", a: U32, b: U32
) -> tuple[U32, I64]:
    """Bytes to MinHash signatures; shingles are never kept.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
        unit: What a shingle is made of.
        n: How many of them, at most 64.
        form: Unicode normal form before case folding; None where the rows are in it already.
        a: Odd multipliers of the permutations, shape (num_perm,); see `minhash.permutations`.
        b: Their addends.

    Returns:
        Signatures, shape (rows, num_perm), all 2**32 - 1 for a row without a word; and the number of shingles of
        each row, repeats counted, shape (rows,).

    Raises:
        PlanError: `n` is out of range.
    """
    _check(n)
    if form is not None:
        data, offsets = words.normal_form(data, offsets, form)
    unicode = words.tables_for(data, offsets)
    signatures = np.empty((len(offsets) - 1, len(a)), np.uint32)
    counts = np.zeros(len(offsets) - 1, np.int64)
    _sketch(data, offsets, unicode, unit == "char", n, *filled_up(a, b), signatures, counts)
    return signatures, counts


def shingle_sets(
    data: U8, offsets: I64, *, unit: Unit = "word", n: int = 5, form: Form | None = "NFC"
) -> tuple[U64, I64]:
    """The sets that `sketch` sketches: sorted distinct 64-bit shingle hashes of each row.

    Returns:
        Hashes of all rows, and row boundaries into them, shape (rows + 1,).

    Raises:
        PlanError: `n` is out of range.
    """
    _check(n)
    if form is not None:
        data, offsets = words.normal_form(data, offsets, form)
    unicode = words.tables_for(data, offsets)
    hashes = np.empty(int(offsets[-1] - offsets[0]) + len(offsets), np.uint64)
    bounds = np.zeros(len(offsets), np.int64)
    _all_shingles(data, offsets, unicode, unit == "char", n, hashes, bounds)
    hashes = hashes[: bounds[-1]]
    for start, stop in itertools.pairwise(bounds.tolist()):
        hashes[start:stop].sort()
    first = np.ones(len(hashes), np.bool_)
    first[1:] = hashes[1:] != hashes[:-1]
    first[bounds[:-1][np.diff(bounds) > 0]] = True
    distinct = np.concatenate([[0], np.cumsum(first)])[bounds]
    return hashes[first], distinct


def _check(n: int) -> None:
    if not 1 <= n <= _FOLLOWING:
        raise PlanError(f"a shingle of {n} units; it must have 1 to {_FOLLOWING}")


@allocating
def _sketch(data, offsets, unicode, chars, n, a, b, signatures, counts):
    folded, units, hashes = _scratch()
    short = np.empty(len(hashes), np.uint32)
    least = np.empty(len(a), np.uint32)
    for row in range(len(counts)):
        place, stop = offsets[row], offsets[row + 1]
        at, alone, carried, total = 0, False, 0, 0
        least[:] = EMPTY
        while place < stop:
            end = piece_end(data, place, stop, at)
            folded = room_for(folded, at, end - place)
            at, alone = fold_words(data, place, end, unicode, folded, at, alone)
            place, done, before = end, 0, -1
            while before < done < at:
                before = done
                done, count = _hash_units(folded, done, at, end < stop, units, carried, chars)
                made = _combine(units, count, n, hashes)
                for shingle in range(made):
                    short[shingle] = mixed(np.uint32(_finished(hashes[shingle]) >> np.uint64(32)))
                lower(short, made, a, b, least)
                total += made
                carried = _carry(units, count, n)
            at = _keep(folded, done, at)
        if total == 0 and carried:
            _combine(units, carried, carried, hashes)
            short[0] = mixed(np.uint32(_finished(hashes[0]) >> np.uint64(32)))
            lower(short, 1, a, b, least)
            total = 1
        signatures[row] = least[: signatures.shape[1]]
        counts[row] = total


@allocating
def _all_shingles(data, offsets, unicode, chars, n, out, bounds):
    """All shingle hashes of all rows, in order, into `out`; where each row's end into `bounds`."""
    folded, units, hashes = _scratch()
    total = 0
    for row in range(len(offsets) - 1):
        place, stop = offsets[row], offsets[row + 1]
        at, alone, carried = 0, False, 0
        while place < stop:
            end = piece_end(data, place, stop, at)
            folded = room_for(folded, at, end - place)
            at, alone = fold_words(data, place, end, unicode, folded, at, alone)
            place, done, before = end, 0, -1
            while before < done < at:
                before = done
                done, count = _hash_units(folded, done, at, end < stop, units, carried, chars)
                made = _combine(units, count, n, hashes)
                for shingle in range(made):
                    out[total + shingle] = _finished(hashes[shingle])
                total += made
                carried = _carry(units, count, n)
            at = _keep(folded, done, at)
        if total == bounds[row] and carried:
            _combine(units, carried, carried, hashes)
            out[total] = _finished(hashes[0])
            total += 1
        bounds[row + 1] = total


@allocating
def _scratch():
    """Room for folded words, which may have to grow, for the hashes of units, and for those of shingles."""
    folded = np.empty(PIECE * GROWTH + PADDING, np.uint8)
    return folded, np.empty(_ROOM + _FOLLOWING, np.uint64), np.empty(_ROOM + _FOLLOWING, np.uint64)


@compiled
def _keep(folded, done, at):
    """Move the word that was begun at `done` to the front; returns where it ends."""
    for place in range(done, at):
        folded[place - done] = folded[place]
    return at - done


@compiled
def _hash_units(folded, place, end, more, units, count, chars):
    """Hash words or code points into `units[count:]` until they or the room end; returns place and count."""
    if not chars:
        return hash_words(folded, place, end, more, units, count)
    while place < end and count < len(units):
        if folded[place] == 0:
            place += 1
            continue
        code, length = decode(folded, place, end)
        units[count] = (np.uint64(code) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        units[count] ^= units[count] >> np.uint64(31)
        count += 1
        place += length
    return place, count


@compiled
def _combine(units, count, n, hashes):
    """Hash every `n` consecutive units; returns how many there are. Written so that the loops run many at a time."""
    made = count - n + 1
    if made <= 0:
        return 0
    for at in range(made):
        hashes[at] = units[at]
    for after in range(1, n):
        for at in range(made):
            hashes[at] = hashes[at] * _STEP + units[at + after]
    return made


@inlined
def _finished(value):
    """A combined hash whose bits all depend on all of its units."""
    value = (value ^ value >> np.uint64(32)) * _MIX
    return value ^ value >> np.uint64(29)


@compiled
def _carry(units, count, n):
    """Move the last `n - 1` units to the front, for shingles that go on in the next block; returns how many."""
    kept = min(count, n - 1)
    for at in range(kept):
        units[at] = units[count - kept + at]
    return kept
