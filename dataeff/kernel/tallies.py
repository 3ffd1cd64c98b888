"""Counts of words and lines by kind, a row at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dataeff.arrow import I64, U64
from dataeff.kernel.compiled import allocating, compiled
from dataeff.kernel.lines import BLANK, DUPLICATE, ENDS_SENTENCE, Lines
from dataeff.kernel.segment import HAS_CONTENT, HAS_LETTER, Words


class WordTally(NamedTuple):
    """Counts of each row, shape (rows,) each."""

    content: I64
    """Words with a character that is not a punctuation mark."""
    content_chars: I64
    """Their code points."""
    letters: I64
    """Words with a letter."""
    stop_words: I64
    """How many different ones of the given words occur."""


class LineTally(NamedTuple):
    """Counts of the lines of each row that are not blank, shape (rows,) each."""

    total: I64
    ends_sentence: I64
    short: I64
    duplicate_chars: I64
    """Code points of lines that equal an earlier one."""


def tally_words(words: Words, stop_hashes: U64) -> WordTally:
    """Count words by kind.

    Args:
        words: Words of a batch.
        stop_hashes: Hashes of different words, by `dataeff.kernel.segment.word_hashes`.
    """
    table, bits = _one_slot_each(stop_hashes)
    slots = stop_hashes >> np.uint64(64 - bits)
    counts = np.zeros((4, len(words.rows) - 1), np.int64)
    _tally_words(words.rows, words.chars, words.hashes, words.kinds, table, bits, slots, counts)
    return WordTally(*counts)


def tally_lines(lines: Lines, short_chars: int) -> LineTally:
    """Count lines by kind; a line is short that has at most `short_chars` code points."""
    counts = np.zeros((4, len(lines.rows) - 1), np.int64)
    _tally_lines(lines.rows, lines.chars, lines.kinds, short_chars, counts)
    return LineTally(*counts)


def _one_slot_each(hashes: U64) -> tuple[U64, int]:
    """A table by hashes' highest bits, so large that no two share a slot, and its bits; others' hashes where free."""
    bits = max(6, int(len(hashes) * 8).bit_length())
    while len(np.unique(hashes >> np.uint64(64 - bits))) < len(hashes):
        bits += 1
    table = np.zeros(1 << bits, np.uint64)
    table[0] = ~np.uint64(0)
    table[hashes >> np.uint64(64 - bits)] = hashes
    return table, bits


@allocating
def _tally_words(rows, chars, hashes, kinds, table, bits, slots, counts):
    """Without a branch for each word; what each loop asks of words is little, for the compiler to take many at once."""
    shift, half = np.uint64(64 - bits), np.uint64(bits)
    # The second half is where words are seen that are none of the given.
    seen = np.full(2 << bits, -1, np.int64)
    for row in range(len(rows) - 1):
        first, last = rows[row], rows[row + 1]
        row_kinds, row_chars = kinds[first:last], chars[first : last + 1]
        content = content_chars = letters = 0
        for word in range(len(row_kinds)):
            has_content = row_kinds[word] // HAS_CONTENT & 1
            letters += row_kinds[word] // HAS_LETTER & 1
            content += has_content
            content_chars += has_content * (np.int64(row_chars[word + 1]) - row_chars[word])
        for number in hashes[first:last]:
            slot = number >> shift
            seen[slot | np.uint64(table[slot] != number) << half] = row
        stop_words = 0
        for slot in slots:
            stop_words += seen[slot] == row
        counts[0, row], counts[1, row], counts[2, row], counts[3, row] = content, content_chars, letters, stop_words


@compiled
def _tally_lines(rows, chars, kinds, short_chars, counts):
    for row in range(len(rows) - 1):
        for line in range(rows[row], rows[row + 1]):
            kind = kinds[line]
            if kind & BLANK == 0:
                counts[0, row] += 1
                counts[1, row] += kind & ENDS_SENTENCE != 0
                counts[2, row] += chars[line] <= short_chars
                if kind & DUPLICATE:
                    counts[3, row] += chars[line]
