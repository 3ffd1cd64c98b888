"""Bytes to folded words: the one place where text is looked at letter by letter for deduplication.

The words of a text are those of `unicodedata.normalize(form, text).casefold()`: runs of letters, marks, numbers and
connector punctuation (Unicode categories L, M, N, Pc), except that each Han, Hiragana, Katakana, Hangul, Thai, Lao,
Khmer and Myanmar letter is a word of its own, with the marks that follow it. Everything else separates.
"""

from __future__ import annotations

import itertools
import unicodedata

import numpy as np
from numba import njit

from dataeff.arrow import I64, U8
from dataeff.kernel.memory import load_u64, trailing_zeros
from dataeff.kernel.unicode import (
    CLASS_MASK,
    EXPANDS,
    MARK,
    NOT_NFC,
    NOT_NFKC,
    SEPARATOR,
    SOLO,
    Tables,
    tables,
)

PADDING = 16
"""Zero bytes that must follow the words in a buffer, so that eight can be loaded anywhere."""
GROWTH = 4
"""Folded words take at most so many times the bytes of the text: a three-byte letter of its own gets a separator."""

_NO_TABLES = Tables(
    *(np.zeros(256, kind) for kind in (np.uint16, np.uint8, np.int32, np.uint8)), np.zeros((1, 3), np.uint32)
)
for _table in _NO_TABLES:
    _table.flags.writeable = False
_HIGH = np.uint64(0x8080808080808080)
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_FIRST = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD6E8FEB86659FD93)


def prepared(data: U8, offsets: I64, form: str) -> tuple[U8, I64, Tables]:
    """Rows in a normal form, and the tables to fold them with.

    Nothing is copied unless a row fails the quick check of Unicode Standard Annex 15; only such rows are given to
    `unicodedata`. Without a byte above 127 the tables are not made at all.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
        form: `NFC` or `NFKC`.
    """
    if _is_ascii(data, offsets[0], offsets[-1]):
        return data, offsets, _NO_TABLES
    unicode = tables()
    wrong = np.zeros(len(offsets) - 1, np.bool_)
    if not _find_wrong(data, offsets, NOT_NFC if form == "NFC" else NOT_NFKC, unicode, wrong):
        return data, offsets, unicode
    rows = [data[start:stop] for start, stop in itertools.pairwise(offsets.tolist())]
    for row in np.flatnonzero(wrong):
        text = unicodedata.normalize(form, bytes(rows[row]).decode("utf-8", "replace"))
        rows[row] = np.frombuffer(text.encode(), np.uint8)
    normal = np.concatenate(rows)
    bounds = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    for made in (normal, bounds):
        made.flags.writeable = False
    return normal, bounds, unicode


def scratch(offsets: I64) -> U8:
    """Room for the folded words of any of the rows."""
    return np.zeros(int(np.diff(offsets).max(initial=0)) * GROWTH + PADDING, np.uint8)


@njit(nogil=True, cache=True)
def _is_ascii(data, start, stop):  # type: ignore[no-untyped-def]
    bits = np.uint8(0)
    for place in range(start, stop):
        bits |= data[place]
    return bits < 128


@njit(nogil=True, cache=True)
def _find_wrong(data, offsets, flag, unicode, wrong):  # type: ignore[no-untyped-def]
    """Mark rows that may not be in the normal form that `flag` stands for; returns whether there is one."""
    for row in range(len(offsets) - 1):
        wrong[row] = _needs_normalising(data, offsets[row], offsets[row + 1], flag, unicode)
    return wrong.any()


@njit(nogil=True, cache=True, inline="always")
def decode(data, place, stop):  # type: ignore[no-untyped-def]
    """Code point at `place` and its length in bytes; a byte that begins none is U+FFFD, one byte long."""
    lead = np.int64(data[place])
    if lead < 0x80:
        return lead, 1
    if 0xC2 <= lead < 0xE0 and place + 1 < stop:
        return (lead & 0x1F) << 6 | np.int64(data[place + 1] & 0x3F), 2
    if 0xE0 <= lead < 0xF0 and place + 2 < stop:
        return (lead & 0x0F) << 12 | np.int64(data[place + 1] & 0x3F) << 6 | np.int64(data[place + 2] & 0x3F), 3
    if 0xF0 <= lead < 0xF5 and place + 3 < stop:
        code = (lead & 0x07) << 18 | np.int64(data[place + 1] & 0x3F) << 12
        code |= np.int64(data[place + 2] & 0x3F) << 6 | np.int64(data[place + 3] & 0x3F)
        return min(code, 0x10FFFF), 4
    return 0xFFFD, 1


@njit(nogil=True, cache=True)
def _needs_normalising(data, start, stop, flag, unicode):  # type: ignore[no-untyped-def]
    last = 0
    place = start
    while place < stop:
        if place + 8 <= stop and load_u64(data, place) & _HIGH == 0:
            last = 0
            place += 8
            continue
        code, length = decode(data, place, stop)
        entry = np.int64(unicode.block[code >> 8]) << 8 | code & 255
        if unicode.flags[entry] & flag:
            return True
        combining = unicode.combining[entry]
        if combining and last > combining:
            return True
        last = combining
        place += length
    return False


@njit(nogil=True, cache=True, inline="always")
def encode(code, out, at):  # type: ignore[no-untyped-def]
    """Write a code point as UTF-8 from `at` on; returns where it ends."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | code >> 6
        out[at + 1] = 0x80 | code & 0x3F
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | code >> 12
        out[at + 1] = 0x80 | code >> 6 & 0x3F
        out[at + 2] = 0x80 | code & 0x3F
        return at + 3
    out[at] = 0xF0 | code >> 18
    out[at + 1] = 0x80 | code >> 12 & 0x3F
    out[at + 2] = 0x80 | code >> 6 & 0x3F
    out[at + 3] = 0x80 | code & 0x3F
    return at + 4


@njit(nogil=True, cache=True)
def fold_ascii(data, start, stop, out, at):  # type: ignore[no-untyped-def]
    """Write ASCII bytes as folded words, a zero for every byte that separates; returns where they end.

    Plain arithmetic over bytes, so that it is done many at a time.
    """
    for place in range(stop - start):
        byte = data[start + place]
        lower = byte | np.uint8(0x20)
        letter = np.uint8(lower - np.uint8(97)) < np.uint8(26)
        digit = np.uint8(byte - np.uint8(48)) < np.uint8(10)
        other = byte if digit or byte == np.uint8(95) else np.uint8(0)
        out[at + place] = lower if letter else other
    return at + stop - start


@njit(nogil=True, cache=True)
def fold_words(data, start, stop, unicode, out):  # type: ignore[no-untyped-def]
    """Write the row's folded words into `out`, zeros between them; returns where they end.

    Args:
        data: UTF-8 bytes.
        start: Where the row begins.
        stop: Where it ends.
        unicode: The tables.
        out: At least `GROWTH` times the row's bytes and `PADDING`.
    """
    at = 0
    place = start
    alone = False
    while place < stop:
        run = place
        while run + 8 <= stop and load_u64(data, run) & _HIGH == 0:
            run += 8
        while run < stop and data[run] < 0x80:
            run += 1
        if run > place:
            if alone:
                out[at] = 0
                at += 1
                alone = False
            at = fold_ascii(data, place, run, out, at)
            place = run
            continue
        code, length = decode(data, place, stop)
        place += length
        entry = np.int64(unicode.block[code >> 8]) << 8 | code & 255
        fold = np.int64(unicode.fold[entry])
        if fold == 0 or fold > EXPANDS:
            at, alone = _put(code + fold, unicode, out, at, alone)
        else:
            for column in range(3):
                part = np.int64(unicode.expansions[EXPANDS - 1 - fold, column])
                if part:
                    at, alone = _put(part, unicode, out, at, alone)
    out[at : at + PADDING] = 0
    return at


@njit(nogil=True, cache=True, inline="always")
def _put(code, unicode, out, at, alone):  # type: ignore[no-untyped-def]
    """Write one folded code point; `alone` says that the word before is a letter of its own."""
    kind = unicode.flags[np.int64(unicode.block[code >> 8]) << 8 | code & 255] & CLASS_MASK
    if kind == SEPARATOR:
        out[at] = 0
        return at + 1, False
    if kind == SOLO or (alone and kind != MARK):
        out[at] = 0
        at += 1
    return encode(code, out, at), kind == SOLO or (alone and kind == MARK)


@njit(nogil=True, cache=True)
def hash_words(words, place, end, hashes, count):  # type: ignore[no-untyped-def]
    """Hash words from `place` on into `hashes[count:]`, until the words or the room end.

    Args:
        words: Words with zeros between them, `PADDING` zeros after `end`.
        place: Where to begin: at a word's start or a zero.
        end: Where the words end.
        hashes: 64-bit hashes, filled from `count` on.
        count: How many are there already.

    Returns:
        `(place, count)`: where to go on, and how many hashes there are now.
    """
    room = len(hashes)
    while place < end and count < room:
        word = load_u64(words, place)
        filled = ((word & _LOW7) + _LOW7 | word) & _HIGH
        if filled == 0:
            place += 8
            continue
        skip = trailing_zeros(filled) >> np.uint64(3)
        if skip:
            place += np.int64(skip)
            word = load_u64(words, place)
            filled = ((word & _LOW7) + _LOW7 | word) & _HIGH
        state = np.uint64(0)
        empty = filled ^ _HIGH
        while empty == 0:
            state = (state ^ word) * _FIRST
            state ^= state >> np.uint64(32)
            place += 8
            word = load_u64(words, place)
            empty = ((word & _LOW7) + _LOW7 | word) & _HIGH ^ _HIGH
        bits = trailing_zeros(empty) & np.uint64(0x78)
        length = np.int64(bits >> np.uint64(3))
        state = (state ^ (word & ((np.uint64(1) << bits) - np.uint64(1)))) * _FIRST
        state ^= state >> np.uint64(29)
        state *= _SECOND
        hashes[count] = state ^ state >> np.uint64(32)
        count += 1
        place += length
    return place, count
