"""Words of texts, found once for all filters: their bytes laid end to end, and what rules ask of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dataeff.arrow import I64, U8, U64
from dataeff.errors import InputError
from dataeff.kernel.blocks import BLOCK, between, between_16
from dataeff.kernel.characters import (
    BREAK,
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
from dataeff.kernel.compiled import allocating, compiled, inlined
from dataeff.kernel.memory import count_ones, load_u64, store_u64, trailing_zeros
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
_ONES = np.uint64(0x0101010101010101)
_FIRST = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD6E8FEB86659FD93)
FIRST_EIGHT = np.array([(1 << 8 * min(left, 8)) - 1 for left in range(17)], np.uint64)
"""Which of eight bytes are a word's that has so many left."""
NEXT_EIGHT = np.array([(1 << 8 * max(left - 8, 0)) - 1 for left in range(17)], np.uint64)
"""The same of the eight after them."""


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


@inlined
def load(data, place):
    """Eight bytes from `place` on, with zeros for those beyond the array."""
    if place + 8 <= len(data):
        return load_u64(data, place)
    value = np.uint64(0)
    for ahead in range(len(data) - place):
        value |= np.uint64(data[place + ahead]) << np.uint64(8 * ahead)
    return value


@inlined
def first_bytes(value, count):
    """The first `count` (1 to 8) of eight bytes, zeros for the others."""
    return value & (~np.uint64(0) >> np.uint64(64 - 8 * count))


@inlined
def first_bits(count):
    """The lowest `count` (up to 64) bits."""
    return ~np.uint64(0) >> (np.uint64(64) - np.uint64(count)) if count else np.uint64(0)


@inlined
def mixed(state, value):
    """A step of a 64-bit hash."""
    state = (state ^ value) * _FIRST
    return state ^ state >> np.uint64(32)


@inlined
def finished(state):
    """The last step of a 64-bit hash."""
    state = (state ^ state >> np.uint64(29)) * _SECOND
    return state ^ state >> np.uint64(32)


@compiled
def _count_chars(data, offsets, counts):
    for row in range(len(counts)):
        text = data[offsets[row] : offsets[row + 1]]
        count = 0
        for at in range(len(text)):
            count += (text[at] & 0xC0) != 0x80
        counts[row] = count


@inlined
def continuations(value):
    """How many of eight bytes continue a character."""
    return (value >> np.uint64(7) & ~value >> np.uint64(6) & _ONES) * _ONES >> np.uint64(56)


@inlined
def no_break(value):
    """Whether none of eight bytes can be part of a line break: all are ASCII from the space on."""
    return ((value - _ONES * np.uint64(0x20)) | value) & _HIGH == 0


@inlined
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


@compiled
def filled(data, place, stop, spill):
    """A bit for each of up to 64 bytes that is not white space, and how many bytes of white space spill over.

    Args:
        data, place, stop: Where.
        spill: Bytes at the start that belong to white space of the block before.
    """
    bits = high = leads = np.uint64(0)
    if place + BLOCK <= len(data):
        bits = between(data, place, 9, 13) | between(data, place, 28, 32)
        high = between(data, place, 0x80, 0xFF)
        leads = between(data, place, 0xC2, 0xC2) | between(data, place, 0xE1, 0xE3)
    else:
        for at in range(place, stop):
            byte = data[at]
            bits |= np.uint64(9 <= byte <= 13 or 28 <= byte <= 32) << np.uint64(at - place)
            high |= np.uint64(byte >= 0x80) << np.uint64(at - place)
        leads = high
    over = 0
    if high:
        bits |= (np.uint64(1) << np.uint64(spill)) - np.uint64(1)
        while leads:
            at = place + np.int64(trailing_zeros(leads))
            leads &= leads - np.uint64(1)
            length = _space_length(data, at, stop)
            bits |= ((np.uint64(1) << np.uint64(length)) - np.uint64(1)) << np.uint64(at - place)
            over = max(over, at + length - place - BLOCK)
    if stop - place < BLOCK:
        bits |= ~np.uint64(0) << np.uint64(stop - place)
    return ~bits, over


@compiled
def _breaks(data, place, stop):
    """A bit for the last byte of each line break in up to 64 bytes, and whether one is more than a line feed."""
    feeds = odd = last = np.uint64(0)
    if place + BLOCK <= len(data):
        feeds = between(data, place, 10, 10)
        odd = between(data, place, 11, 13) | between(data, place, 0x1C, 0x1E)
        last = between(data, place, 0x85, 0x85) | between(data, place, 0xA8, 0xA9)
    else:
        for at in range(place, stop):
            byte = data[at]
            feeds |= np.uint64(byte == 10) << np.uint64(at - place)
            odd |= np.uint64(11 <= byte <= 13 or 0x1C <= byte <= 0x1E) << np.uint64(at - place)
            last |= np.uint64(byte >= 0x80) << np.uint64(at - place)
    while last:
        # U+0085, U+2028 and U+2029 are the only breaks beyond ASCII.
        bit = last & (~last + np.uint64(1))
        last ^= bit
        at = place + np.int64(trailing_zeros(bit))
        if data[at] == 0x85:
            odd |= bit * np.uint64(at >= 1 and data[at - 1] == 0xC2)
        elif data[at] | 1 == 0xA9:
            odd |= bit * np.uint64(at >= 2 and data[at - 1] == 0x80 and data[at - 2] == 0xE2)
    if stop - place < BLOCK:
        here = first_bits(stop - place)
        feeds &= here
        odd &= here
    return feeds | odd, odd != 0


@compiled
def _find_words(data, offsets, table, rows, text, starts, kinds, odd_breaks):
    """Lay the words of all rows end to end; returns how many there are, whether or not there was room for all."""
    room = len(kinds)
    num = 0
    at = 0
    for row in range(len(offsets) - 1):
        place, stop = offsets[row], offsets[row + 1]
        begun, spill = -1, 0
        before = broken = np.uint64(0)
        while place < stop:
            solid, spill = filled(data, place, stop, spill)
            after = solid << np.uint64(1) | before
            begins, ends = solid & ~after, after & ~solid
            before = solid >> np.uint64(63)
            breaks, odd = _breaks(data, place, stop)
            if odd:
                odd_breaks[row] = True
            while begins | ends:
                if begun < 0:
                    begun = place + np.int64(trailing_zeros(begins))
                    earlier = (begins & (~begins + np.uint64(1))) - np.uint64(1)
                    begins &= begins - np.uint64(1)
                    if broken | breaks & earlier and rows[row] < num <= room:
                        kinds[num - 1] |= ENDS_LINE
                    breaks &= ~earlier
                    broken = np.uint64(0)
                if ends == 0:
                    break
                end = place + np.int64(trailing_zeros(ends))
                ends &= ends - np.uint64(1)
                if num < room:
                    starts[num], kinds[num] = at, 0
                    at = _copy(data, begun, end - begun, text, at)
                num += 1
                begun = -1
            broken |= breaks
            place += BLOCK
        if begun >= 0:
            if num < room:
                starts[num], kinds[num] = at, 0
                at = _copy(data, begun, stop - begun, text, at)
            num += 1
        if rows[row] < num <= room:
            kinds[num - 1] |= ENDS_LINE
        rows[row + 1] = num
    if num <= room:
        starts[num] = at
        text[at : at + PADDING] = 0
    return num


@inlined
def _copy(data, place, length, text, at):
    """Copy bytes, sixteen at first; returns where they end. Up to fifteen bytes behind are overwritten."""
    done = 0
    if place + 16 <= len(data):
        first, second = load_u64(data, place), load_u64(data, place + 8)
        store_u64(text, at, first)
        store_u64(text, at + 8, second)
        done = 16
    for more in range(done, length, 8):
        store_u64(text, at + more, load(data, place + more))
    return at + length


@compiled
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


@allocating
def _look_at_words(text, starts, table, chars, hashes, kinds):
    odd = np.empty(len(kinds), np.int32)
    num_odd = _look_at_plain_words(text, starts, chars, hashes, kinds, odd)
    for number in range(num_odd):
        word = np.int64(odd[number])
        place, stop = np.int64(starts[word]), np.int64(starts[word + 1])
        kinds[word] |= _look_at_characters(text, place, stop, table) | _ending(text, place, stop, table)


@compiled
def _look_at_plain_words(text, starts, chars, hashes, kinds, odd):
    """Hashes and code points of all words, and kinds of those for which sixteen bytes at once can tell.

    Nearly without a branch: what follows a word's last letter or digit is nearly always ASCII punctuation, and ends a
    sentence with its last mark or not at all. The others' numbers are put in `odd`; returns how many there are.
    """
    num_odd = 0
    total = 0
    stop = np.int64(starts[0])
    for word in range(len(kinds)):
        place, stop = stop, np.int64(starts[word + 1])
        chars[word] = total
        state = np.uint64(stop - place) * _SECOND
        letters = plain = high = wide = continued = np.uint64(0)
        at = place
        while stop - at > 16:
            state = mixed(mixed(state, load_u64(text, at)), load_u64(text, at + 8))
            letters |= between_16(text, at, 65, 90) | between_16(text, at, 97, 122)
            plain |= between_16(text, at, 48, 57)
            high |= between_16(text, at, 0x80, 0xFF)
            wide |= between_16(text, at, 0xE0, 0xFF)
            continued += count_ones(between_16(text, at, 0x80, 0xBF))
            at += 16
        left = np.uint64(stop - at)
        state = mixed(state, load_u64(text, at) & FIRST_EIGHT[left])
        hashes[word] = finished(mixed(state, load_u64(text, at + 8) & NEXT_EIGHT[left]))
        # A bit for each of the last sixteen bytes or fewer.
        here = first_bits(left)
        last_letters = (between_16(text, at, 65, 90) | between_16(text, at, 97, 122)) & here
        last_plain = last_letters | between_16(text, at, 48, 57) & here
        last_high = between_16(text, at, 0x80, 0xFF) & here
        ends = (between_16(text, at, 46, 46) | between_16(text, at, 33, 33) | between_16(text, at, 63, 63)) & here
        ended = ends >> (left - np.uint64(1))
        letters |= last_letters
        high |= last_high
        wide |= between_16(text, at, 0xE0, 0xFF) & here
        continued += count_ones(between_16(text, at, 0x80, 0xBF) & here)
        total += stop - place - np.int64(continued)
        kind = (letters != 0) * HAS_LETTER | (letters | plain | last_plain != 0) * HAS_CONTENT
        kinds[word] |= kind | np.int64(ended) * ENDS_SENTENCE
        odd[num_odd] = word
        untold = (last_plain <= last_high) | (ended == 0) & (ends > last_plain)
        num_odd += untold | (high != 0) & ((wide != 0) | (letters == 0))
    chars[len(kinds)] = total
    return num_odd


@compiled
def _look_at_characters(text, place, stop, table):
    """What kinds of characters a word has."""
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
        place += length
    return kind


@compiled
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


@compiled
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


@compiled
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
