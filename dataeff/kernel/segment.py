"""Words of texts, found once for all filters: their bytes laid end to end, and what rules ask of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from dataeff.arrow import I64, U8, U64
from dataeff.errors import InputError
from dataeff.kernel.characters import (
    BREAK,
    DIGIT,
    LETTER,
    PUNCTUATION,
    SPACE,
    SYMBOL,
    TERMINAL,
    WIDE_TERMINAL,
    WORD,
    characters,
    flags_of,
    last_start,
)
from dataeff.kernel.memory import load_u64, store_u64, trailing_zeros
from dataeff.kernel.words import decode

I32: TypeAlias = npt.NDArray[np.int32]
HAS_LETTER = 1
"""Some character of the word is a letter."""
HAS_CONTENT = 2
"""Some character of the word is not a punctuation mark."""
ENDS_SENTENCE = 4
"""The punctuation at the word's end has a mark that ends a sentence."""
ALL_PUNCTUATION = 8
"""Nothing but punctuation (Unicode category P) is in the word."""
ENDS_LINE = 16
"""The word is its line's last, by `str.splitlines()`."""
HAS_WIDE_MARK = 32
"""An East Asian mark that ends a sentence is in the word."""

PADDING = 16
"""Zero bytes that follow the last word."""
MAX_BYTES = 2**31 - 1 - PADDING
"""Text that one call can take: places are 32 bits wide, for speed."""
_HIGH = np.uint64(0x8080808080808080)
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_CASE = np.uint64(0x2020202020202020)
_ONES = np.uint64(0x0101010101010101)
_GATHER = np.uint64(0x0102040810204080)
_FIRST = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD6E8FEB86659FD93)


class Words(NamedTuple):
    """All words of some rows, in order; row `r` has those from `rows[r]` up to `rows[r + 1]`."""

    rows: I64
    """Shape (rows + 1,)."""
    text: U8
    """The words without anything between them, then `PADDING` zeros."""
    starts: I32
    """Where each begins in `text`, shape (words + 1,)."""
    chars: I32
    """Code points before each, shape (words + 1,)."""
    hashes: U64
    """Shape (words,)."""
    kinds: U8
    """`HAS_LETTER` and so on, shape (words,)."""
    odd_breaks: npt.NDArray[np.bool_]
    """Rows in which something other than a line feed ends a line for `str.splitlines()`, shape (rows,)."""
    sentences: I64
    """Sentences of each row; only for words between white space, else 0. Shape (rows,)."""


def find_words(data: U8, offsets: I64, *, regex: bool) -> Words:
    r"""Words between white space, as `str.split()`; or, with `regex`, `re.findall(r"\w+|[^\w\s]", text)`.

    A sentence ends where a word ends with punctuation among which is a mark that ends sentences, and a word with more
    than punctuation follows; at the end of a line; and after an East Asian mark within a word.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
        regex: Which definition.

    Raises:
        InputError: The rows have 2 GiB of text or more.
    """
    num_bytes = int(offsets[-1] - offsets[0])
    if num_bytes > MAX_BYTES:
        raise InputError(
            f"a batch of {len(offsets) - 1} rows has {num_bytes:,} bytes of text; filters take at most "
            f"{MAX_BYTES:,} at once: read in smaller batches, or split the document"
        )
    table = characters()
    find = _find_regex_words if regex else _find_words
    rows = np.zeros(len(offsets), np.int64)
    odd_breaks = np.zeros(len(offsets) - 1, np.bool_)
    text = np.empty(num_bytes + PADDING, np.uint8)
    room = num_bytes // 4 + len(offsets) + 1024
    while True:
        starts, kinds = np.empty(room + 1, np.int32), np.empty(room, np.uint8)
        num = find(data, offsets, table, rows, text, starts, kinds, odd_breaks)
        if num <= room:
            break
        room = num
    starts, kinds = starts[: num + 1], kinds[:num]
    chars, hashes = np.empty(num + 1, np.int32), np.empty(num, np.uint64)
    sentences = np.zeros(len(offsets) - 1, np.int64)
    _look_at_words(text, starts, table, chars, hashes, kinds)
    if not regex:
        _count_sentences(text, starts, kinds, table, rows, sentences)
    return Words(rows, text, starts, chars, hashes, kinds, odd_breaks, sentences)


def count_chars(data: U8, offsets: I64) -> I64:
    """Code points of each row, shape (rows,)."""
    counts = np.zeros(len(offsets) - 1, np.int64)
    _count_chars(data, offsets, counts)
    return counts


def word_hashes(words: Sequence[str]) -> U64:
    """The hashes that `find_words` gives words without white space, shape (words,)."""
    raw = "".join(word + " " for word in words).encode("utf-8", "surrogatepass")
    offsets = np.array([0, len(raw)], np.int64)
    offsets.flags.writeable = False
    return find_words(np.frombuffer(raw, np.uint8), offsets, regex=False).hashes


@njit(nogil=True, cache=True, inline="always")
def load(data, place):
    """Eight bytes from `place` on, with zeros for those beyond the array."""
    if place + 8 <= len(data):
        return load_u64(data, place)
    value = np.uint64(0)
    for ahead in range(len(data) - place):
        value |= np.uint64(data[place + ahead]) << np.uint64(8 * ahead)
    return value


@njit(nogil=True, cache=True, inline="always")
def first_bytes(value, count):
    """The first `count` (1 to 8) of eight bytes, zeros for the others."""
    return value & (~np.uint64(0) >> np.uint64(64 - 8 * count))


@njit(nogil=True, cache=True, inline="always")
def mixed(state, value):
    """A step of a 64-bit hash."""
    state = (state ^ value) * _FIRST
    return state ^ state >> np.uint64(32)


@njit(nogil=True, cache=True, inline="always")
def finished(state):
    """The last step of a 64-bit hash."""
    state = (state ^ state >> np.uint64(29)) * _SECOND
    return state ^ state >> np.uint64(32)


@njit(nogil=True, cache=True, inline="always")
def eight_flags(high_bits):
    """One bit for each byte whose highest bit is set; the other bits must be 0."""
    return (high_bits >> np.uint64(7)) * _GATHER >> np.uint64(56)


@njit(nogil=True, cache=True)
def _count_chars(data, offsets, counts):
    for row in range(len(counts)):
        text = data[offsets[row] : offsets[row + 1]]
        count = 0
        for at in range(len(text)):
            count += (text[at] & 0xC0) != 0x80
        counts[row] = count


@njit(nogil=True, cache=True, inline="always")
def continuations(value):
    """How many of eight bytes continue a character."""
    return (value >> np.uint64(7) & ~value >> np.uint64(6) & _ONES) * _ONES >> np.uint64(56)


@njit(nogil=True, cache=True, inline="always")
def no_break(value):
    """Whether none of eight bytes can be part of a line break: all are ASCII from the space on."""
    return ((value - _ONES * np.uint64(0x20)) | value) & _HIGH == 0


@njit(nogil=True, cache=True, inline="always")
def _space_flags(value):
    """The highest bit of each of eight ASCII bytes that is white space: 9 to 13 and 28 to 32."""
    low = value & _LOW7
    control = (low + np.uint64(0x7777777777777777)) ^ (low + np.uint64(0x7272727272727272))
    rest = (low + np.uint64(0x6464646464646464)) ^ (low + np.uint64(0x5F5F5F5F5F5F5F5F))
    return (control | rest) & ~value & _HIGH


@njit(nogil=True, cache=True, inline="always")
def _space_leads(value):
    """The highest bit of each of eight bytes with which white space beyond ASCII can begin, and of a few more."""
    # 0xC2, and 0xE0 to 0xE3.
    two = (value ^ np.uint64(0xC2C2C2C2C2C2C2C2)) & _LOW7
    three = (value & np.uint64(0x7C7C7C7C7C7C7C7C)) ^ np.uint64(0x6060606060606060)
    return value & (~(two + _LOW7) | ~(three + _LOW7)) & _HIGH


@njit(nogil=True, cache=True, inline="always")
def _space_length(data, at, stop):
    """Bytes of the white space beyond ASCII that begins at `at`; 0 where none does."""
    lead = data[at]
    if lead == 0xC2:
        return 2 if at + 1 < stop and (data[at + 1] == 0x85 or data[at + 1] == 0xA0) else 0
    if at + 2 >= stop:
        return 0
    second, third = np.int64(data[at + 1]), np.int64(data[at + 2])
    found = lead == 0xE3 and second == 0x80 and third == 0x80
    found |= lead == 0xE1 and second == 0x9A and third == 0x80
    if lead == 0xE2:
        found |= second == 0x80 and (0x80 <= third <= 0x8A or third == 0xA8 or third == 0xA9 or third == 0xAF)
        found |= second == 0x81 and third == 0x9F
    return 3 if found else 0


@njit(nogil=True, cache=True)
def filled(data, place, stop, spill):
    """A bit for each of up to 64 bytes that is not white space, and how many bytes of white space spill over.

    Args:
        data, place, stop: Where.
        spill: Bytes at the start that belong to white space of the block before.
    """
    bits = np.uint64(0)
    high = np.uint64(0)
    if place + 64 <= len(data):
        for part in range(8):
            value = load_u64(data, place + 8 * part)
            high |= value
            bits |= eight_flags(_space_flags(value)) << np.uint64(8 * part)
    else:
        for part in range(8):
            if place + 8 * part >= stop:
                break
            value = load(data, place + 8 * part)
            high |= value
            bits |= eight_flags(_space_flags(value)) << np.uint64(8 * part)
    over = 0
    if high & _HIGH:
        bits |= (np.uint64(1) << np.uint64(spill)) - np.uint64(1)
        for part in range(place, min(place + 64, stop), 8):
            leads = _space_leads(load(data, part))
            while leads:
                at = part + np.int64(trailing_zeros(leads) >> np.uint64(3))
                leads &= leads - np.uint64(1)
                length = _space_length(data, at, stop)
                bits |= ((np.uint64(1) << np.uint64(length)) - np.uint64(1)) << np.uint64(at - place)
                over = max(over, at + length - place - 64)
    if stop - place < 64:
        bits |= ~np.uint64(0) << np.uint64(stop - place)
    return ~bits, over


@njit(nogil=True, cache=True)
def _find_words(data, offsets, table, rows, text, starts, kinds, odd_breaks):
    """Lay the words of all rows end to end; returns how many there are, whether or not there was room for all."""
    room = len(kinds)
    num = 0
    at = 0
    for row in range(len(offsets) - 1):
        place, stop = offsets[row], offsets[row + 1]
        begun, ended = -1, place
        before = np.uint64(0)
        spill = 0
        while place < stop:
            solid, spill = filled(data, place, stop, spill)
            turns = solid ^ (solid << np.uint64(1) | before)
            before = solid >> np.uint64(63)
            while turns:
                here = place + np.int64(trailing_zeros(turns))
                turns &= turns - np.uint64(1)
                if begun < 0:
                    begun = here
                    if here - ended == 1 and data[ended] == 10:
                        if rows[row] < num <= room:
                            kinds[num - 1] |= ENDS_LINE
                    elif here - ended != 1 or data[ended] != 32:
                        broken = _look_at_gap(data, ended, here, row, odd_breaks)
                        if broken and rows[row] < num <= room:
                            kinds[num - 1] |= ENDS_LINE
                else:
                    if num < room:
                        starts[num], kinds[num] = at, 0
                        at = _copy(data, begun, here - begun, text, at)
                    num += 1
                    begun, ended = -1, here
            place += 64
        if begun >= 0:
            if num < room:
                starts[num], kinds[num] = at, 0
                at = _copy(data, begun, stop - begun, text, at)
            num += 1
            ended = stop
        _look_at_gap(data, ended, stop, row, odd_breaks)
        if rows[row] < num <= room:
            kinds[num - 1] |= ENDS_LINE
        rows[row + 1] = num
    if num <= room:
        starts[num] = at
        text[at : at + PADDING] = 0
    return num


@njit(nogil=True, cache=True, inline="always")
def _look_at_gap(data, place, stop, row, odd_breaks):
    """Whether a line ends in the white space between two words."""
    broken = False
    for at in range(place, stop):
        byte = data[at]
        if byte == 10:
            broken = True
        elif 11 <= byte <= 13 or 0x1C <= byte <= 0x1E:
            broken = odd_breaks[row] = True
        elif byte >= 0x80:
            # U+0085, U+2028 and U+2029 are the only breaks beyond ASCII.
            line_end = byte == 0x85 and data[at - 1] == 0xC2
            separator = (byte | 1) == 0xA9 and at - 2 >= place and data[at - 1] == 0x80 and data[at - 2] == 0xE2
            if line_end or separator:
                broken = odd_breaks[row] = True
    return broken


@njit(nogil=True, cache=True, inline="always")
def _copy(data, place, length, text, at):
    """Copy bytes, eight at a time; returns where they end. Up to seven bytes behind are overwritten."""
    for done in range(0, length, 8):
        store_u64(text, at + done, load(data, place + done))
    return at + length


@njit(nogil=True, cache=True)
def _find_regex_words(data, offsets, table, rows, text, starts, kinds, odd_breaks):
    room = len(kinds)
    num = 0
    at = 0
    for row in range(len(offsets) - 1):
        place, stop = offsets[row], offsets[row + 1]
        inside = False
        while place < stop:
            code, length = decode(data, place, stop)
            flags = flags_of(table, code)
            if flags & SPACE:
                if flags & BREAK and code != 10:
                    odd_breaks[row] = True
                inside = False
            else:
                if not (inside and flags & WORD):
                    if num < room:
                        starts[num], kinds[num] = at, 0
                    num += 1
                inside = flags & WORD != 0
                if num <= room:
                    for ahead in range(length):
                        text[at + ahead] = data[place + ahead]
                    at += length
            place += length
        rows[row + 1] = num
    if num <= room:
        starts[num] = at
        text[at : at + PADDING] = 0
    return num


@njit(nogil=True, cache=True, inline="always")
def _letters(value):
    """The highest bit of each of eight bytes that is an ASCII letter."""
    low = (value | _CASE) & _LOW7
    return ((low + np.uint64(0x1F1F1F1F1F1F1F1F)) ^ (low + np.uint64(0x0505050505050505))) & ~value & _HIGH


@njit(nogil=True, cache=True, inline="always")
def _digits(value):
    """The highest bit of each of eight bytes that is an ASCII digit."""
    low = value & _LOW7
    return ((low + np.uint64(0x5050505050505050)) ^ (low + np.uint64(0x4646464646464646))) & ~value & _HIGH


@njit(nogil=True, cache=True)
def _look_at_words(text, starts, table, chars, hashes, kinds):
    total = 0
    stop = np.int64(starts[0])
    for word in range(len(kinds)):
        place, stop = stop, np.int64(starts[word + 1])
        chars[word] = total
        state = np.uint64(stop - place) * _SECOND
        at = place
        high = wide = letters = digits = np.uint64(0)
        while stop - at > 16:
            value = load_u64(text, at)
            state = mixed(state, value)
            high |= value
            wide |= value & value << np.uint64(1) & value << np.uint64(2)
            letters |= _letters(value)
            digits |= _digits(value)
            at += 8
        # Without a branch: the rest, at most 16 bytes, as its first eight and its last eight.
        left = stop - at
        value = first_bytes(load_u64(text, at), min(left, 8))
        state = mixed(state, value)
        last_value = load_u64(text, max(stop - 8, at)) if left > 8 else np.uint64(0)
        hashes[word] = finished(mixed(state, last_value))
        high |= value | last_value
        wide |= value & value << np.uint64(1) & value << np.uint64(2)
        wide |= last_value & last_value << np.uint64(1) & last_value << np.uint64(2)
        letters |= _letters(value) | _letters(last_value)
        digits |= _digits(value) | _digits(last_value)
        kind = np.int64(kinds[word])
        if high & _HIGH:
            total += stop - place
            if letters and not wide & _HIGH:
                for at in range(place, stop, 8):
                    total -= np.int64(continuations(first_bytes(load_u64(text, at), min(stop - at, 8))))
                kind |= HAS_LETTER | HAS_CONTENT
            else:
                count, seen = _look_at_characters(text, place, stop, table)
                total += count - (stop - place)
                kind |= seen
        else:
            total += stop - place
            kind |= (letters != 0) * (HAS_LETTER | HAS_CONTENT) | (digits != 0) * HAS_CONTENT
        last = np.int64(text[stop - 1])
        before = np.int64(text[max(stop - 2, place)])
        flags = np.int64(table.flags[last])
        plain = (last | before) < 0x80 and (flags | np.int64(table.flags[before])) & (LETTER | DIGIT) != 0
        if plain:
            kind |= (flags & TERMINAL != 0) * ENDS_SENTENCE
        else:
            kind |= _ending(text, place, stop, table)
        kinds[word] = kind
    chars[len(kinds)] = total


@njit(nogil=True, cache=True)
def _look_at_characters(text, place, stop, table):
    """Count a word's code points, and say what kinds of characters it has."""
    count = 0
    kind = 0
    while place < stop:
        code, length = decode(text, place, stop)
        flags = flags_of(table, code)
        if flags & LETTER:
            kind |= HAS_LETTER
        if flags & SYMBOL == 0:
            kind |= HAS_CONTENT
        if flags & WIDE_TERMINAL:
            kind |= HAS_WIDE_MARK
        count += 1
        place += length
    return count, kind


@njit(nogil=True, cache=True)
def _ending(text, place, stop, table):
    """Whether the punctuation at a word's end ends a sentence, and whether the word is nothing else."""
    kind = 0
    while stop > place:
        last = last_start(text, place, stop)
        code, _ = decode(text, last, stop)
        flags = flags_of(table, code)
        if flags & TERMINAL:
            kind |= ENDS_SENTENCE
        if flags & PUNCTUATION == 0:
            return kind
        stop = last
    return kind | ALL_PUNCTUATION


@njit(nogil=True, cache=True)
def _count_sentences(text, starts, kinds, table, rows, sentences):
    for row in range(len(sentences)):
        fresh, ended = True, False
        count = 0
        for word in range(rows[row], rows[row + 1]):
            kind = kinds[word]
            if fresh or (ended and kind & ALL_PUNCTUATION == 0):
                count += 1
                ended = False
            if kind & HAS_WIDE_MARK:
                count += _wide_ends(text, np.int64(starts[word]), np.int64(starts[word + 1]), table)
            ended |= kind & ENDS_SENTENCE != 0
            fresh = kind & ENDS_LINE != 0
        sentences[row] = count


@njit(nogil=True, cache=True)
def _wide_ends(text, place, stop, table):
    """Sentences that end within a word: after an East Asian mark that more than punctuation follows."""
    count = 0
    ended = False
    while place < stop:
        code, length = decode(text, place, stop)
        flags = flags_of(table, code)
        if flags & WIDE_TERMINAL:
            ended = True
        elif ended and flags & PUNCTUATION == 0:
            count += 1
            ended = False
        place += length
    return count
