"""The mean of a sample, or the difference of two, where some runs ended before the target.

The interval is the profile likelihood's with the quantile of t: a likelihood ratio LR becomes

    t = sqrt(v (exp(LR / N) - 1)),   N = reached + censored / 2,   v = N - arms,

which is the exact t interval where nothing is censored, as N log(1 + t^2 / v) is then the likelihood ratio. That a
censored run counts as half a run is no theorem; `benchmarks/coverage.py` shows what it covers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, stdtr, stdtrit

from dataeff.arrow import F64
from dataeff.efficiency.samples import Found, Pilot, Sample, check_spread

_ROOT_2_BY_PI = math.sqrt(2 / math.pi)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Values that share a mean: those reached as sums, those censored one by one."""

    num_reached: int
    total: float
    squares: float
    limits: tuple[tuple[float, float], ...]
    """Bound and side of each censored value: 1 where it is above the bound, -1 where it is below."""

    @classmethod
    def of(cls, values: F64, reached: npt.NDArray[np.bool_], sides: F64) -> Arm:
        """An arm of values, shape (runs,)."""
        known = values[reached]
        limits = zip(values[~reached].tolist(), sides[~reached].tolist(), strict=True)
        return cls(num_reached=len(known), total=float(known.sum()), squares=float(known @ known), limits=tuple(limits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most likely means and spread of arms."""

    log_likelihood: float
    means: tuple[float, ...]
    sigma: float


def _peak(arms: Sequence[Arm], *, free: bool = True, sigma: float | None = None) -> Peak:
    """Where the likelihood of arms with one spread is highest, by Newton's method.

    It is concave in 1 / sigma and mean / sigma (Olsen 1978, Econometrica 46, 1211), so the way up leads to the top. The
    values must be of the size of 1, and some arm must hold two that differ.

    Args:
        arms: Normal values, some censored.
        free: Whether the means are; 0 if not.
        sigma: The spread, where it is known.
    """
    means = [arm.total / arm.num_reached if free else 0.0 for arm in arms]
    inverse = 1 / (sigma or _first_spread(arms, means))
    scaled = [mean * inverse for mean in means]
    height = _height(arms, scaled, inverse)
    for _ in range(100):
        ups, up = _newton(arms, scaled, inverse, free=free, known=sigma is not None)
        step = 1.0
        while True:
            moved = [value + step * by for value, by in zip(scaled, ups, strict=True)]
            higher = _height(arms, moved, inverse + step * up)
            if higher >= height or step < 1e-9:
                break
            step /= 2
        gain = higher - height
        if gain > 0:
            scaled, inverse, height = moved, inverse + step * up, higher
        if gain < 1e-11:
            break
    return Peak(log_likelihood=height, means=tuple(value / inverse for value in scaled), sigma=1 / inverse)


def _first_spread(arms: Sequence[Arm], means: Sequence[float]) -> float:
    """The spread if censored runs had ended at their bounds."""
    squares = 0.0
    for arm, mean in zip(arms, means, strict=True):
        squares += arm.squares - 2 * mean * arm.total + arm.num_reached * mean**2
        squares += sum((bound - mean) ** 2 for bound, _ in arm.limits)
    return math.sqrt(squares / sum(arm.num_reached + len(arm.limits) for arm in arms))


def _height(arms: Sequence[Arm], scaled: Sequence[float], inverse: float) -> float:
    """The log-likelihood up to a constant; `scaled` are means over the spread, `inverse` is one over the spread."""
    if inverse <= 0:
        return -math.inf
    height = 0.0
    for arm, mean in zip(arms, scaled, strict=True):
        height += arm.num_reached * (math.log(inverse) - mean**2 / 2)
        height -= inverse * (inverse * arm.squares / 2 - mean * arm.total)
        for bound, side in arm.limits:
            height += float(log_ndtr(side * (mean - inverse * bound)))
    return height


def _newton(
    arms: Sequence[Arm], scaled: Sequence[float], inverse: float, *, free: bool, known: bool
) -> tuple[list[float], float]:
    """Newton's step for the scaled means and for the inverse spread; means couple through the spread only."""
    slope, curvature = 0.0, 0.0
    parts = []
    for arm, mean in zip(arms, scaled, strict=True):
        slope += arm.num_reached / inverse - inverse * arm.squares + mean * arm.total
        curvature += arm.num_reached / inverse**2 + arm.squares
        slope_mean, curvature_mean, mixed = (
            inverse * arm.total - arm.num_reached * mean,
            float(arm.num_reached),
            arm.total,
        )
        for bound, side in arm.limits:
            z = side * (mean - inverse * bound)
            hazard = _ROOT_2_BY_PI / float(erfcx(-z / math.sqrt(2)))
            bend = min(1.0, hazard * (hazard + z))
            slope_mean += side * hazard
            slope -= side * bound * hazard
            curvature_mean += bend
            mixed += bound * bend
            curvature += bound**2 * bend
        parts.append((slope_mean, curvature_mean, mixed))
        if free:
            slope += mixed * slope_mean / curvature_mean
            curvature -= mixed**2 / curvature_mean
    up = 0.0 if known else slope / curvature
    if not free:
        return [0.0] * len(parts), up
    return [(slope_mean + mixed * up) / curvature_mean for slope_mean, curvature_mean, mixed in parts], up


@dataclass(frozen=True, slots=True, kw_only=True)
class Likelihood:
    """The profile likelihood of a log mean, or of a difference of two, in units of about a standard deviation."""

    at: Callable[[float], float]
    """Highest log-likelihood under a value, up to the constant of `peak`."""
    peak: Peak
    value: float
    """The likeliest, or where to begin where there is none, as an arm is wholly censored."""
    bounded: int
    """0 where `value` is the likeliest; 1 where only a lower bound can be had, -1 where only an upper one."""
    centre: float
    scale: float
    weight: float
    """Runs, a censored one as a half."""
    num_arms: int
    pilot: Pilot | None

    @classmethod
    def of_mean(
        cls, values: F64, reached: npt.NDArray[np.bool_], pilot: Pilot | None, sides: F64 | None = None
    ) -> Likelihood:
        """Of one arm, shapes (runs,), with at least two reached, or one and a pilot."""
        sides = np.ones(len(values)) if sides is None else sides
        centre = float(values[reached].mean())
        scale = pilot.sigma if pilot else _scale([(values, reached)])
        unit = (values - centre) / scale
        sigma = None if pilot is None else pilot.sigma / scale
        peak = _peak([Arm.of(unit, reached, sides)], sigma=sigma)
        return cls(
            at=lambda mean: _peak([Arm.of(unit - mean, reached, sides)], free=False, sigma=sigma).log_likelihood,
            peak=peak,
            value=peak.means[0],
            bounded=0,
            centre=centre,
            scale=scale,
            weight=(len(values) + int(np.count_nonzero(reached))) / 2,
            num_arms=1,
            pilot=pilot,
        )

    @classmethod
    def of_difference(cls, candidate: Sample, baseline: Sample, pilot: Pilot | None) -> Likelihood:
        """Of candidate less baseline, of which at least one has reached runs."""
        arms = (candidate, baseline)
        centre = float(np.concatenate([arm.log_tokens[arm.reached] for arm in arms]).mean())
        scale = pilot.sigma if pilot else _scale([(arm.log_tokens, arm.reached) for arm in arms])
        units = [(arm.log_tokens - centre) / scale for arm in arms]
        reached = np.concatenate([arm.reached for arm in arms])
        sides = np.ones(len(reached))
        sigma = None if pilot is None else pilot.sigma / scale

        def at(difference: float) -> float:
            together = np.concatenate([units[0] - difference, units[1]])
            return _peak([Arm.of(together, reached, sides)], sigma=sigma).log_likelihood

        peak = _peak(
            [
                Arm.of(unit, arm.reached, np.ones(arm.num_runs))
                for unit, arm in zip(units, arms, strict=True)
                if arm.num_reached
            ],
            sigma=sigma,
        )
        bounded = int(not candidate.num_reached) - int(not baseline.num_reached)
        return cls(
            at=at,
            peak=peak,
            value=float(units[0].mean() - units[1].mean()) if bounded else peak.means[0] - peak.means[1],
            bounded=bounded,
            centre=0.0,
            scale=scale,
            weight=(len(reached) + int(np.count_nonzero(reached))) / 2,
            num_arms=2,
            pilot=pilot,
        )

    @property
    def degrees_of_freedom(self) -> float:
        """Of the spread."""
        return self.pilot.degrees_of_freedom if self.pilot else self.weight - self.num_arms

    def found(self, confidence: float) -> Found:
        """The interval, or the bound where an arm is wholly censored."""
        freedom = self.degrees_of_freedom
        tail = 1 - confidence if self.bounded else (1 - confidence) / 2
        drop = self._drop(float(stdtrit(freedom, 1 - tail)))

        def beyond(value: float) -> float:
            return self.peak.log_likelihood - drop - self.at(value)

        # The likelihood's own spread leaves out that the means are fitted too.
        sigma = (
            self.peak.sigma * self.scale * math.sqrt(self.weight / freedom) if self.pilot is None else self.pilot.sigma
        )
        if self.bounded:
            inside = _outward(lambda value: -beyond(value), self.value, self.bounded)
            end = self.scale * _root(beyond, inside, -self.bounded)
            low, high = (end, math.inf) if self.bounded > 0 else (-math.inf, end)
            return Found(log_value=None, low=low, high=high, sigma=sigma, degrees_of_freedom=freedom, method="bound")
        ends = [self.centre + self.scale * _root(beyond, self.value, side) for side in (-1, 1)]
        score = self._score(max(0.0, self.peak.log_likelihood - self.at(-self.centre / self.scale)))
        return Found(
            log_value=self.centre + self.scale * self.value,
            low=ends[0],
            high=ends[1],
            p_value=2 * float(stdtr(freedom, -score)),
            sigma=sigma,
            degrees_of_freedom=freedom,
            method="tobit" if self.pilot is None else "pilot",
        )

    def _score(self, drop: float) -> float:
        """The t that a drop of the log-likelihood stands for; see the top of this module."""
        if self.pilot is not None:
            return math.sqrt(2 * drop)
        return math.sqrt(self.degrees_of_freedom * math.expm1(2 * drop / self.weight))

    def _drop(self, score: float) -> float:
        """The drop of the log-likelihood that a t stands for."""
        if self.pilot is not None:
            return score**2 / 2
        return self.weight / 2 * math.log1p(score**2 / self.degrees_of_freedom)


def _scale(arms: Sequence[tuple[F64, npt.NDArray[np.bool_]]]) -> float:
    """The size of the distances within arms, which are values and whether they were reached, shapes (runs,)."""
    arms = [(values, reached) for values, reached in arms if reached.any()]
    check_spread([values[reached] for values, reached in arms])
    return math.sqrt(np.concatenate([(values - values[reached].mean()) ** 2 for values, reached in arms]).mean())


def _outward(rising: Callable[[float], float], start: float, side: int) -> float:
    """A value from `start` on, on a side of it, at which a function is above 0."""
    step = 1.0
    value = start
    while rising(value) <= 0:
        value += side * step
        step *= 2
    return value


def _root(beyond: Callable[[float], float], inside: float, side: int) -> float:
    """Where a function that is below 0 at `inside` rises through 0 on a side of it."""
    outside = _outward(beyond, inside + side, side)
    return float(brentq(beyond, inside, outside, xtol=1e-10))
