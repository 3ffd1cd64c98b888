"""The mixture that the user wrote down."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dataeff.errors import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Explicit:
    """Weigh the sources as given; those that are not named are left out."""

    shares: Mapping[str, float]
    """Share by source, 0 or more each; divided by their sum, so `{"web": 7, "books": 3}` will do."""

    def __post_init__(self) -> None:
        wrong = sorted(name for name, share in self.shares.items() if not (math.isfinite(share) and share >= 0))
        if wrong:
            raise PlanError(
                f"Explicit.shares[{wrong[0]!r}] is {self.shares[wrong[0]]!r}; it must be a finite number, 0 or more"
            )
        if math.fsum(self.shares.values()) <= 0:
            raise PlanError(f"Explicit.shares is {dict(self.shares)!r}; at least one share must be above 0")

    def weights(self, tokens: Mapping[str, int], budget: int) -> dict[str, float]:
        """The given shares divided by their sum, in the order of `tokens`; 0 for a source that is not named.

        Raises:
            PlanError: A share above 0 names a source that is not there or that has no tokens.
        """
        unknown = sorted(set(self.shares) - set(tokens))
        if unknown:
            raise PlanError(
                f"Explicit.shares names {', '.join(unknown)}; the sources are {', '.join(sorted(tokens)) or 'none'}"
            )
        empty = sorted(name for name, share in self.shares.items() if share > 0 and tokens[name] <= 0)
        if empty:
            raise PlanError(
                f"Explicit.shares gives {', '.join(empty)} a share, but nothing of it is left after filtering and "
                "deduplication: set the share to 0, or loosen the stages before"
            )
        total = math.fsum(self.shares.values())
        return {name: self.shares.get(name, 0.0) / total for name in tokens}

    def unnamed(self, tokens: Mapping[str, int]) -> tuple[str, ...]:
        """Sources that get weight 0 because they are not named, sorted."""
        return tuple(sorted(set(tokens) - set(self.shares)))
