"""The quality rules of Gopher (Rae et al. 2021, table A1), as datatrove 0.10.1 states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.kernel.lines import count_line_forms
from dataeff.kernel.segment import word_hashes
from dataeff.kernel.tallies import tally_words
from dataeff.segments import Segments, WordSplit, check_split, share


@dataclass(frozen=True, slots=True, kw_only=True)
class GopherQuality:
    """Gopher's quality rules: word count and length, symbols, bullets, ellipses, letters, stop words.

    Rules, thresholds and their order are those of datatrove 0.10.1's GopherQualityFilter, its set of punctuation marks
    and `str.splitlines()` included. Only words differ: it asks spaCy, which makes punctuation marks words of their
    own, so that fewer words have a letter; `words="regex"` is nearer to it, `words="whitespace"` to Gopher's paper. A
    maximum of `math.inf` and a minimum of 0 pass everything. An empty document has no words, and fails the first rule.
    """

    measured_by: ClassVar[tuple[str, ...]] = ("stop_words", "words")

    min_words: int = 50
    """Words that are not just punctuation marks."""
    max_words: float = 100_000
    min_mean_word_chars: float = 3.0
    """Code points of words that are not just punctuation marks."""
    max_mean_word_chars: float = 10.0
    max_symbols_per_word: float = 0.1
    """Number signs; and, apart, ellipses."""
    max_bullet_line_share: float = 0.9
    """Lines that begin with U+2022 or a hyphen."""
    max_ellipsis_line_share: float = 0.3
    """Lines that end with an ellipsis."""
    min_letter_word_share: float = 0.8
    """Words with at least one letter."""
    min_stop_words: int = 2
    """Different ones of `stop_words`."""
    stop_words: tuple[str, ...] = ("the", "be", "to", "of", "and", "that", "have", "with")
    """Looked for as they stand here: upper and lower case differ."""
    words: WordSplit = "whitespace"

    def __post_init__(self) -> None:
        check_split(self, "words")
        for low, high in (("min_words", "max_words"), ("min_mean_word_chars", "max_mean_word_chars")):
            if not 0 <= getattr(self, low) <= getattr(self, high):
                raise PlanError.out_of_range(self, low, f"in [0, {high}], which is [0, {getattr(self, high)}]")
        if isinstance(self.stop_words, str) or any(word.split() != [word] for word in self.stop_words):
            raise PlanError.out_of_range(self, "stop_words", "a tuple of words without white space")

    def measure(self, segments: Segments) -> Signals:
        """Eight signals a row; shares and ratios are 0 where there is nothing to count."""
        words = segments.words(self.words)
        tally = tally_words(words, word_hashes(sorted(set(self.stop_words))))
        num_words = np.diff(words.rows)
        lines, bullets, ellipses = count_line_forms(segments.data, segments.lines, words.odd_breaks)
        return {
            "words": tally.content.astype(np.float64),
            "mean_word_chars": share(tally.content_chars, tally.content),
            "hashes_per_word": share(segments.marks.hashes, num_words),
            "ellipses_per_word": share(segments.marks.ellipses, num_words),
            "bullet_line_share": share(bullets, lines),
            "ellipsis_line_share": share(ellipses, lines),
            "letter_word_share": share(tally.letters, num_words),
            "stop_words": tally.stop_words.astype(np.float64),
        }

    def bounds(self) -> dict[str, Bounds]:
        """In the order of the rules; a value at a threshold passes."""
        return {
            "words": Bounds(self.min_words, self.max_words),
            "mean_word_chars": Bounds(self.min_mean_word_chars, self.max_mean_word_chars),
            "hashes_per_word": Bounds(high=self.max_symbols_per_word),
            "ellipses_per_word": Bounds(high=self.max_symbols_per_word),
            "bullet_line_share": Bounds(high=self.max_bullet_line_share),
            "ellipsis_line_share": Bounds(high=self.max_ellipsis_line_share),
            "letter_word_share": Bounds(low=self.min_letter_word_share),
            "stop_words": Bounds(low=self.min_stop_words),
        }
