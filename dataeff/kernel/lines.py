"""Lines and paragraphs of texts, found once for all filters."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dataeff.arrow import I64, U8, U64
from dataeff.kernel.characters import BREAK, TERMINAL, characters, flags_of, last_start, trim
from dataeff.kernel.compiled import allocating, compiled, inlined
from dataeff.kernel.memory import load_u64, trailing_zeros
from dataeff.kernel.segment import continuations, finished, first_bytes, load, mixed, no_break
from dataeff.kernel.words import decode

I32: TypeAlias = npt.NDArray[np.int32]
BLANK = 1
"""Nothing but white space is in the line."""
ENDS_SENTENCE = 2
"""The line's very last character is a mark that ends a sentence."""
DUPLICATE = 4
"""The line equals an earlier one of its row."""
BULLET = 8
"""The line's first character that is not white space is U+2022 or a hyphen."""
ELLIPSIS = 16
"""The line ends, before white space, with three full stops or U+2026."""

_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_FEEDS = np.uint64(0x0A0A0A0A0A0A0A0A)
_SEED = np.uint64(0x2545F4914F6CDD1D)


class Lines(NamedTuple):
    r"""All lines of some rows, as `text.split("\n")`; row `r` has those from `rows[r]` up to `rows[r + 1]`."""

    rows: I64
    """Shape (rows + 1,)."""
    starts: I64
    """First byte of each, shape (lines,)."""
    lengths: I32
    """Bytes of each, without the line feed."""
    chars: I32
    """Code points of each."""
    hashes: U64
    kinds: U8
    """`BLANK`, `ENDS_SENTENCE`, `DUPLICATE`, `BULLET`, `ELLIPSIS`."""


class Repeats(NamedTuple):
    """Elements that equal an earlier one of their row, shape (rows,) each."""

    total: I64
    """All elements."""
    duplicates: I64
    duplicate_chars: I64


def find_lines(data: U8, offsets: I64) -> Lines:
    """Lines of each row; an empty row has one, empty.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
    """
    rows = np.zeros(len(offsets), np.int64)
    room = int(offsets[-1] - offsets[0]) // 32 + len(offsets) + 1024
    while True:
        starts, lengths, chars = np.empty(room, np.int64), np.empty(room, np.int32), np.empty(room, np.int32)
        hashes, kinds = np.empty(room, np.uint64), np.empty(room, np.uint8)
        num = _find_lines(data, offsets, characters(), rows, starts, lengths, chars, hashes, kinds)
        if num <= room:
            break
        room = num
    found = Lines(rows, starts[:num], lengths[:num], chars[:num], hashes[:num], kinds[:num])
    _mark_duplicates(rows, found.hashes, found.kinds)
    return found


def repeated_lines(lines: Lines) -> Repeats:
    r"""Repeats among `re.split(r"\n+", text)`: lines that are not empty, and an empty one at either end of a row."""
    found = _no_repeats(lines.rows)
    _repeated_lines(lines.rows, lines.lengths, lines.chars, lines.kinds, *found)
    return found


def repeated_paragraphs(data: U8, offsets: I64, lines: Lines) -> Repeats:
    r"""Repeats among `re.split(r"\n{2,}", text.strip())`."""
    found = _no_repeats(lines.rows)
    _repeated_paragraphs(data, offsets, characters(), lines.rows, lines.starts, lines.lengths, lines.chars,
                         lines.hashes, *found)  # fmt: skip
    return found


def count_line_forms(data: U8, lines: Lines, odd_breaks: npt.NDArray[np.bool_]) -> tuple[I64, I64, I64]:
    """Lines as `str.splitlines()` gives them, and how many begin with a bullet or end with an ellipsis.

    Args:
        data, lines: A batch and its lines.
        odd_breaks: Rows in which something other than a line feed ends a line, shape (rows,).

    Returns:
        Lines, those that are `BULLET`, those that are `ELLIPSIS`; shape (rows,) each.
    """
    counts = np.zeros((3, len(odd_breaks)), np.int64)
    _count_forms(data, characters(), lines.rows, lines.starts, lines.lengths, lines.kinds, odd_breaks, counts)
    return counts[0], counts[1], counts[2]


def _no_repeats(rows: I64) -> Repeats:
    return Repeats(*(np.zeros(len(rows) - 1, np.int64) for _ in range(3)))


@compiled
def _find_lines(data, offsets, table, rows, starts, lengths, chars, hashes, kinds):
    """Find the lines of all rows; returns how many there are, whether or not there was room for all."""
    room = len(starts)
    num = 0
    for row in range(len(offsets) - 1):
        place, stop = offsets[row], offsets[row + 1]
        while True:
            end, hashed, continued = _line(data, place, stop)
            if num < room:
                starts[num], lengths[num], chars[num] = place, end - place, end - place - continued
                hashes[num] = hashed
                kinds[num] = _kind(data, place, end, table)
            num += 1
            if end == stop:
                break
            place = end + 1
        rows[row + 1] = num
    return num


@inlined
def _feeds(value):
    """The highest bit of the first of eight bytes that is a line feed, and perhaps of some after it."""
    others = value ^ _FEEDS
    return (others - _ONES) & ~others & _HIGH


@inlined
def _line(data, place, stop):
    """Where the line that begins at `place` ends, its hash, and how many of its bytes continue a character."""
    begun = place
    state = _SEED
    continued = np.uint64(0)
    while place + 8 <= stop:
        value = load_u64(data, place)
        if _feeds(value):
            break
        if value & _HIGH:
            continued += continuations(value)
        state = mixed(state, value)
        place += 8
    value = load(data, place)
    left = min(np.int64(trailing_zeros(_feeds(value)) >> np.uint64(3)), stop - place)
    if left > 0:
        value = first_bytes(value, left)
        continued += continuations(value)
        state = mixed(state, value)
        place += left
    return place, finished(state ^ np.uint64(place - begun)), np.int64(continued)


@inlined
def _kind(data, start, stop, table):
    if start == stop:
        return BLANK
    last = np.int64(data[stop - 1])
    kind = ENDS_SENTENCE if last == 46 or last == 33 or last == 63 else 0
    while data[start] == 32 and start + 1 < stop:
        start += 1
    dots = last == 46 and (start + 1 == stop or data[stop - 2] == 46)
    if 32 < data[start] < 0x80 and data[start] != 45 and 32 < last < 0x80 and not dots:
        return kind
    return kind | _odd_kind(data, start, stop, table)


@compiled
def _odd_kind(data, start, stop, table):
    """Kinds of a line that is not empty, whatever its first and last characters are."""
    code, _ = decode(data, last_start(data, start, stop), stop)
    kind = ENDS_SENTENCE if flags_of(table, code) & TERMINAL else 0
    start, stop = trim(data, start, stop, table)
    if start == stop:
        return kind | BLANK
    code, _ = decode(data, start, stop)
    if code == 0x2D or code == 0x2022:
        kind |= BULLET
    if data[stop - 1] == 46:
        return kind | (ELLIPSIS if stop - start >= 3 and data[stop - 2] == 46 and data[stop - 3] == 46 else 0)
    code, _ = decode(data, last_start(data, start, stop), stop)
    return kind | (ELLIPSIS if code == 0x2026 else 0)


@inlined
def _seen(key, keys, marks, base, bits, mark):
    """Whether `key` is in the first 2**bits slots already; puts it there under `mark`. Marks below `base` are old."""
    last = (1 << bits) - 1
    slot = np.int64(key >> np.uint64(64 - bits))
    while marks[slot] >= base:
        if keys[slot] == key:
            return True
        slot = (slot + 1) & last
    keys[slot], marks[slot] = key, mark
    return False


@inlined
def _bits(count):
    """Bits of a table for `count` keys, at most half full."""
    bits = 4
    while 1 << bits < 2 * count:
        bits += 1
    return bits


@allocating
def _new_table(rows):
    """Keys and marks of a table for the longest row."""
    most = 1
    for row in range(len(rows) - 1):
        most = max(most, rows[row + 1] - rows[row])
    size = 1 << _bits(most)
    return np.empty(size, np.uint64), np.full(size, -1, np.int64)


@allocating
def _mark_duplicates(rows, hashes, kinds):
    keys, marks = _new_table(rows)
    for row in range(len(rows) - 1):
        bits = _bits(rows[row + 1] - rows[row])
        for line in range(rows[row], rows[row + 1]):
            if _seen(hashes[line], keys, marks, rows[row], bits, line):
                kinds[line] |= DUPLICATE


@compiled
def _repeated_lines(rows, lengths, chars, kinds, total, duplicates, duplicate_chars):
    for row in range(len(total)):
        first, last = rows[row], rows[row + 1] - 1
        for line in range(first, last + 1):
            if lengths[line] > 0:
                total[row] += 1
                if kinds[line] & DUPLICATE:
                    duplicates[row] += 1
                    duplicate_chars[row] += chars[line]
        if lengths[first] == 0:
            total[row] += 1
            if first == last or lengths[last] == 0:
                total[row] += first != last
                duplicates[row] += first != last
        elif lengths[last] == 0:
            total[row] += 1


@allocating
def _repeated_paragraphs(
    data, offsets, table, rows, starts, lengths, chars, hashes, total, duplicates, duplicate_chars
):
    keys, marks = _new_table(rows)
    for row in range(len(total)):
        bits = _bits(rows[row + 1] - rows[row])
        begin, end = trim(data, offsets[row], offsets[row + 1], table)
        if begin == end:
            total[row] = 1
            continue
        state, length, open_lines = _SEED, 0, 0
        for line in range(rows[row], rows[row + 1]):
            start, stop = starts[line], starts[line] + lengths[line]
            if stop < begin or start >= end:
                continue
            if start < stop:
                hashed, count = hashes[line], np.int64(chars[line])
                if start < begin or stop > end:
                    start, stop = max(start, begin), min(stop, end)
                    _, hashed, continued = _line(data, start, stop)
                    count = stop - start - continued
                state = mixed(state, hashed)
                length += count
                open_lines += 1
                if stop < end:
                    continue
            if open_lines:
                length += open_lines - 1
                total[row] += 1
                if _seen(finished(state), keys, marks, rows[row], bits, line):
                    duplicates[row] += 1
                    duplicate_chars[row] += length
                state, length, open_lines = _SEED, 0, 0


@compiled
def _count_forms(data, table, rows, starts, lengths, kinds, odd_breaks, counts):
    for row in range(len(odd_breaks)):
        last = rows[row + 1] - 1
        if odd_breaks[row]:
            for line in range(rows[row], last + 1):
                _count_parts(data, starts[line], starts[line] + lengths[line], line == last, table, row, counts)
            continue
        counts[0, row] = last - rows[row] + (lengths[last] > 0)
        for line in range(rows[row], last + 1):
            kind = np.int64(kinds[line])
            counts[1, row] += kind & BULLET != 0
            counts[2, row] += kind & ELLIPSIS != 0


@compiled
def _count_parts(data, start, stop, is_last, table, row, counts):
    """Count the lines into which other breaks than line feeds cut a line."""
    if not is_last and start < stop and data[stop - 1] == 13:
        stop -= 1
    place = start
    while place < stop:
        if place + 8 <= stop and no_break(load(data, place)):
            place += 8
            continue
        code, length = decode(data, place, stop)
        if flags_of(table, code) & BREAK:
            _count_part(data, start, place, table, row, counts)
            start = place + length
        place += length
    if start < stop or not is_last:
        _count_part(data, start, stop, table, row, counts)


@compiled
def _count_part(data, start, stop, table, row, counts):
    kind = _kind(data, start, stop, table)
    counts[0, row] += 1
    counts[1, row] += kind & BULLET != 0
    counts[2, row] += kind & ELLIPSIS != 0
