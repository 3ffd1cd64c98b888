"""The mixture that the corpus has by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dataeff.errors import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Natural:
    """Weigh every source by its tokens: the corpus as it is."""

    def weights(self, tokens: Mapping[str, int], budget: int) -> dict[str, float]:
        """Share of each source in all tokens, in the order of `tokens`; the budget changes nothing.

        Raises:
            PlanError: No source has tokens.
        """
        total = sum(tokens.values())
        if total <= 0:
            raise PlanError(f"none of the {len(tokens)} sources has tokens: nothing can be mixed")
        return {name: count / total for name, count in tokens.items()}
