"""Words and lines of texts, found once for all filters."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from dataeff.arrow import I64, U8, U64
from dataeff.kernel.memory import load_u64
from dataeff.kernel.unicode import ALPHABETIC, CLASS_MASK, SPACE, SYMBOL, TERMINAL, tables
from dataeff.kernel.words import decode

I32: TypeAlias = npt.NDArray[np.int32]
HAS_ALPHABETIC = 1
"""Some character of the word is a letter."""
HAS_CONTENT = 2
"""Some character of the word is neither punctuation nor a symbol."""
BLANK = 1
"""Nothing but white space in the line."""
ENDS_SENTENCE = 2
"""The line's last character ends a sentence."""
BULLET = 4
"""The line begins, after white space, with a bullet or a hyphen."""
ELLIPSIS = 8
"""The line ends, before white space, with an ellipsis."""
_FIRST = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD6E8FEB86659FD93)


class Words(NamedTuple):
    """All words of some rows, in order; row `r` has those from `rows[r]` up to `rows[r + 1]`."""

    rows: I64
    starts: I64
    """First byte of each."""
    lengths: I32
    """Bytes of each."""
    chars: I32
    """Code points of each."""
    kinds: U8
    """`HAS_ALPHABETIC`, `HAS_CONTENT`."""
    hashes: U64


class Lines(NamedTuple):
    """All lines of some rows, as `str.split` at line feeds; row `r` has those from `rows[r]` up to `rows[r + 1]`."""

    rows: I64
    starts: I64
    lengths: I64
    """Bytes of each, without the line feed."""
    chars: I32
    """Code points of each."""
    kinds: U8
    """`BLANK`, `ENDS_SENTENCE`, `BULLET`, `ELLIPSIS`."""
    hashes: U64


def find_words(data: U8, offsets: I64, *, regex: bool) -> Words:
    """Words between white space, as `str.split()`; or runs of word characters, and each other character alone.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
        regex: Split like `[\\w marks]+|[^\\w\\s]` instead.
    """
    most = int(offsets[-1] - offsets[0]) // (1 if regex else 2) + len(offsets)
    rows = np.zeros(len(offsets), np.int64)
    starts, lengths = np.empty(most, np.int64), np.empty(most, np.int32)
    chars, kinds, hashes = np.empty(most, np.int32), np.empty(most, np.uint8), np.empty(most, np.uint64)
    num = _find_words(data, offsets, tables(), regex, rows, starts, lengths, chars, kinds, hashes)
    return Words(rows, starts[:num], lengths[:num], chars[:num], kinds[:num], hashes[:num])


def find_lines(data: U8, offsets: I64) -> Lines:
    """Lines of each row; an empty row has one, empty.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
    """
    rows = np.zeros(len(offsets), np.int64)
    num = _count_lines(data, offsets, rows)
    starts, lengths = np.empty(num, np.int64), np.empty(num, np.int64)
    chars, kinds, hashes = np.empty(num, np.int32), np.empty(num, np.uint8), np.empty(num, np.uint64)
    _find_lines(data, offsets, tables(), starts, lengths, chars, kinds, hashes)
    return Lines(rows, starts, lengths, chars, kinds, hashes)


def find_paragraphs(data: U8, offsets: I64) -> Lines:
    """Paragraphs of each row's text without white space at its ends, parted by two or more line feeds.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
    """
    rows = np.zeros(len(offsets), np.int64)
    most = int(offsets[-1] - offsets[0]) // 2 + len(offsets)
    starts, lengths = np.empty(most, np.int64), np.empty(most, np.int64)
    chars, hashes = np.empty(most, np.int32), np.empty(most, np.uint64)
    num = _find_paragraphs(data, offsets, tables(), rows, starts, lengths, chars, hashes)
    return Lines(rows, starts[:num], lengths[:num], chars[:num], np.zeros(num, np.uint8), hashes[:num])


def count_chars(data: U8, offsets: I64) -> I64:
    """Code points of each row, shape (rows,)."""
    counts = np.zeros(len(offsets) - 1, np.int64)
    _count_chars(data, offsets, counts)
    return counts


def word_hash(word: str) -> int:
    """The hash that `find_words` gives a word."""
    raw = np.frombuffer(word.encode(), np.uint8)
    raw.flags.writeable = False
    return int(_hash_span(raw, 0, len(raw)))


@njit(nogil=True, cache=True)
def _count_chars(data, offsets, counts):
    for row in range(len(counts)):
        counts[row] = _chars(data, offsets[row], offsets[row + 1])


@njit(nogil=True, cache=True)
def _chars(data, start, stop):
    count = 0
    for place in range(start, stop):
        count += data[place] & 0xC0 != 0x80
    return count


@njit(nogil=True, cache=True)
def _hash_span(data, start, length):
    """64-bit hash of some bytes, eight at a time; never reads past the array."""
    state = np.uint64(length) * _SECOND
    while length >= 8:
        state = (state ^ load_u64(data, start)) * _FIRST
        state ^= state >> np.uint64(32)
        start += 8
        length -= 8
    if length:
        if start + 8 <= len(data):
            last = load_u64(data, start) & ((np.uint64(1) << np.uint64(8 * length)) - np.uint64(1))
        else:
            last = np.uint64(0)
            for ahead in range(length):
                last |= np.uint64(data[start + ahead]) << np.uint64(8 * ahead)
        state = (state ^ last) * _FIRST
    state = (state ^ state >> np.uint64(29)) * _SECOND
    return state ^ state >> np.uint64(32)


@njit(nogil=True, cache=True)
def _find_words(data, offsets, unicode, regex, rows, starts, lengths, chars, kinds, hashes):
    num = 0
    ascii_entry = np.int64(unicode.block[0]) << 8
    for row in range(len(offsets) - 1):
        begun = -1
        seen = 0
        count = 0
        place = offsets[row]
        stop = offsets[row + 1]
        while place <= stop:
            flags = SPACE
            length = 1
            if place < stop:
                byte = np.int64(data[place])
                if byte < 0x80:
                    flags = np.int64(unicode.flags[ascii_entry | byte])
                else:
                    code, length = decode(data, place, stop)
                    flags = np.int64(unicode.flags[np.int64(unicode.block[code >> 8]) << 8 | code & 255])
            alone = regex and flags & CLASS_MASK == 0
            if begun >= 0 and (flags & SPACE or alone):
                starts[num], lengths[num], chars[num] = begun, place - begun, count
                kinds[num] = _kind(seen)
                hashes[num] = _hash_span(data, begun, place - begun)
                num += 1
                begun = -1
            if flags & SPACE == 0:
                if begun < 0:
                    begun, seen, count = place, 0, 0
                seen |= flags & ALPHABETIC | (~flags & SYMBOL)
                count += 1
                if alone:
                    starts[num], lengths[num], chars[num] = place, length, 1
                    kinds[num] = _kind(seen)
                    hashes[num] = _hash_span(data, place, length)
                    num += 1
                    begun = -1
            place += length
        rows[row + 1] = num
    return num


@njit(nogil=True, cache=True, inline="always")
def _kind(seen):
    return (HAS_ALPHABETIC if seen & ALPHABETIC else 0) | (HAS_CONTENT if seen & SYMBOL else 0)


@njit(nogil=True, cache=True)
def _count_lines(data, offsets, rows):
    num = 0
    for row in range(len(offsets) - 1):
        num += 1
        for place in range(offsets[row], offsets[row + 1]):
            num += data[place] == 10
        rows[row + 1] = num
    return num


@njit(nogil=True, cache=True)
def _find_lines(data, offsets, unicode, starts, lengths, chars, kinds, hashes):
    num = 0
    for row in range(len(offsets) - 1):
        begun = offsets[row]
        for place in range(offsets[row], offsets[row + 1] + 1):
            if place == offsets[row + 1] or data[place] == 10:
                starts[num], lengths[num] = begun, place - begun
                chars[num] = _chars(data, begun, place)
                kinds[num] = _line_kind(data, begun, place, unicode)
                hashes[num] = _hash_span(data, begun, place - begun)
                num += 1
                begun = place + 1


@njit(nogil=True, cache=True)
def _line_kind(data, start, stop, unicode):
    kind = 0
    last = _last_code_point(data, start, stop)
    if last >= 0 and _flags(unicode, last) & TERMINAL:
        kind |= ENDS_SENTENCE
    while start < stop:
        code, length = decode(data, start, stop)
        if _flags(unicode, code) & SPACE == 0:
            if code == 0x2D or code == 0x2022:
                kind |= BULLET
            break
        start += length
    if start == stop:
        return kind | BLANK
    while True:
        last = _last_code_point(data, start, stop)
        if _flags(unicode, last) & SPACE == 0:
            break
        stop -= 1
        while data[stop] & 0xC0 == 0x80:
            stop -= 1
    dots = stop - start >= 3 and data[stop - 1] == 46 and data[stop - 2] == 46 and data[stop - 3] == 46
    return kind | (ELLIPSIS if dots or last == 0x2026 else 0)


@njit(nogil=True, cache=True, inline="always")
def _flags(unicode, code):
    return np.int64(unicode.flags[np.int64(unicode.block[code >> 8]) << 8 | code & 255])


@njit(nogil=True, cache=True)
def _last_code_point(data, start, stop):
    """The last code point of some bytes, or -1 where there are none."""
    place = stop - 1
    while place > start and data[place] & 0xC0 == 0x80:
        place -= 1
    if place < start:
        return -1
    code, _ = decode(data, place, stop)
    return code


@njit(nogil=True, cache=True)
def _find_paragraphs(data, offsets, unicode, rows, starts, lengths, chars, hashes):
    num = 0
    for row in range(len(offsets) - 1):
        place, stop = _stripped(data, offsets[row], offsets[row + 1], unicode)
        begun = place
        while place <= stop:
            feeds = 0
            while place + feeds < stop and data[place + feeds] == 10:
                feeds += 1
            if feeds >= 2 or place == stop:
                starts[num], lengths[num] = begun, place - begun
                chars[num] = _chars(data, begun, place)
                hashes[num] = _hash_span(data, begun, place - begun)
                num += 1
                begun = place + feeds
            place += max(feeds, 1)
        rows[row + 1] = num
    return num


@njit(nogil=True, cache=True)
def _stripped(data, start, stop, unicode):
    """Where the text without white space at its ends begins and stops."""
    while start < stop:
        code, length = decode(data, start, stop)
        if _flags(unicode, code) & SPACE == 0:
            break
        start += length
    while stop > start and _flags(unicode, _last_code_point(data, start, stop)) & SPACE:
        stop -= 1
        while stop > start and data[stop] & 0xC0 == 0x80:
            stop -= 1
    return start, stop
