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

    Put the editor `c4_lines` before it, since the rules are about the lines that are left. Rules and thresholds are
    those of datatrove 0.10.1, but a sentence ends with a mark of Unicode's Sentence_Terminal before white space, or
    with its line, where datatrove asks spaCy.
    """

    measured_by: ClassVar[tuple[str, ...]] = ()

    max_lorem_ipsum: int = 0
    max_curly_brackets: int = 0
    min_sentences: int = 5

    def __post_init__(self) -> None:
        for name in ("max_lorem_ipsum", "max_curly_brackets", "min_sentences"):
            if getattr(self, name) < 0:
                raise PlanError.out_of_range(self, name, "0 or more")

    def measure(self, segments: Segments) -> Signals:
        """Three counts a row."""
        marks = segments.marks
        return {
            "lorem_ipsum": marks.lorem_ipsum.astype(np.float64),
            "curly_brackets": marks.braces.astype(np.float64),
            "sentences": marks.sentences.astype(np.float64),
        }

    def bounds(self) -> dict[str, Bounds]:
        """In the order of the rules; a value at a threshold passes."""
        return {
            "lorem_ipsum": Bounds(high=self.max_lorem_ipsum),
            "curly_brackets": Bounds(high=self.max_curly_brackets),
            "sentences": Bounds(low=self.min_sentences),
        }
