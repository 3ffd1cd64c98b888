"""Surrogates: from proxy runs to the loss of any mixture. One law a module, found through the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dataeff.arrow import F64
    from dataeff.mixture_fit import Fitted


class Surrogate(Protocol):
    """What a module in this folder provides, as a frozen keyword-only dataclass named after its file."""

    def fit(self, weights: F64, losses: F64, seed: int) -> Fitted:
        """Learn the loss of one validation domain from proxy runs; the same input gives the same result to the bit.

        Args:
            weights: Shares by source, shape (runs, sources); each row is 0 or more and sums to 1.
            losses: Of each run, shape (runs,).
            seed: For whatever is drawn at random.

        Raises:
            PlanError: Shapes do not fit, or a row is no mixture.
            MeasurementError: There are too few runs for this law.
        """


def __getattr__(name: str) -> Any:
    from dataeff.registry import by_class_name

    found = by_class_name("surrogates", name) if name[:1].isupper() else None
    if found is None:
        raise AttributeError(f"module 'dataeff.surrogates' has no attribute {name!r}")
    return found
