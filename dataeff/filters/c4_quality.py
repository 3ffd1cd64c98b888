"""The document rules of C4 (Raffel et al. 2020, section 2.2); its line rules are the editor `c4_lines`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.segments import Segments


@dataclass(frozen=True, slots=True, kw_only=True)
class C4Quality:
    """C4's document rules: no lorem ipsum, no curly bracket, enough sentences.

    Put the editor `c4_lines` before it: the two together are datatrove 0.10.1's C4QualityFilter, but for sentences. It
    asks spaCy's sentencizer; here a sentence ends with its line, or where a word ends with punctuation among which is
    one of that sentencizer's marks and a word with more than punctuation follows, or after an East Asian full stop,
    question or exclamation mark. So an abbreviation ends a sentence here that may not end one there.
    """

    measured_by: ClassVar[tuple[str, ...]] = ()

    max_lorem_ipsum: float = 0
    max_curly_brackets: float = 0
    min_sentences: int = 5

    def __post_init__(self) -> None:
        for name in ("max_lorem_ipsum", "max_curly_brackets", "min_sentences"):
            if not getattr(self, name) >= 0:
                raise PlanError.out_of_range(self, name, "0 or more")

    def measure(self, segments: Segments) -> Signals:
        """Three counts a row."""
        marks = segments.marks
        return {
            "lorem_ipsum": marks.lorem_ipsum.astype(np.float64),
            "curly_brackets": marks.brackets.astype(np.float64),
            "sentences": segments.words().sentences.astype(np.float64),
        }

    def bounds(self) -> dict[str, Bounds]:
        """In the order of the rules; a value at a threshold passes."""
        return {
            "lorem_ipsum": Bounds(high=self.max_lorem_ipsum),
            "curly_brackets": Bounds(high=self.max_curly_brackets),
            "sentences": Bounds(low=self.min_sentences),
        }
