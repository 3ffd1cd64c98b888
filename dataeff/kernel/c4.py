"""C4's line rules on bytes, as datatrove 0.10.1 states them."""

from __future__ import annotations

import numpy as np

from dataeff.arrow import I64, U8
from dataeff.kernel.characters import BREAK, DIGIT, SPACE, characters, flags_of, trim
from dataeff.kernel.compiled import compiled
from dataeff.kernel.segment import load, no_break
from dataeff.kernel.words import decode

REASONS = ("long_word", "no_terminal_punctuation", "few_words", "javascript", "policy")
"""Why a line is removed, in the order of the rules."""
_LONG_WORD, _NO_END, _FEW_WORDS, _JAVASCRIPT, _POLICY = range(5)
_KEPT, _CITATIONS = -1, len(REASONS)

_PHRASES = (b"terms of use", b"privacy policy", b"cookie policy", b"uses cookies", b"use of cookies", b"use cookies",
            b"javascript", b"lorem ipsum")  # fmt: skip
_ANCHORS = (7, 3, 3, 8, 10, 7, 0, 7)
"""Where in each phrase the rare letter stands by which it is looked for: f, v, k, k, k, k, j, p."""
_IS_JAVASCRIPT, _IS_LOREM = 6, 7
_EDIT, _CITATION_NEEDED = (np.frombuffer(mark, np.uint8) for mark in (b"edit]", b"citation needed]"))


def _phrase_table() -> U8:
    """A phrase a row, zeros behind it."""
    table = np.zeros((len(_PHRASES), 16), np.uint8)
    for row, phrase in enumerate(_PHRASES):
        table[row, : len(phrase)] = np.frombuffer(phrase, np.uint8)
    table.flags.writeable = False
    return table


def keep_lines(
    data: U8, offsets: I64, *, require_end: bool, min_words: int, max_word_chars: int
) -> tuple[U8, I64, I64]:
    """Rows with only the lines that C4 keeps, each without white space at its ends and without citation marks.

    A line that makes its document fail (lorem ipsum, a curly bracket) is kept, so that a filter sees it.

    Args:
        data: UTF-8 bytes of all rows.
        offsets: Row boundaries into `data`, shape (rows + 1,).
        require_end: Whether lines must end with a mark.
        min_words: Fewest words of a line.
        max_word_chars: Most code points of a word.

    Returns:
        `(data, offsets, counts)`: the rows, and what was removed: lines by each of `REASONS`, then citation marks;
        shape (6, rows).
    """
    rows = len(offsets) - 1
    out, bounds = np.empty(int(offsets[-1] - offsets[0]), np.uint8), np.zeros(rows + 1, np.int64)
    counts = np.zeros((len(REASONS) + 1, rows), np.int64)
    phrases, anchors = _phrase_table(), np.array(_ANCHORS)
    end = _keep_lines(
        data, offsets, characters(), phrases, anchors, require_end, min_words, max_word_chars, out, bounds, counts
    )
    return out[:end], bounds, counts


@compiled
def _keep_lines(data, offsets, table, phrases, anchors, require_end, min_words, max_word_chars, out, bounds, counts):
    at = 0
    for row in range(len(offsets) - 1):
        first = at
        place, stop = offsets[row], offsets[row + 1]
        kept_any = False
        while place < stop:
            end, following = _line_end(data, place, stop, table)
            start, end = trim(data, place, end, table)
            place = following
            reason = _KEPT
            before = at
            if kept_any:
                out[at] = 10
                at += 1
            begun = at
            words, longest = _measure_words(data, start, end, table, min_words, max_word_chars)
            if longest > max_word_chars:
                reason = _LONG_WORD
            else:
                at, citations = _copy_line(data, start, end, table, out, at)
                counts[_CITATIONS, row] += citations
                if require_end and not _ends(out, begun, at):
                    reason = _NO_END
                elif words < min_words:
                    reason = _FEW_WORDS
                else:
                    reason = _mentions(out, begun, at, phrases, anchors)
            if reason >= 0:
                counts[reason, row] += 1
                at = before
            else:
                kept_any = True
        start, end = trim(out, first, at, table)
        for ahead in range(end - start):
            out[first + ahead] = out[start + ahead]
        at = first + end - start
        bounds[row + 1] = at
    return at


@compiled
def _line_end(data, place, stop, table):
    """Where the line from `place` on ends, and where the next begins."""
    while place < stop:
        if place + 8 <= stop and no_break(load(data, place)):
            place += 8
            continue
        code, length = decode(data, place, stop)
        if flags_of(table, code) & BREAK:
            pair = code == 13 and place + 1 < stop and data[place + 1] == 10
            return place, place + length + pair
        place += length
    return stop, stop


@compiled
def _measure_words(data, start, stop, table, min_words, max_word_chars):
    """Words, counted up to `min_words` where none can be too long, and the code points of the longest."""
    words = longest = length = 0
    short = stop - start <= max_word_chars
    while start < stop:
        byte = np.int64(data[start])
        if byte < 0x80:
            space = byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31
            start += 1
        else:
            code, size = decode(data, start, stop)
            space = flags_of(table, code) & SPACE != 0
            start += size
        if space:
            length = 0
        else:
            words += length == 0
            length += 1
            longest = max(longest, length)
            if short and words >= min_words:
                break
    return words, longest


@compiled
def _copy_line(data, start, stop, table, out, at):
    """Copy a line without its citation marks; returns where it ends and how many marks there were."""
    citations = 0
    while start < stop:
        if data[start] == 91:
            end = _citation_end(data, start, stop, table)
            if end > 0:
                citations += 1
                start = end
                continue
        out[at] = data[start]
        at += 1
        start += 1
    return at, citations


@compiled
def _citation_end(data, start, stop, table):
    """Where `[edit]`, `[citation needed]` or `[12]` (with any digits or none), which begins at `start`, ends; or -1."""
    place = start + 1
    while place < stop:
        code, length = decode(data, place, stop)
        if flags_of(table, code) & DIGIT == 0:
            if code == 93:
                return place + 1
            break
        place += length
    if place == start + 1:
        for phrase in (_EDIT, _CITATION_NEEDED):
            if stop - place >= len(phrase):
                same = True
                for ahead in range(len(phrase)):
                    same &= data[place + ahead] == phrase[ahead]
                if same:
                    return place + len(phrase)
    return -1


@compiled
def _ends(out, start, stop):
    """Whether a line ends with . ? ! or a straight quotation mark, but not with three full stops."""
    if start == stop:
        return False
    last = out[stop - 1]
    if last == 46:
        return stop - start < 3 or out[stop - 2] != 46 or out[stop - 3] != 46
    return last == 63 or last == 33 or last == 34 or last == 39


@compiled
def _mentions(out, start, stop, phrases, anchors):
    """The reason that a phrase in a line gives to remove it, or `_KEPT`."""
    javascript = policy = condemned = bracket = False
    for place in range(start, stop):
        byte = out[place]
        if byte == 123:
            bracket = True
        byte |= 0x20
        if byte == 102 or byte == 107 or byte == 112 or byte == 118:
            # An o stands before f and k in each phrase, an i before p and v.
            before = 111 if byte < 110 else 105
            if place == start or out[place - 1] | 0x20 != before:
                continue
        elif byte != 106 and byte != 0xE2:
            continue
        letter = 107 if byte == 0xE2 else byte
        for number in range(len(phrases)):
            anchor = anchors[number]
            if phrases[number, anchor] == letter and _stands(out, place - anchor, start, stop, phrases[number]):
                javascript |= number == _IS_JAVASCRIPT
                condemned |= number == _IS_LOREM
                policy |= number < _IS_JAVASCRIPT
    if condemned:
        return _KEPT
    if javascript:
        return _JAVASCRIPT
    return _POLICY if policy and not bracket else _KEPT


@compiled
def _stands(out, place, start, stop, phrase):
    """Whether a phrase stands at `place` in any case; the Kelvin sign is a k to `str.lower()`."""
    if place < start:
        return False
    for at in range(len(phrase)):
        wanted = phrase[at]
        if wanted == 0:
            break
        if place >= stop:
            return False
        byte = out[place]
        if wanted == 107 and byte == 0xE2:
            if place + 2 >= stop or out[place + 1] != 0x84 or out[place + 2] != 0xAA:
                return False
            place += 2
        elif (byte | 0x20 if 65 <= byte <= 90 else byte) != wanted:
            return False
        place += 1
    return True
