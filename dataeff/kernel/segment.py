"""Words of texts, found once for all filters: their bytes laid end to end, and what rules ask of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dataeff.arrow import I64, U8, U64
from dataeff.errors import InputError
from dataeff.kernel.blocks import BLOCK, between, sharing
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
from dataeff.kernel.compiled import compiled, inlined
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
_UNTOLD = 128
"""What the word is has yet to be told, character by character."""

PADDING = BLOCK
"""Zero bytes that follow the last word, so that whole blocks can be loaded anywhere."""
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
        starts, kinds = np.empty(room + 1, np.int32), np.zeros(room + BLOCK, np.uint8)
        num = find(data, offsets, table, rows, text, starts, kinds, odd_breaks)
        if num <= room:
            break
        room = num
    text[starts[num] : starts[num] + PADDING] = 0
    starts = starts[: num + 1]
    chars, hashes = np.empty(num + 1, np.int32), np.empty(num, np.uint64)
    sentences = np.zeros(len(offsets) - 1, np.int64)
    _look_at_words(text, starts, table, chars, hashes, kinds)
    if not regex:
        _count_sentences(text, starts, kinds, table, rows, sentences)
    return Words(rows, text, starts, chars, hashes, kinds[:num], odd_breaks, sentences)


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
        if high:
            # What may begin white space beyond ASCII: two bytes that do, or one at the block's end.
            second = between(data, place, 0x80, 0x81) | between(data, place, 0x85, 0x85)
            second |= between(data, place, 0x9A, 0x9A) | between(data, place, 0xA0, 0xA0)
            leads = between(data, place, 0xC2, 0xC2) | between(data, place, 0xE1, 0xE3)
            leads &= second >> np.uint64(1) | np.uint64(1 << 63)
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
        if last:
            before = between(data, place, 0x80, 0x80) | between(data, place, 0xC2, 0xC2)
            last &= before << np.uint64(1) | np.uint64(1)
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
    """Lay the words of all rows end to end; returns how many there are, whether or not there was room for all.

    A block of 64 bytes begins where the first word begins that the block before has not all of.
    """
    room = len(starts) - 1
    num = 0
    at = 0
    for row in range(len(offsets) - 1):
        place, stop = offsets[row], offsets[row + 1]
        spill = 0
        while place < stop:
            solid, spill = filled(data, place, stop, spill)
            after = solid << np.uint64(1)
            begins, ends = solid & ~after, after & ~solid
            breaks, odd = _breaks(data, place, stop)
            if odd:
                odd_breaks[row] = True
            # Of breaks side by side the last tells all.
            breaks &= ~(breaks >> np.uint64(1))
            while breaks:
                until = breaks ^ (breaks - np.uint64(1))
                breaks &= ~until
                word = num + np.int64(count_ones(begins & until)) - 1
                if rows[row] <= word < room:
                    kinds[word] |= ENDS_LINE
            if solid == ~np.uint64(0):
                end = _word_end(data, place + BLOCK, stop)
                starts[min(num, room)] = at
                at = _copy(data, place, end - place, text, at)
                num += 1
                place = end
                continue
            while ends:
                begun = np.int64(trailing_zeros(begins))
                length = np.int64(trailing_zeros(ends)) - begun
                begins &= begins - np.uint64(1)
                ends &= ends - np.uint64(1)
                starts[np.uint64(min(num, room))] = at
                at = _copy(data, place + begun, length, text, at)
                num += 1
            place += np.int64(trailing_zeros(begins))
        if rows[row] < num <= room:
            kinds[num - 1] |= ENDS_LINE
        rows[row + 1] = num
    starts[min(num, room)] = at
    return num


@compiled
def _word_end(data, place, stop):
    """Where a word ends that goes on at `place`."""
    while place < stop:
        solid, _ = filled(data, place, stop, 0)
        if ~solid:
            return min(place + np.int64(trailing_zeros(~solid)), stop)
        place += BLOCK
    return stop


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
    room = len(starts) - 1
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
                    starts[min(num, room)] = at
                    num += 1
                inside = flags & WORD != 0
                for ahead in range(length):
                    text[at + ahead] = data[place + ahead]
                at += length
            place += length
        rows[row + 1] = num
    starts[min(num, room)] = at
    return num


@compiled
def _look_at_words(text, starts, table, chars, hashes, kinds):
    """Fill `chars`, `hashes` and `kinds`, which has room for 64 more."""
    _look_at_plain_words(text, starts, chars, hashes, kinds)
    for first in range(0, len(hashes), BLOCK):
        untold = sharing(kinds, first, _UNTOLD)
        while untold:
            word = first + np.int64(trailing_zeros(untold))
            untold &= untold - np.uint64(1)
            place, stop = np.int64(starts[word]), np.int64(starts[word + 1])
            kind = _look_at_characters(text, place, stop, table) | _ending(text, place, stop, table)
            kinds[word] = kinds[word] & ~_UNTOLD | kind


@inlined
def _some(bits, others, lasts):
    """Bits for the last bytes of runs in which a bit is set; `others` are all bytes of the runs but their last."""
    # A sum of all bits but the last and of one bit or more goes over to the last.
    return ((bits & others) + others | bits) & lasts


@compiled
def _look_at_plain_words(text, starts, chars, hashes, kinds):
    """Hashes and code points of all words, and kinds of those for which comparisons of bytes can tell.

    What follows a word's last letter or digit is nearly always ASCII punctuation, and ends a sentence with its last
    mark or not at all; the others are `_UNTOLD`. Bytes are compared 64 at once, for all words that they hold, and what
    is asked of each word is asked of all by operations on bits, in which a word's last byte stands for the word.
    """
    word = total = 0
    while word < len(hashes):
        base, stop = np.int64(starts[word]), np.int64(starts[word + 1])
        if stop - base > BLOCK:
            chars[word], hashes[word] = total, _hash(text, base, stop)
            kind, length = _look_at_long_word(text, base, stop)
            kinds[word] |= kind
            total += length
            word += 1
            continue
        leads = ~between(text, base, 0x80, 0xBF)
        first, begun = word, base
        lasts = np.uint64(0)
        while stop - base <= BLOCK:
            index = np.uint64(word)
            before = (np.uint64(1) << np.uint64(begun - base)) - np.uint64(1)
            chars[index] = total + np.int64(count_ones(leads & before))
            hashes[index] = _hash(text, begun, stop)
            lasts |= np.uint64(1) << np.uint64(stop - base - 1)
            begun = stop
            word += 1
            if word == len(hashes):
                break
            stop = np.int64(starts[np.uint64(word + 1)])
        here = first_bits(begun - base)
        total += np.int64(count_ones(leads & here))
        letters = between(text, base, 65, 90) | between(text, base, 97, 122)
        plain = letters | between(text, base, 48, 57)
        ends = between(text, base, 46, 46) | between(text, base, 33, 33) | between(text, base, 63, 63)
        high = between(text, base, 0x80, 0xFF)
        others = here & ~lasts
        has_letter, has_plain = _some(letters, others, lasts), _some(plain, others, lasts)
        # Runs of bytes that are no letters or digits; those at words' ends are the words' punctuation.
        run_lasts = ~plain & (lasts | plain >> np.uint64(1))
        run_others = here & ~plain & ~run_lasts
        untold = ~has_plain | _some(ends, run_others, run_lasts) & ~ends
        if high & here:
            wide = _some(between(text, base, 0xE0, 0xFF), others, lasts)
            untold |= _some(high, run_others, run_lasts) | _some(high, others, lasts) & (wide | ~has_letter)
        for index in range(np.uint64(first), np.uint64(word)):
            at = trailing_zeros(lasts)
            lasts &= lasts - np.uint64(1)
            kinds[index] |= _kind(has_letter >> at, has_plain >> at, ends >> at, untold >> at)
    chars[len(hashes)] = total


@inlined
def _kind(letter, plain, ended, untold):
    """Kinds from what is told by the lowest bit of each."""
    one = np.uint64(1)
    return letter & one | (plain & one) << np.uint64(1) | (ended & one) << np.uint64(2) | (untold & one) << np.uint64(7)


@compiled
def _look_at_long_word(text, at, stop):
    """Kinds of a word of more than 64 bytes, and its code points."""
    letters = plain = high = ends = last_plain = np.uint64(0)
    length = 0
    while at < stop:
        here = first_bits(min(stop - at, BLOCK))
        last_letters = (between(text, at, 65, 90) | between(text, at, 97, 122)) & here
        last_plain = last_letters | between(text, at, 48, 57) & here
        ends = (between(text, at, 46, 46) | between(text, at, 33, 33) | between(text, at, 63, 63)) & here
        letters |= last_letters
        plain |= last_plain
        high |= between(text, at, 0x80, 0xFF) & here
        length += np.int64(count_ones(~between(text, at, 0x80, 0xBF) & here))
        at += BLOCK
    ended = ends >> np.uint64(stop - at + BLOCK - 1)
    untold = (high != 0) | (last_plain == 0) | (ended == 0) & (ends > last_plain)
    kind = (letters != 0) * HAS_LETTER | (plain != 0) * HAS_CONTENT | np.int64(ended) * ENDS_SENTENCE
    return kind | untold * _UNTOLD, length


@inlined
def _hash(text, at, stop):
    """The hash of a word, not empty, behind which are at least sixteen more bytes."""
    state = np.uint64(stop - at) * _SECOND
    while stop - at > 16:
        state = mixed(mixed(state, load_u64(text, at)), load_u64(text, at + 8))
        at += 16
    left = np.uint64(stop - at)
    state = mixed(state, load_u64(text, at) & FIRST_EIGHT[left])
    return finished(mixed(state, load_u64(text, at + 8) & NEXT_EIGHT[left]))


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
    """Count them 64 words at once; `kinds` has room for as many more."""
    for row in range(len(sentences)):
        fresh, ended = np.uint64(1), np.uint64(0)
        count = 0
        for first in range(rows[row], rows[row + 1], BLOCK):
            here = first_bits(min(rows[row + 1] - first, BLOCK))
            lines, sentence_ends = sharing(kinds, first, ENDS_LINE), sharing(kinds, first, ENDS_SENTENCE)
            others = ~sharing(kinds, first, ALL_PUNCTUATION)
            fresh |= lines << np.uint64(1)
            ended |= sentence_ends << np.uint64(1)
            # What is ended stays so over words of punctuation: the sum's carries run through them.
            over = ~others & ~fresh
            ended |= (ended & over) + over ^ over
            count += np.int64(count_ones((fresh | ended & others) & here))
            fresh = lines >> np.uint64(63)
            ended = (sentence_ends | ended & over) >> np.uint64(63)
            wide = sharing(kinds, first, HAS_WIDE_MARK) & here
            while wide:
                word = first + np.int64(trailing_zeros(wide))
                wide &= wide - np.uint64(1)
                count += _wide_ends(text, np.int64(starts[word]), np.int64(starts[word + 1]), table)
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
