"""Slow, obvious curves: the monotone one by its min-max formula, the power law by a general optimiser."""

from __future__ import annotations

import numpy as np
from scipy.optimize import least_squares


def falling(losses: list[float], weights: list[float]) -> list[float]:
    """The nearest non-increasing values: at i, the least over a <= i of the greatest over b >= i of means of a..b."""

    def mean(a: int, b: int) -> float:
        return float(np.average(losses[a : b + 1], weights=weights[a : b + 1]))

    points = range(len(losses))
    return [min(max(mean(a, b) for b in points if b >= i) for a in points if a <= i) for i in points]


def power_law(tokens: np.ndarray, losses: np.ndarray, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """The least weighted squares of E + exp(a - b log t), t over its last value, and (E, a, b); from many starts."""
    log_t = np.log(tokens / tokens[-1])

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.sqrt(weights) * (x[0] + np.exp(x[1] - x[2] * log_t) - losses)

    found = [
        least_squares(
            residuals,
            [share * losses.min(), np.log((1 - share) * losses.min() + 1e-3), exponent],
            bounds=([0, -np.inf, 0.01], [np.inf, np.inf, 10]),
            xtol=1e-14,
            ftol=1e-14,
            gtol=1e-14,
            x_scale="jac",
        )
        for share in (0.1, 0.5, 0.9)
        for exponent in (0.1, 0.4, 1.5)
    ]
    best = min(found, key=lambda one: one.cost)
    return 2 * float(best.cost), best.x
