"""Bytes to folded words: the one place where text is looked at letter by letter for deduplication.

The words of a text are those of `unicodedata.normalize(form, text).casefold()`: runs of letters, marks, numbers and
connector punctuation (Unicode categories L, M, N, Pc), except that each Han, Hiragana, Katakana, Hangul, Thai, Lao,
Khmer and Myanmar letter is a word of its own, with the marks that follow it. Everything else separates.
"""

from __future__ import annotations

import unicodedata
from typing import Literal

import numpy as np

from dataeff.arrow import I64, U8
from dataeff.kernel.compiled import allocating, compiled, inlined
from dataeff.kernel.memory import load_u64, store_u64, trailing_zeros
from dataeff.kernel.unicode import (
    CLASS_MASK,
    COMBINING_SHIFT,
    EXPANDS,
    FOLDS,
    FOLLOWS,
    LEADS,
    MARK,
    NOT_NFC,
    NOT_NFKC,
    SEPARATOR,
    SOLO,
    Tables,
    tables,
)

PADDING = 80
"""Zero bytes that must follow the words in a buffer, so that whole blocks can be loaded anywhere."""
GROWTH = 4
"""Folded words take at most so many times the bytes of the text: two bytes can fold to six and get a separator."""
PIECE = 1 << 15
"""Bytes of a row that are folded at once, so that what comes of them stays in cache however long the row is."""

_NO_TABLES = Tables(
    np.zeros(256, np.uint16), np.zeros(256, np.uint16), np.zeros(256, np.int32), np.zeros((1, 3), np.uint32)
)
for _table in _NO_TABLES:
    _table.flags.writeable = False
_RUN = 3
"""ASCII bytes from which on they are taken together; fewer, such as the space between two words of another script, are
taken like any character, since a branch on them would go wrong at every word."""
_APART = 64
"""Bytes between two passages from which on they are normalised one by one."""
_HIGH = np.uint64(0x8080808080808080)
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_FIRST = np.uint64(0x9E3779B97F4A7C15)
_SECOND = np.uint64(0xD6E8FEB86659FD93)


def normal_form(data: U8, offsets: I64, form: Literal["NFC", "NFKC"]) -> tuple[U8, I64]:
    """Rows in a Unicode normal form.

    Nothing is copied unless a row may be in another form (see `kernel.unicode`); only the passages that may be are
    given to `unicodedata`, each from a character that ends all composition before it up to the next such.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
        form: `NFC` or `NFKC`.
    """
    if _is_ascii(data, offsets[0], offsets[-1]):
        return data, offsets
    flag, unicode = NOT_NFC if form == "NFC" else NOT_NFKC, tables()
    passages = np.empty((64, 3), np.int64)
    num = _find_passages(data, offsets, flag, unicode, passages)
    if num == 0:
        return data, offsets
    if num > len(passages):
        passages = np.empty((num, 3), np.int64)
        _find_passages(data, offsets, flag, unicode, passages)
    view, whole = data.data, bytearray()
    longer = np.zeros(num, np.int64)
    copied = int(offsets[0])
    for number, (_, start, stop) in enumerate(passages[:num].tolist()):
        text = bytes(view[start:stop]).decode("utf-8", "replace")
        normal = unicodedata.normalize(form, text).encode()
        whole += view[copied:start]
        whole += normal
        longer[number] = len(normal) - (stop - start)
        copied = stop
    whole += view[copied : offsets[-1]]
    sizes = np.diff(offsets)
    np.add.at(sizes, passages[:num, 0], longer)
    made = np.frombuffer(whole, np.uint8), np.concatenate([[0], np.cumsum(sizes)])
    for array in made:
        array.flags.writeable = False
    return made


def tables_for(data: U8, offsets: I64) -> Tables:
    """The Unicode tables, or, where no byte of the rows is above 127, empty ones that are never looked at."""
    return _NO_TABLES if _is_ascii(data, offsets[0], offsets[-1]) else tables()


@compiled
def _is_ascii(data, start, stop):
    while start + 64 <= stop:
        if not _are_ascii(data, start):
            return False
        start += 64
    for place in range(start, stop):
        if data[place] >= 0x80:
            return False
    return True


@inlined
def _are_ascii(data, place):
    """Whether 64 bytes are all below 128."""
    bits = np.uint64(0)
    for part in range(8):
        bits |= load_u64(data, place + 8 * part)
    return bits & _HIGH == 0


@inlined
def decode(data, place, stop):
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


@inlined
def _load(data, place, stop):
    """Eight bytes from `place` on, with zeros for those from `stop` on."""
    if place + 8 <= stop:
        return load_u64(data, place)
    word = np.uint64(0)
    for ahead in range(stop - place):
        word |= np.uint64(data[place + ahead]) << np.uint64(8 * ahead)
    return word


@inlined
def _first_of(word):
    """The code point that eight bytes begin with, and its length in bytes; U+FFFD for a byte that begins none.

    Without branches but for the rare, since lengths alternate unpredictably in most scripts.
    """
    lead = np.int64(word & np.uint64(0xFF))
    second = np.int64(word >> np.uint64(8) & np.uint64(0x3F))
    third = np.int64(word >> np.uint64(16) & np.uint64(0x3F))
    length = 1 + (lead >= 0xC0) + (lead >= 0xE0)
    code = lead
    code = (lead & 0x1F) << 6 | second if lead >= 0xC0 else code
    code = (lead & 0x0F) << 12 | second << 6 | third if lead >= 0xE0 else code
    if lead >= 0xF0:
        fourth = np.int64(word >> np.uint64(24) & np.uint64(0x3F))
        return min((lead & 0x07) << 18 | second << 12 | third << 6 | fourth, 0x10FFFF), 4
    if 0x80 <= lead < 0xC0:
        return 0xFFFD, 1
    return code, length


@compiled
def _find_passages(data, offsets, flag, unicode, passages):
    """Find what may not be in the normal form that `flag` stands for.

    Args:
        data: UTF-8 bytes.
        offsets: Row boundaries.
        flag: `NOT_NFC` or `NOT_NFKC`.
        unicode: The tables.
        passages: Filled with row, start and stop of each passage, as far as there is room.

    Returns:
        How many passages there are.
    """
    num = 0
    for row in range(len(offsets) - 1):
        earlier = num
        end = 0
        place, stop = offsets[row], offsets[row + 1]
        while place < stop:
            start, place = _next_passage(data, place, stop, flag, unicode)
            if start == place:
                break
            if num == earlier or start - end >= _APART:
                num += 1
                if num <= len(passages):
                    passages[num - 1, 0], passages[num - 1, 1] = row, start
            end = place
            if num <= len(passages):
                passages[num - 1, 2] = end
    return num


@compiled
def _next_passage(data, place, stop, flag, unicode):
    """Start and stop of the first passage that may not be in normal form; two equal numbers where none is.

    `place` must be a character that ends composition, or the row's start.
    """
    watched = flag | FOLLOWS | 0xFF << COMBINING_SHIFT
    last = 0
    leads = wrong = False
    safe = place
    while place < stop:
        word = _load(data, place, stop)
        length = np.int64(trailing_zeros(word & _HIGH) >> np.uint64(3))
        if length >= _RUN:
            if wrong:
                return safe, place
            while place + 64 <= stop and _are_ascii(data, place):
                length = 0
                place += 64
            place = min(place + length, stop)
            # Most ASCII starters compose with something.
            last, leads, safe = 0, True, place - 1
            continue
        code, length = _first_of(word)
        flags = np.int64(unicode.flags[np.int64(unicode.block[code >> 8]) << 8 | code & 255])
        combining = 0
        if flags & watched:
            combining = flags >> COMBINING_SHIFT
            wrong |= flags & flag != 0 or (combining and last > combining) or (flags & FOLLOWS != 0 and leads)
        elif wrong:
            return safe, place
        else:
            safe = place
        place += length
        last = combining
        leads = leads if combining else flags & LEADS != 0
    return (safe, stop) if wrong else (stop, stop)


@inlined
def encode(code, out, at):
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


@inlined
def _fold_eight(word):
    """Eight ASCII bytes folded: lower case; zero for all but letters, digits and the underscore."""
    upper = (word + np.uint64(0x3F3F3F3F3F3F3F3F)) & ~(word + np.uint64(0x2525252525252525)) & _HIGH
    lower = word | upper >> np.uint64(2)
    letter = (lower + np.uint64(0x1F1F1F1F1F1F1F1F)) & ~(lower + np.uint64(0x0505050505050505))
    digit = (word + np.uint64(0x5050505050505050)) & ~(word + np.uint64(0x4646464646464646))
    underscore = _HIGH - (word ^ np.uint64(0x5F5F5F5F5F5F5F5F))
    kept = (letter | digit | underscore) & _HIGH
    return lower & (kept | kept - (kept >> np.uint64(7)))


@compiled
def piece_end(data, place, stop, pending):
    """Where a piece of a row that begins at `place` ends: between characters.

    It has at least the bytes of `pending`, the part of a word that the pieces before ended with, so that a word that
    takes many pieces is not gone over in each of them.
    """
    end = place + max(PIECE, pending)
    if end >= stop:
        return stop
    for back in range(4):
        if data[end - back] & 0xC0 != 0x80:
            return end - back
    return end


@allocating
def room_for(out, at, length):
    """`out`, or a larger copy of it if the folded words of `length` bytes may not fit from `at` on."""
    needed = at + length * GROWTH + PADDING
    if needed <= len(out):
        return out
    larger = np.empty(2 * needed, np.uint8)
    larger[:at] = out[:at]
    return larger


@compiled
def fold_words(data, place, stop, unicode, out, at, alone):
    """Write the folded words of a piece of a row from `out[at]` on, zeros between them and `PADDING` zeros behind.

    Args:
        data: UTF-8 bytes.
        place: Where the piece begins.
        stop: Where it ends.
        unicode: The tables.
        out: See `room_for`.
        at: Where the words of the pieces before end.
        alone: Whether the last of them is a letter of its own.

    Returns:
        `(at, alone)` for the next piece.
    """
    while place < stop:
        word = _load(data, place, stop)
        length = np.int64(trailing_zeros(word & _HIGH) >> np.uint64(3))
        if length >= _RUN:
            if alone:
                out[at] = 0
                at += 1
                alone = False
            while place + 64 <= stop and _are_ascii(data, place):
                for part in range(8):
                    store_u64(out, at + 8 * part, _fold_eight(load_u64(data, place + 8 * part)))
                at += 64
                place += 64
            word = _load(data, place, stop)
            length = min(np.int64(trailing_zeros(word & _HIGH) >> np.uint64(3)), stop - place)
            store_u64(out, at, _fold_eight(word & _LOW7))
            at += length
            place += length
            continue
        code, length = _first_of(word)
        place += length
        entry = np.int64(unicode.block[code >> 8]) << 8 | code & 255
        flags = unicode.flags[entry]
        if flags & FOLDS:
            at, alone = _put_folded(code, np.int64(unicode.fold[entry]), unicode, out, at, alone)
            continue
        kind = flags & CLASS_MASK
        out[at] = 0
        at += kind == SOLO or (alone and kind != MARK and kind != SEPARATOR)
        alone = kind == SOLO or (alone and kind == MARK)
        store_u64(out, at, word if kind != SEPARATOR else np.uint64(0))
        at += length if kind != SEPARATOR else 1
    out[at : at + PADDING] = 0
    return at, alone


@compiled
def _put_folded(code, fold, unicode, out, at, alone):
    """Write the case fold of a code point."""
    for column in range(3):
        part = code + fold if fold > EXPANDS else np.int64(unicode.expansions[EXPANDS - 1 - fold, column])
        if part:
            kind = unicode.flags[np.int64(unicode.block[part >> 8]) << 8 | part & 255] & CLASS_MASK
            at, alone = _put(part, kind, out, at, alone)
        if fold > EXPANDS:
            break
    return at, alone


@inlined
def _put(code, kind, out, at, alone):
    """Write one folded code point of class `kind`; `alone` says that the word before is a letter of its own."""
    if kind == SEPARATOR:
        out[at] = 0
        return at + 1, False
    if kind == SOLO or (alone and kind != MARK):
        out[at] = 0
        at += 1
    return encode(code, out, at), kind == SOLO or (alone and kind == MARK)


@compiled
def hash_words(words, place, end, more, hashes, count):
    """Hash words from `place` on into `hashes[count:]`, until the words or the room end.

    Args:
        words: Words with zeros between them, `PADDING` zeros after `end`.
        place: Where to begin: at a word's start or a zero.
        end: Where the words end.
        more: Whether a word that reaches `end` may go on in the next piece; then it is left for later.
        hashes: 64-bit hashes, filled from `count` on, with room for 33 more or nothing is done.
        count: How many are there already.

    Returns:
        `(place, count)`: where to go on, and how many hashes there are now.
    """
    room = len(hashes)
    begun = -1
    before = np.uint64(0)
    while place < end and count + 32 < room:
        filled = _filled(words, place)
        after = filled << np.uint64(1) | before
        starts, ends = filled & ~after, after & ~filled
        before = filled >> np.uint64(63)
        if more and end - place < 64:
            ends &= (np.uint64(1) << np.uint64(end - place)) - np.uint64(1)
        if begun >= 0 and ends:
            stop = place + np.int64(trailing_zeros(ends))
            ends &= ends - np.uint64(1)
            hashes[count] = _hash_word(words, begun, stop - begun)
            count += 1
            begun = -1
        while ends:
            start, stop = np.int64(trailing_zeros(starts)), np.int64(trailing_zeros(ends))
            starts &= starts - np.uint64(1)
            ends &= ends - np.uint64(1)
            hashes[count] = _hash_word(words, place + start, stop - start)
            count += 1
        if starts:
            begun = place + np.int64(trailing_zeros(starts))
        place += 64
    if begun < 0:
        return min(place, end), count
    if place >= end and not more:
        hashes[count] = _hash_word(words, begun, end - begun)
        return end, count + 1
    return begun, count


@inlined
def _filled(words, place):
    """A bit for each of 64 bytes that is not zero."""
    bits = np.uint64(0)
    for part in range(8):
        word = load_u64(words, place + 8 * part)
        high = ((word & _LOW7) + _LOW7 | word) & _HIGH
        bits |= (high >> np.uint64(7)) * np.uint64(0x0102040810204080) >> np.uint64(56) << np.uint64(8 * part)
    return bits


@inlined
def _hash_word(words, begun, length):
    """64-bit hash of a word, eight bytes at a time; zeros fill the last eight."""
    state = np.uint64(0)
    while length > 8:
        state = (state ^ load_u64(words, begun)) * _FIRST
        state ^= state >> np.uint64(32)
        begun += 8
        length -= 8
    last = load_u64(words, begun) & (~np.uint64(0) >> np.uint64(64 - 8 * length))
    state = (state ^ last) * _FIRST
    state = (state ^ state >> np.uint64(29)) * _SECOND
    return state ^ state >> np.uint64(32)
