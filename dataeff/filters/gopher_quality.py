"""The quality rules of Gopher (Rae et al. 2021, table A1), as datatrove 0.10.1 states them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.kernel.segment import BULLET, ELLIPSIS, HAS_ALPHABETIC, HAS_CONTENT, word_hash
from dataeff.segments import WORD_SPLITS, Segments, WordSplit, per_row, share

_STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


@dataclass(frozen=True, slots=True, kw_only=True)
class GopherQuality:
    """Gopher's quality rules: word count and length, symbols, bullets, ellipses, letters, stop words.

    Thresholds and their order are those of datatrove 0.10.1. Words differ from its spaCy tokens: they stand between
    white space, or (`regex`) punctuation marks are words too. Lines end at line feeds only. A word that is nothing
    but Unicode punctuation, symbols or control characters is not counted in the first three rules.
    """

    measured_by: ClassVar[tuple[str, ...]] = ("split",)

    min_words: int = 50
    max_words: int = 100_000
    min_mean_word_length: float = 3.0
    """Code points."""
    max_mean_word_length: float = 10.0
    max_symbol_ratio: float = 0.1
    """Number signs a word; and, apart, ellipses a word."""
    max_bullet_share: float = 0.9
    """Lines that begin with a bullet or hyphen."""
    max_ellipsis_share: float = 0.3
    """Lines that end with an ellipsis."""
    min_alphabetic_share: float = 0.8
    """Words with at least one letter."""
    min_stop_words: int = 2
    """Different ones of: the, be, to, of, and, that, have, with."""
    split: WordSplit = "whitespace"

    def __post_init__(self) -> None:
        if not 0 <= self.min_words <= self.max_words:
            raise PlanError.out_of_range(self, "min_words", f"in [0, {self.max_words}]")
        if not 0 <= self.min_mean_word_length <= self.max_mean_word_length:
            raise PlanError.out_of_range(self, "min_mean_word_length", f"in [0, {self.max_mean_word_length}]")
        if self.split not in WORD_SPLITS:
            raise PlanError.out_of_range(self, "split", f"one of {', '.join(WORD_SPLITS)}")

    def measure(self, segments: Segments) -> Signals:
        """Eight signals a row; shares and ratios are 0 in a row without words."""
        words = segments.words(self.split)
        num_words = segments.words_per_row(self.split)
        content = words.kinds & HAS_CONTENT > 0
        num_content = per_row(content, words.rows)
        stop_words = np.zeros(segments.rows)
        for stop_word in _stop_word_hashes():
            stop_words += per_row(words.hashes == stop_word, words.rows) > 0
        return {
            "words": num_content.astype(np.float64),
            "mean_word_length": share(per_row(np.where(content, words.chars, 0), words.rows), num_content),
            "hash_ratio": share(segments.marks.hashes, num_words),
            "ellipsis_ratio": share(segments.marks.ellipses, num_words),
            "bullet_share": segments.line_share(BULLET),
            "ellipsis_share": segments.line_share(ELLIPSIS),
            "alphabetic_share": share(per_row(words.kinds & HAS_ALPHABETIC > 0, words.rows), num_words),
            "stop_words": stop_words,
        }

    def bounds(self) -> dict[str, Bounds]:
        """In the order of the rules; a value at a threshold passes."""
        return {
            "words": Bounds(self.min_words, self.max_words),
            "mean_word_length": Bounds(self.min_mean_word_length, self.max_mean_word_length),
            "hash_ratio": Bounds(high=self.max_symbol_ratio),
            "ellipsis_ratio": Bounds(high=self.max_symbol_ratio),
            "bullet_share": Bounds(high=self.max_bullet_share),
            "ellipsis_share": Bounds(high=self.max_ellipsis_share),
            "alphabetic_share": Bounds(low=self.min_alphabetic_share),
            "stop_words": Bounds(low=self.min_stop_words),
        }


@functools.cache
def _stop_word_hashes() -> tuple[np.uint64, ...]:
    return tuple(np.uint64(word_hash(word)) for word in _STOP_WORDS)
