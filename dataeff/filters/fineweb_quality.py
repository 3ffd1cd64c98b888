"""The rules that FineWeb added (Penedo et al. 2024, section 3.6), as datatrove 0.10.1 states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.kernel.tallies import tally_lines
from dataeff.segments import Segments, WordSplit, check_split, share


@dataclass(frozen=True, slots=True, kw_only=True)
class FineWebQuality:
    """FineWeb's rules: lines that end a sentence, short lines, repeated lines, line feeds a word.

    Rules, thresholds and their order are those of datatrove 0.10.1's FineWebQualityFilter, its 159 marks that end a
    sentence included (a quotation mark or bracket is none of them). Only words differ, which the last rule counts: it
    asks spaCy. The filter that made FineWeb was an older one, with other marks. Blank lines are not counted, and a
    document without any other is `empty`. Text that is wrapped at a fixed width fails: unwrap it before, or judge web
    pages only. A maximum of `math.inf` and a minimum of 0 pass everything.
    """

    measured_by: ClassVar[tuple[str, ...]] = ("short_line_chars", "words")

    min_ended_line_share: float = 0.12
    """Lines whose very last character is a mark that ends a sentence."""
    max_short_line_share: float = 0.67
    """Lines of at most `short_line_chars` code points."""
    short_line_chars: int = 30
    max_duplicate_char_share: float = 0.01
    """Characters of lines that equal an earlier one, of all but line feeds."""
    max_newlines_per_word: float = 0.3
    words: WordSplit = "whitespace"

    def __post_init__(self) -> None:
        check_split(self, "words")
        if self.short_line_chars < 0:
            raise PlanError.out_of_range(self, "short_line_chars", "0 or more")

    def measure(self, segments: Segments) -> Signals:
        """Whether a row is empty, and four shares and ratios, 0 where there is nothing to count."""
        tally = tally_lines(segments.lines, self.short_line_chars)
        newlines = np.diff(segments.lines.rows) - 1
        return {
            "empty": (tally.total == 0).astype(np.float64),
            "ended_line_share": share(tally.ends_sentence, tally.total),
            "short_line_share": share(tally.short, tally.total),
            "duplicate_char_share": share(tally.duplicate_chars, segments.chars_per_row - newlines),
            "newlines_per_word": share(newlines, segments.words_per_row(self.words)),
        }

    def bounds(self) -> dict[str, Bounds]:
        """In the order of the rules; a value at a threshold passes."""
        return {
            "empty": Bounds(high=0),
            "ended_line_share": Bounds(low=self.min_ended_line_share),
            "short_line_share": Bounds(high=self.max_short_line_share),
            "duplicate_char_share": Bounds(high=self.max_duplicate_char_share),
            "newlines_per_word": Bounds(high=self.max_newlines_per_word),
        }
