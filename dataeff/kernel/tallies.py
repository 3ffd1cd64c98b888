"""Counts of words and lines by kind, a row at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from dataeff.arrow import I64, U64
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
    bits = max(6, int(len(stop_hashes) * 8).bit_length())
    slots = np.full(1 << bits, -1, np.int64)
    for number, key in enumerate(stop_hashes.tolist()):
        slot = key >> (64 - bits)
        while slots[slot] >= 0:
            slot = (slot + 1) % len(slots)
        slots[slot] = number
    counts = np.zeros((4, len(words.rows) - 1), np.int64)
    _tally_words(words.rows, words.chars, words.hashes, words.kinds, stop_hashes, slots, counts)
    return WordTally(*counts)


def tally_lines(lines: Lines, short_chars: int) -> LineTally:
    """Count lines by kind; a line is short that has at most `short_chars` code points."""
    counts = np.zeros((4, len(lines.rows) - 1), np.int64)
    _tally_lines(lines.rows, lines.chars, lines.kinds, short_chars, counts)
    return LineTally(*counts)


@njit(nogil=True, cache=True)
def _tally_words(rows, chars, hashes, kinds, stop_hashes, slots, counts):
    seen = np.full(len(stop_hashes), -1, np.int64)
    last = len(slots) - 1
    bits = 0
    while 1 << bits < len(slots):
        bits += 1
    for row in range(len(rows) - 1):
        content = content_chars = letters = stop_words = 0
        for word in range(rows[row], rows[row + 1]):
            kind = np.int64(kinds[word])
            letters += kind & HAS_LETTER
            if kind & HAS_CONTENT:
                content += 1
                content_chars += chars[word + 1] - chars[word]
            slot = np.int64(hashes[word] >> np.uint64(64 - bits))
            while slots[slot] >= 0:
                number = slots[slot]
                if stop_hashes[number] == hashes[word]:
                    stop_words += seen[number] != row
                    seen[number] = row
                    break
                slot = (slot + 1) & last
        counts[0, row], counts[1, row], counts[2, row], counts[3, row] = content, content_chars, letters, stop_words


@njit(nogil=True, cache=True)
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
