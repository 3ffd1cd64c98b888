"""Temperature sampling: between the corpus as it is and all sources alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dataeff.errors import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Temperature:
    """Weigh a source by its tokens to the power 1/temperature: small sources gain as it rises.

    p_i is proportional to n_i ** (1 / T), as in Arivazhagan et al. 2019 (arXiv:1907.05019, T = 5). Multilingual BERT
    uses the exponent 1 / T = 0.7. T = 1 is `natural`; T without bound tends to equal shares, and
    `math.inf` gives them. XLM-R and mT5 use the exponent 0.3, which is T = 10/3.
    """

    temperature: float = 10 / 3
    """Above 0, or `math.inf`. Below 1 large sources gain."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise PlanError.out_of_range(self, "temperature", "above 0 (1 leaves the corpus as it is)")

    def weights(self, tokens: Mapping[str, int], budget: int) -> dict[str, float]:
        """Shares in the order of `tokens`; the budget changes nothing.

        Raises:
            PlanError: No source has tokens.
        """
        largest = max(tokens.values(), default=0)
        if largest <= 0:
            raise PlanError(f"none of the {len(tokens)} sources has tokens: nothing can be mixed")
        # Powers of the ratio to the largest stay in [0, 1] whatever the temperature, and keep scale out of it.
        powers = {
            name: math.exp(math.log(count / largest) / self.temperature) if count > 0 else 0.0
            for name, count in tokens.items()
        }
        total = math.fsum(powers.values())
        return {name: power / total for name, power in powers.items()}
