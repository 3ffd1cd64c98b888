"""The repetition rules of Gopher (Rae et al. 2021, table A1), as datatrove 0.10.1 states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.kernel.repetition import ngrams, repeated
from dataeff.segments import WORD_SPLITS, Segments, WordSplit, per_row, share

_TOP = (2, 4)
_DUPLICATE = (5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class GopherRepetition:
    """Gopher's repetition rules: repeated paragraphs, lines, and n-grams of words.

    Thresholds, their order, and what is counted are those of datatrove 0.10.1: shares of characters are of all
    characters of the text; the first copy is free; the most frequent n-gram counts even where it occurs once, so very
    short texts fail. Words stand between white space, or (`regex`) punctuation marks are words too.
    """

    measured_by: ClassVar[tuple[str, ...]] = ("split",)

    max_paragraph_share: float = 0.30
    max_paragraph_char_share: float = 0.20
    max_line_share: float = 0.30
    max_line_char_share: float = 0.20
    max_top_ngram_shares: tuple[float, ...] = (0.20, 0.18, 0.16)
    """Characters in the most frequent 2-, 3- and 4-gram."""
    max_duplicate_ngram_shares: tuple[float, ...] = (0.15, 0.14, 0.13, 0.12, 0.11, 0.10)
    """Characters in repeated 5- to 10-grams."""
    split: WordSplit = "whitespace"

    def __post_init__(self) -> None:
        for name, (low, high) in (("max_top_ngram_shares", _TOP), ("max_duplicate_ngram_shares", _DUPLICATE)):
            if len(getattr(self, name)) != high - low + 1:
                raise PlanError.out_of_range(self, name, f"one share for each n from {low} to {high}")
        if self.split not in WORD_SPLITS:
            raise PlanError.out_of_range(self, "split", f"one of {', '.join(WORD_SPLITS)}")

    def measure(self, segments: Segments) -> Signals:
        """Thirteen shares a row, all 0 in an empty one."""
        chars = segments.chars_per_row
        paragraphs, lines, words = segments.paragraphs, segments.lines, segments.words(self.split)
        everything = np.ones(len(paragraphs.starts), np.bool_)
        num_paragraphs, paragraph_chars = repeated(paragraphs.hashes, paragraphs.chars, everything, paragraphs.rows)
        # Splitting at runs of line feeds leaves an empty line only at either end of the text.
        filled = lines.lengths > 0
        filled[lines.rows[:-1]] = True
        filled[lines.rows[1:] - 1] = True
        num_lines, line_chars = repeated(lines.hashes, lines.chars, filled, lines.rows)
        tops, duplicates = ngrams(words.hashes, words.chars, words.rows, _TOP, _DUPLICATE)
        signals = {
            "paragraph_share": share(num_paragraphs, np.diff(paragraphs.rows)),
            "paragraph_char_share": share(paragraph_chars, chars),
            "line_share": share(num_lines, per_row(filled, lines.rows)),
            "line_char_share": share(line_chars, chars),
        }
        signals |= {f"top_{n}_gram_share": share(tops[:, n - _TOP[0]], chars) for n in _span(_TOP)}
        for n in _span(_DUPLICATE):
            signals[f"duplicate_{n}_gram_share"] = share(duplicates[:, n - _DUPLICATE[0]], chars)
        return signals

    def bounds(self) -> dict[str, Bounds]:
        """In the order of the rules; a value at a threshold passes."""
        limits = {
            "paragraph_share": self.max_paragraph_share,
            "paragraph_char_share": self.max_paragraph_char_share,
            "line_share": self.max_line_share,
            "line_char_share": self.max_line_char_share,
        }
        limits |= {f"top_{n}_gram_share": self.max_top_ngram_shares[n - _TOP[0]] for n in _span(_TOP)}
        for n in _span(_DUPLICATE):
            limits[f"duplicate_{n}_gram_share"] = self.max_duplicate_ngram_shares[n - _DUPLICATE[0]]
        return {name: Bounds(high=limit) for name, limit in limits.items()}


def _span(ends: tuple[int, int]) -> range:
    return range(ends[0], ends[1] + 1)
