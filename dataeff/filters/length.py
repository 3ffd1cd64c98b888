"""Bounds on the size of a document."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dataeff.errors import PlanError
from dataeff.filters import Bounds, Signals
from dataeff.segments import Segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Keep documents of so many words and characters; words stand between white space."""

    measured_by: ClassVar[tuple[str, ...]] = ()

    min_words: int = 1
    max_words: int | None = None
    min_chars: int = 0
    """Code points."""
    max_chars: int | None = None

    def __post_init__(self) -> None:
        for low, high in (("min_words", "max_words"), ("min_chars", "max_chars")):
            most = getattr(self, high)
            if getattr(self, low) < 0 or (most is not None and getattr(self, low) > most):
                raise PlanError.out_of_range(self, low, f"0 or more, and at most {high} ({most})")

    def measure(self, segments: Segments) -> Signals:
        """Words and code points of each row."""
        return {
            "words": segments.words_per_row().astype(np.float64),
            "chars": segments.chars_per_row.astype(np.float64),
        }

    def bounds(self) -> dict[str, Bounds]:
        """Both ends are allowed."""
        return {
            "words": Bounds(self.min_words, math.inf if self.max_words is None else self.max_words),
            "chars": Bounds(self.min_chars, math.inf if self.max_chars is None else self.max_chars),
        }
