"""Bounds on the size of a document."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.segments import Segments, WordSplit, check_split


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Keep documents of so many words and characters."""

    measured_by: ClassVar[tuple[str, ...]] = ("words",)

    min_words: int = 1
    max_words: float = math.inf
    min_chars: int = 0
    """Code points."""
    max_chars: float = math.inf
    words: WordSplit = "whitespace"

    def __post_init__(self) -> None:
        check_split(self, "words")
        for low, high in (("min_words", "max_words"), ("min_chars", "max_chars")):
            if not 0 <= getattr(self, low) <= getattr(self, high):
                raise PlanError.out_of_range(self, low, f"in [0, {high}], which is [0, {getattr(self, high)}]")

    def measure(self, segments: Segments) -> Signals:
        """Words and code points of each row."""
        return {
            "words": segments.words_per_row(self.words).astype(np.float64),
            "chars": segments.chars_per_row.astype(np.float64),
        }

    def bounds(self) -> dict[str, Bounds]:
        """Both ends are allowed."""
        return {"words": Bounds(self.min_words, self.max_words), "chars": Bounds(self.min_chars, self.max_chars)}
