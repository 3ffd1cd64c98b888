"""Slow, obvious statistics: censored likelihoods by a general optimiser, power by integration, survival by counting."""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import chi, norm


def _log_likelihood(values: np.ndarray, reached: np.ndarray, means: np.ndarray, sigma: float) -> float:
    told = norm.logpdf(values[reached], means[reached], sigma).sum()
    return float(told + norm.logsf(values[~reached], means[~reached], sigma).sum())


def peak(values: np.ndarray, reached: np.ndarray, arms: np.ndarray, fixed: dict[int, float] | None = None) -> float:
    """The highest likelihood of normal values with one spread, right-censored where not reached.

    Args:
        values, reached: Shape (runs,).
        arms: The arm of each run, from 0 on, shape (runs,).
        fixed: Means that are known, by arm.
    """
    count = int(arms.max()) + 1
    held = fixed or {}
    free = [arm for arm in range(count) if arm not in held]
    start = [*(values[(arms == arm) & reached].mean() for arm in free), math.log(values.std() + 1e-3)]

    def loss(x: np.ndarray) -> float:
        means = np.array([held[arm] if arm in held else x[free.index(arm)] for arm in range(count)])
        return -_log_likelihood(values, reached, means[arms], math.exp(x[-1]))

    found = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12, "maxiter": 20_000})
    found = minimize(loss, found.x, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12, "maxiter": 20_000})
    return -float(found.fun)


def power(num_runs: int, effect_sigmas: float, threshold: float) -> float:
    """The chance that t exceeds the threshold, over the distribution of the estimated spread."""
    freedom = 2 * (num_runs - 1)
    shift = effect_sigmas * math.sqrt(num_runs / 2)

    def part(spread: float) -> float:
        beyond = norm.sf(threshold * spread - shift)
        return float(beyond * chi.pdf(spread * math.sqrt(freedom), freedom) * math.sqrt(freedom))

    return float(quad(part, 0, 1, limit=200)[0] + quad(part, 1, np.inf, limit=200)[0])


def survival(times: list[float], reached: list[bool]) -> list[tuple[float, float]]:
    """Kaplan and Meier's share of runs that are not done, after each time at which a run is."""
    left, found = 1.0, []
    for time in sorted({time for time, done in zip(times, reached, strict=True) if done}):
        at_risk = sum(other >= time for other in times)
        done_now = sum(other == time and done for other, done in zip(times, reached, strict=True))
        left *= 1 - done_now / at_risk
        found.append((time, left))
    return found
