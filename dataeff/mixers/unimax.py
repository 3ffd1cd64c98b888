"""UniMax: as even as a cap on repetition allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dataeff.errors import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Unimax:
    """Share the budget out evenly, but let no source repeat more than `max_epochs` times.

    UniMax (Chung et al., ICLR 2023, arXiv:2304.09151, algorithm 1): sources from the smallest to the largest each
    get an even part of the budget that is left, or `max_epochs` times their tokens if that is less. The paper
    counts characters of languages; here it is tokens of sources. It finds 1 epoch best, by little.

    Where even `max_epochs` of every source fall short of the budget, the weights are those of the corpus as it
    is, and `Mix` states what is unreachable under its own cap.
    """

    max_epochs: float = 1.0
    """Most repetitions of a source, above 0."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.max_epochs) and self.max_epochs > 0):
            raise PlanError.out_of_range(self, "max_epochs", "a finite number above 0")

    def weights(self, tokens: Mapping[str, int], budget: int) -> dict[str, float]:
        """Shares in the order of `tokens`.

        Raises:
            PlanError: No source has tokens, or the budget is below 1.
        """
        if budget < 1:
            raise PlanError(f"UniMax shares out a budget, and it is {budget}; it must be 1 or more tokens")
        if sum(tokens.values()) <= 0:
            raise PlanError(f"none of the {len(tokens)} sources has tokens: nothing can be mixed")
        left = Fraction(budget)
        used: dict[str, Fraction] = {}
        for position, name in enumerate(sorted(tokens, key=lambda name: (tokens[name], name))):
            even = left / (len(tokens) - position)
            used[name] = min(even, Fraction(self.max_epochs) * tokens[name])
            left -= used[name]
        total = sum(used.values(), Fraction())
        return {name: float(used[name] / total) for name in tokens}
