"""The repetition rules of Gopher (Rae et al. 2021, table A1), as datatrove 0.10.1 states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.kernel.lines import repeated_lines, repeated_paragraphs
from dataeff.kernel.repetition import duplicate_ngrams, top_ngrams
from dataeff.segments import Segments, WordSplit, check_split, share

_TOP = range(2, 5)
_DUPLICATE = range(5, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class GopherRepetition:
    """Gopher's repetition rules: repeated paragraphs, lines, and n-grams of words.

    Rules, thresholds and their order are those of datatrove 0.10.1's GopherRepetitionFilter: the first copy is free;
    shares of characters are of all characters, white space included; the most frequent n-gram counts even where it
    occurs once, so that very short texts fail; n-grams that repeat are compared without the space between words. Only
    words differ: it asks spaCy, which makes punctuation marks words of their own. What is equal is told by 64-bit
    hashes. A maximum of `math.inf` passes everything.
    """

    measured_by: ClassVar[tuple[str, ...]] = ("words",)

    max_paragraph_share: float = 0.30
    """Paragraphs, between empty lines, that equal an earlier one."""
    max_paragraph_char_share: float = 0.20
    max_line_share: float = 0.30
    """Lines that equal an earlier one; empty lines are passed over."""
    max_line_char_share: float = 0.20
    max_top_ngram_shares: tuple[float, ...] = (0.20, 0.18, 0.16)
    """Characters in the most frequent 2-, 3- and 4-gram."""
    max_duplicate_ngram_shares: tuple[float, ...] = (0.15, 0.14, 0.13, 0.12, 0.11, 0.10)
    """Characters in repeated 5- to 10-grams."""
    words: WordSplit = "whitespace"

    def __post_init__(self) -> None:
        check_split(self, "words")
        for name, span in (("max_top_ngram_shares", _TOP), ("max_duplicate_ngram_shares", _DUPLICATE)):
            if len(getattr(self, name)) != len(span):
                raise PlanError.out_of_range(self, name, f"{len(span)} shares, for n from {span[0]} to {span[-1]}")

    def measure(self, segments: Segments) -> Signals:
        """Whether a row is empty, and thirteen shares, all 0 in an empty row."""
        chars = segments.chars_per_row
        lines = repeated_lines(segments.lines)
        paragraphs = repeated_paragraphs(segments.data, segments.offsets, segments.lines)
        words = segments.words(self.words)
        top = top_ngrams(words, _TOP[-1])
        duplicate = duplicate_ngrams(words, _DUPLICATE[0], _DUPLICATE[-1])
        signals = {
            "empty": (chars == 0).astype(np.float64),
            "paragraph_share": share(paragraphs.duplicates, paragraphs.total),
            "paragraph_char_share": share(paragraphs.duplicate_chars, chars),
            "line_share": share(lines.duplicates, lines.total),
            "line_char_share": share(lines.duplicate_chars, chars),
        }
        signals |= {f"top_{n}_gram_share": share(top[:, n - _TOP[0]], chars) for n in _TOP}
        signals |= {f"duplicate_{n}_gram_share": share(duplicate[:, n - _DUPLICATE[0]], chars) for n in _DUPLICATE}
        return signals

    def bounds(self) -> dict[str, Bounds]:
        """In the order of the rules; a value at a threshold passes."""
        limits = {
            "empty": 0.0,
            "paragraph_share": self.max_paragraph_share,
            "paragraph_char_share": self.max_paragraph_char_share,
            "line_share": self.max_line_share,
            "line_char_share": self.max_line_char_share,
        }
        limits |= {f"top_{n}_gram_share": limit for n, limit in zip(_TOP, self.max_top_ngram_shares, strict=True)}
        duplicate = zip(_DUPLICATE, self.max_duplicate_ngram_shares, strict=True)
        limits |= {f"duplicate_{n}_gram_share": limit for n, limit in duplicate}
        return {name: Bounds(high=limit) for name, limit in limits.items()}
