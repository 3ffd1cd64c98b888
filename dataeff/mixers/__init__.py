"""Mixers: tokens by source to weights that sum to 1. One rule a module, found through the registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Mixer(Protocol):
    """What a module in this folder provides, as a frozen keyword-only dataclass named after its file."""

    def weights(self, tokens: Mapping[str, int], budget: int) -> dict[str, float]:
        """Share of each source in training, summing to 1 within 1e-12, in the order of `tokens`.

        Args:
            tokens: Distinct tokens that each source has; a source with none gets weight 0.
            budget: Tokens to train on.

        Raises:
            PlanError: The mixer names a source that is not there, or no source has tokens.
        """


def __getattr__(name: str) -> Any:
    from dataeff.registry import by_class_name

    found = by_class_name("mixers", name) if name[:1].isupper() else None
    if found is None:
        raise AttributeError(f"module 'dataeff.mixers' has no attribute {name!r}")
    return found
