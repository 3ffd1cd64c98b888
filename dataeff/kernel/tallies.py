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
    slots, bits = _one_slot_each(stop_hashes)
    counts = np.zeros((4, len(words.rows) - 1), np.int64)
    _tally_words(
        words.rows, words.chars, words.hashes, words.kinds, np.append(stop_hashes, np.uint64(0)), slots, bits, counts
    )
    return WordTally(*counts)


def tally_lines(lines: Lines, short_chars: int) -> LineTally:
    """Count lines by kind; a line is short that has at most `short_chars` code points."""
    counts = np.zeros((4, len(lines.rows) - 1), np.int64)
    _tally_lines(lines.rows, lines.chars, lines.kinds, short_chars, counts)
    return LineTally(*counts)


def _one_slot_each(hashes: U64) -> tuple[I64, int]:
    """A table by hashes' highest bits, so large that no two share a slot, and its bits; `len(hashes)` where free."""
    bits = max(6, int(len(hashes) * 8).bit_length())
    while len(np.unique(hashes >> np.uint64(64 - bits))) < len(hashes):
        bits += 1
    slots = np.full(1 << bits, len(hashes), np.int64)
    slots[(hashes >> np.uint64(64 - bits)).astype(np.int64)] = np.arange(len(hashes))
    return slots, bits


@allocating
def _tally_words(rows, chars, hashes, kinds, stop_hashes, slots, bits, counts):
    """Without a branch for each word; `stop_hashes` has one more, which stands for no word."""
    none = len(stop_hashes) - 1
    seen = np.full(len(stop_hashes), -1, np.int64)
    shift = np.uint64(64 - bits)
    for row in range(len(rows) - 1):
        content = content_chars = letters = stop_words = 0
        for word in range(rows[row], rows[row + 1]):
            kind = np.int64(kinds[word])
            letters += kind & HAS_LETTER
            has_content = kind & HAS_CONTENT != 0
            content += has_content
            content_chars += has_content * (np.int64(chars[word + 1]) - chars[word])
            number = slots[np.int64(hashes[word] >> shift)]
            seen[number if stop_hashes[number] == hashes[word] else none] = row
        for number in range(none):
            stop_words += seen[number] == row
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
