"""The rules that FineWeb added (Penedo et al. 2024, section 3.6), as datatrove 0.10.1 states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.kernel.repetition import repeated
from dataeff.kernel.segment import BLANK, ENDS_SENTENCE
from dataeff.segments import WORD_SPLITS, Segments, WordSplit, per_row, share


@dataclass(frozen=True, slots=True, kw_only=True)
class FineWebQuality:
    """FineWeb's rules: lines that end a sentence, short lines, repeated lines, line feeds a word.

    Thresholds and their order are those of datatrove 0.10.1; the marks that end a sentence are Unicode 15's
    Sentence_Terminal. Blank lines are not counted. A document without a line that is not blank fails the first rule.
    Text that was wrapped at a fixed width fails it too: unwrap it before, or judge only sources of web pages.
    """

    measured_by: ClassVar[tuple[str, ...]] = ("short_line_chars", "split")

    min_punctuated_share: float = 0.12
    """Lines that end with a mark that ends a sentence."""
    max_short_share: float = 0.67
    """Lines of at most `short_line_chars` code points."""
    short_line_chars: int = 30
    max_duplicate_char_share: float = 0.01
    """Characters of lines that equal an earlier one."""
    max_newline_ratio: float = 0.3
    """Line feeds a word."""
    split: WordSplit = "whitespace"

    def __post_init__(self) -> None:
        if self.short_line_chars < 0:
            raise PlanError.out_of_range(self, "short_line_chars", "0 or more")
        if self.split not in WORD_SPLITS:
            raise PlanError.out_of_range(self, "split", f"one of {', '.join(WORD_SPLITS)}")

    def measure(self, segments: Segments) -> Signals:
        """Four shares and ratios a row; 0 where nothing is to be counted."""
        lines = segments.lines
        filled = lines.kinds & BLANK == 0
        num_lines = per_row(filled, lines.rows)
        short = filled & (lines.chars <= self.short_line_chars)
        _, duplicate_chars = repeated(lines.hashes, lines.chars, filled, lines.rows)
        newlines = segments.marks.newlines
        words = segments.words_per_row(self.split)
        return {
            "punctuated_share": share(per_row(filled & (lines.kinds & ENDS_SENTENCE > 0), lines.rows), num_lines),
            "short_share": share(per_row(short, lines.rows), num_lines),
            "duplicate_char_share": share(duplicate_chars, segments.chars_per_row - newlines),
            "newline_ratio": share(newlines, np.maximum(words, 1)),
        }

    def bounds(self) -> dict[str, Bounds]:
        """In the order of the rules; a value at a threshold passes."""
        return {
            "punctuated_share": Bounds(low=self.min_punctuated_share),
            "short_share": Bounds(high=self.max_short_share),
            "duplicate_char_share": Bounds(high=self.max_duplicate_char_share),
            "newline_ratio": Bounds(high=self.max_newline_ratio),
        }
