"""How many tokens a target takes, and how two recipes compare, with intervals that hold for three to eight seeds.

All of it is on the logarithm of tokens to target, where seeds scatter evenly and a difference is a ratio. A run that
ended before the target is not left out, which would flatter its recipe: it counts as having needed more than its
budget (a right-censored value, Tobit's model). Resampling three seeds says too little of their spread (a percentile
bootstrap of a nominal 95 % covers about 75 % to 81 %), so it serves for evaluation noise within a run only.

Where runs are censored, the interval is the profile likelihood's with the quantile of t: a likelihood ratio LR becomes

    t = sqrt(v (exp(LR / N) - 1)),   N = reached + censored / 2,   v = N - arms,

which is the exact t interval where nothing is censored, as N log(1 + t^2 / v) is then the likelihood ratio. That a
censored run counts as half a run is no theorem; `benchmarks/coverage.py` shows what it covers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtri, stdtr, stdtrit
from scipy.stats import nct

from dataeff.arrow import F64
from dataeff.efficiency.crossing import Crossing, tokens_to_target
from dataeff.efficiency.curves import Curve
from dataeff.errors import MeasurementError, PlanError

Method = Literal["t", "welch", "paired", "tobit", "pilot", "bound", "none"]
CONFIDENCE = 0.95
MIN_PILOT_RUNS = 8
MIN_BLOCKS = 20
"""Validation blocks below which resampling them says too little of their spread."""
_MAX_SEEDS = 1_000_000
_ROOT_2_BY_PI = math.sqrt(2 / math.pi)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Tokens to one target of runs that differ in their seeds only."""

    log_tokens: F64
    """Natural logarithm of the tokens at the target, or of the budget where it was not reached, shape (runs,)."""
    reached: npt.NDArray[np.bool_]
    """Shape (runs,)."""

    def __post_init__(self) -> None:
        if self.log_tokens.ndim != 1 or self.log_tokens.shape != self.reached.shape or not len(self.log_tokens):
            raise PlanError(
                f"a sample of {self.log_tokens.shape} token counts and {self.reached.shape} marks; there must be one "
                "of both for each run, and at least one run"
            )
        if not np.all(np.isfinite(self.log_tokens)):
            raise PlanError(
                "Sample.log_tokens holds a value that is not finite; a run that missed the target has the logarithm of "
                "its budget and is marked as not reached"
            )

    @classmethod
    def of(cls, crossings: Sequence[Crossing]) -> Sample:
        """What `dataeff.efficiency.crossing.crossings` read."""
        return cls(
            log_tokens=np.log([one.budget_tokens if one.tokens is None else one.tokens for one in crossings]),
            reached=np.array([one.reached for one in crossings], np.bool_),
        )

    @property
    def num_runs(self) -> int:
        """Runs, censored ones too."""
        return len(self.reached)

    @property
    def num_reached(self) -> int:
        """Runs that reached the target."""
        return int(np.count_nonzero(self.reached))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """The spread between seeds, known from earlier runs of the baseline."""

    sigma: float
    """Standard deviation of log tokens to target."""
    degrees_of_freedom: float
    num_runs: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise PlanError.out_of_range(self, "sigma", "a finite number above 0")
        if not self.degrees_of_freedom > 0:
            raise PlanError.out_of_range(self, "degrees_of_freedom", "above 0")


def pilot_sigma(runs: Sample) -> Pilot:
    """The spread between seeds for comparisons with one run an arm.

    Recipes can differ in their spread (25 times between two mixtures has been measured in marin-community/marin), so it
    holds for candidates near the baseline only.

    Raises:
        MeasurementError: Fewer than `MIN_PILOT_RUNS` runs reached the target, or they do not differ.
    """
    if runs.num_reached < MIN_PILOT_RUNS:
        raise MeasurementError(
            f"{runs.num_reached} of {runs.num_runs} pilot runs reached the target; a spread for single runs needs "
            f"{MIN_PILOT_RUNS} or more: run further seeds, or compare with several seeds an arm"
        )
    found = _of_mean(runs, None, CONFIDENCE)
    assert found.sigma is not None
    assert found.degrees_of_freedom is not None
    return Pilot(sigma=found.sigma, degrees_of_freedom=found.degrees_of_freedom, num_runs=runs.num_runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """Tokens to target of one recipe."""

    num_reached: int
    num_runs: int
    mean_tokens: float | None
    """Geometric mean; where runs are censored that of Tobit's model. None where too few runs reached the target."""
    low_tokens: float | None
    """Of the interval of the mean. Where no run reached the target, the geometric mean of what was spent without."""
    high_tokens: float | None
    """None where there is no interval, infinite where there is a lower bound only."""
    sigma: float | None
    """Standard deviation of log tokens between seeds: 0.01 is about 1 % of tokens. None for one run."""
    degrees_of_freedom: float | None
    median_tokens: float | None
    """Kaplan-Meier: the fewest tokens by which half the runs had reached it. None where fewer than half did."""
    method: Method
    confidence: float

    @property
    def words(self) -> str:
        """The above as a sentence part."""
        reached = f"reached {self.num_reached} of {self.num_runs}"
        if not self.num_reached:
            return f"not reached (0 of {self.num_runs}): more than {self.low_tokens:.4g} tokens"
        if self.mean_tokens is None:
            return f"{reached}: too few reached it: no mean"
        if self.low_tokens is None:
            return f"{reached}: {self.mean_tokens:.4g} tokens; one seed: no interval"
        return (
            f"{reached}: {self.mean_tokens:.4g} tokens ({self.low_tokens:.4g} to {self.high_tokens:.4g}, "
            f"{self.confidence:.0%})"
        )


def describe(
    sample: Sample, *, pilot: Pilot | None = None, evaluation_sigma: float = 0.0, confidence: float = CONFIDENCE
) -> Description:
    """Tokens to target of one recipe, with an interval over its seeds.

    Args:
        sample: Its runs.
        pilot: A spread to use where the runs have none of their own, being one.
        evaluation_sigma: Standard deviation of log tokens from the choice of validation data, as `bootstrap_crossing`
            gives it. All runs are read on the same data, so seeds do not average it out: each side of the interval
            is lengthened by it in quadrature (Zou and Donner 2008, Statistics in Medicine 27, 1693, with the noise
            normal and its size known). A ratio needs none: what two recipes share cancels.
        confidence: Of the interval, above 0 and below 1.

    Raises:
        PlanError: An argument is out of its range.
        MeasurementError: Several runs reached the target and do not differ at all.
    """
    _check_confidence(confidence)
    if not (math.isfinite(evaluation_sigma) and evaluation_sigma >= 0):
        raise PlanError(f"evaluation_sigma is {evaluation_sigma!r}; it must be 0 or more")
    found = _of_mean(sample, pilot, confidence)
    low, high = found.low, found.high
    if evaluation_sigma and found.log_value is not None and low is not None and high is not None:
        extra = float(ndtri(0.5 + confidence / 2)) * evaluation_sigma
        low = found.log_value - math.hypot(found.log_value - low, extra)
        high = found.log_value + math.hypot(high - found.log_value, extra)
    return Description(
        num_reached=sample.num_reached,
        num_runs=sample.num_runs,
        mean_tokens=_exp(found.log_value),
        low_tokens=_exp(low),
        high_tokens=_exp(high),
        sigma=found.sigma,
        degrees_of_freedom=found.degrees_of_freedom,
        median_tokens=_median(sample),
        method=found.method,
        confidence=confidence,
    )


def _median(sample: Sample) -> float | None:
    """Kaplan and Meier's (1958): the first time by which half are done; of equal times, censored runs come last."""
    left = Fraction(1)
    order = np.lexsort((~sample.reached, sample.log_tokens))
    for place, run in enumerate(order.tolist()):
        at_risk = sample.num_runs - place
        if sample.reached[run]:
            left *= Fraction(at_risk - 1, at_risk)
        if left <= Fraction(1, 2):
            return math.exp(sample.log_tokens[run])
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Tokens that a candidate needs over those that the baseline needs, for the same target."""

    ratio: float | None
    """Of geometric means; below 1 the candidate is cheaper. None where an arm never reached the target."""
    low: float | None
    """Of the interval; of a bound on one side 0 or the bound. None where there is no interval."""
    high: float | None
    """Infinite where there is a lower bound only."""
    p_value: float | None
    """Two-sided, that the ratio is 1. None where there is no interval or only a bound."""
    degrees_of_freedom: float | None
    sigma: float | None
    """Standard deviation of log tokens between seeds; of pairs that of their differences over the root of 2."""
    method: Method
    confidence: float
    candidate_reached: int
    candidate_runs: int
    baseline_reached: int
    baseline_runs: int

    @property
    def words(self) -> str:
        """The above as a sentence part."""
        if self.low is None or self.high is None:
            return "" if self.ratio is None else f"{self.ratio:.4g} times the tokens; no interval"
        if self.ratio is None:
            side = f"at least {self.low:.4g}" if math.isinf(self.high) else f"at most {self.high:.4g}"
            return f"{side} times the tokens ({self.confidence:.0%})"
        return f"{self.ratio:.4g} times the tokens ({self.low:.4g} to {self.high:.4g}, {self.confidence:.0%})"

    @property
    def method_words(self) -> str:
        """How the interval was made."""
        freedom = "" if self.degrees_of_freedom is None else f", {self.degrees_of_freedom:.3g} degrees of freedom"
        return f"{_METHOD_WORDS[self.method]}{freedom}"


_METHOD_WORDS: dict[Method, str] = {
    "t": "Student's t on log tokens",
    "welch": "Welch's t on log tokens",
    "paired": "paired t on log tokens",
    "tobit": "profile likelihood with censored runs, one spread for all, quantiles of t",
    "pilot": "spread of the pilot runs",
    "bound": "one-sided bound, as no run of an arm reached the target",
    "none": "too few runs for an interval",
}


def ratio(
    candidate: Sample,
    baseline: Sample,
    *,
    paired: bool = False,
    pilot: Pilot | None = None,
    confidence: float = CONFIDENCE,
) -> Ratio:
    """How many times the baseline's tokens a candidate needs.

    Welch's t where all runs reached the target; where some did not, the likelihood of censored runs with one spread
    for both arms; where an arm never did, a bound.

    Args:
        candidate: Its runs.
        baseline: Its runs, read against the same target.
        paired: Whether the runs of both, in order, share the initial weights and the order of the data. A promise: the
            same seed with another order shares nothing (15 groups of 4 seeds in datablations show no common effect).
        pilot: The spread to use where an arm has one run; an interval of single runs is not given without.
        confidence: Of the interval, above 0 and below 1.

    Raises:
        PlanError: Paired arms differ in their number of runs, or the confidence is out of its range.
        MeasurementError: The runs of neither arm differ from each other: they are copies.
    """
    _check_confidence(confidence)
    if paired and candidate.num_runs != baseline.num_runs:
        raise PlanError(
            f"{candidate.num_runs} candidate and {baseline.num_runs} baseline runs cannot be paired; there must be one "
            "of each for every seed: leave out those without a partner, or compare unpaired"
        )
    found = _of_pairs(candidate, baseline, confidence) if paired else None
    found = found or _of_difference(candidate, baseline, pilot, confidence)
    return Ratio(
        ratio=_exp(found.log_value),
        low=_exp(found.low),
        high=_exp(found.high),
        p_value=found.p_value,
        degrees_of_freedom=found.degrees_of_freedom,
        sigma=found.sigma,
        method=found.method,
        confidence=confidence,
        candidate_reached=candidate.num_reached,
        candidate_runs=candidate.num_runs,
        baseline_reached=baseline.num_reached,
        baseline_runs=baseline.num_runs,
    )


def holm(p_values: Sequence[float | None]) -> tuple[float | None, ...]:
    """P-values of several comparisons with one baseline, adjusted so that one in twenty families errs (Holm 1979).

    The winner of many is lucky besides: run it and the second again on fresh seeds.

    Args:
        p_values: In [0, 1]; None for a comparison without, which stays None and does not count.

    Raises:
        PlanError: A value is outside [0, 1].
    """
    known = [(p, place) for place, p in enumerate(p_values) if p is not None]
    for p, place in known:
        if not 0 <= p <= 1:
            raise PlanError(f"p-value {place} is {p!r}; it must be in [0, 1], or None")
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, place) in enumerate(sorted(known)):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        adjusted[place] = largest
    return tuple(adjusted)


def seeds_to_see(effect_share: float, sigma: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Runs an arm needs for a two-sided t test of two equal arms to find a difference.

    Args:
        effect_share: Of tokens, above -1 and not 0; -0.02 is a candidate that needs 2 % fewer.
        sigma: Standard deviation of log tokens between seeds.
        alpha: Share of comparisons of equals that are found different.
        power: Share of comparisons with this effect that are found different.

    Raises:
        PlanError: An argument is out of its range, or more than a million seeds would be needed.
    """
    _check_design(sigma, alpha, power)
    if not (math.isfinite(effect_share) and effect_share > -1 and effect_share != 0):
        raise PlanError(
            f"effect_share is {effect_share!r}; it must be above -1 and not 0, as -0.02 for 2 % fewer tokens"
        )
    effect = abs(math.log1p(effect_share))
    few, many = 1, 2
    while _power(many, effect / sigma, alpha) < power:
        few, many = many, 2 * many
        if many > _MAX_SEEDS:
            raise PlanError(
                f"a difference of {effect_share:.2g} beside a spread of {sigma:.2g} needs more than {_MAX_SEEDS} "
                "seeds; ask for a larger one"
            )
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if _power(middle, effect / sigma, alpha) < power else (few, middle)
    return many


def smallest_effect(num_runs: int, sigma: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """The least share of tokens that a candidate must need more for so many runs an arm to find it; see `seeds_to_see`.

    Raises:
        PlanError: An argument is out of its range.
    """
    _check_design(sigma, alpha, power)
    if num_runs < 2:
        raise PlanError(f"num_runs is {num_runs}; one run shows no spread, so it must be 2 or more an arm")
    high = 1.0
    while _power(num_runs, high, alpha) < power:
        high *= 2
    effect = float(brentq(lambda size: _power(num_runs, size, alpha) - power, 0.0, high, xtol=1e-12))
    return math.expm1(effect * sigma)


def _check_design(sigma: float, alpha: float, power: float) -> None:
    if not (math.isfinite(sigma) and sigma > 0):
        raise PlanError(f"sigma is {sigma!r}; it must be a finite number above 0, such as 0.005")
    if not 0 < alpha < power < 1:
        raise PlanError(f"alpha is {alpha!r} and power {power!r}; there must be 0 < alpha < power < 1")


def _power(num_runs: int, effect_sigmas: float, alpha: float) -> float:
    """Chance that a two-sided t test of two arms of `num_runs` finds a difference of so many standard deviations.

    Found on its own side, that is, as R's `power.t.test` counts.
    """
    freedom = 2 * (num_runs - 1)
    threshold = float(stdtrit(freedom, 1 - alpha / 2))
    noncentrality = effect_sigmas * math.sqrt(num_runs / 2)
    # Far beyond the threshold scipy's distribution loses itself, where the chance is as good as 1.
    return 1.0 if noncentrality > 30 + 3 * threshold else float(nct.sf(threshold, freedom, noncentrality))


def verdict(compared: Ratio, *, p_value: float | None = None, alpha: float = 0.05, effect_share: float = 0.02) -> str:
    """What may be said of a candidate, in words.

    Args:
        compared: What `ratio` found.
        p_value: Adjusted for the number of comparisons, as `holm` gives it; that of `compared` if not given.
        alpha: At or below it a difference is found.
        effect_share: The difference for which seeds are counted where none is found.
    """
    p = compared.p_value if p_value is None else p_value
    bound = f": {compared.words}" if compared.method == "bound" else ""
    if not compared.candidate_reached:
        return f"not reached (0 of {compared.candidate_runs}){bound}"
    if not compared.baseline_reached:
        return f"the baseline did not reach it (0 of {compared.baseline_runs}){bound}"
    if compared.p_value is None or p is None or compared.ratio is None:
        if min(compared.candidate_runs, compared.baseline_runs) == 1:
            return "one seed: no interval"
        reached = compared.candidate_reached + compared.baseline_reached
        return f"too few reached it ({reached} of {compared.candidate_runs + compared.baseline_runs}): no interval"
    if p <= alpha:
        return "cheaper" if compared.ratio < 1 else "dearer"
    assert compared.sigma is not None
    seeds = seeds_to_see(effect_share, compared.sigma, alpha=alpha)
    effect = f"{100 * abs(effect_share):.3g} %"
    if seeds <= min(compared.candidate_runs, compared.baseline_runs):
        return f"no difference found at this budget, where {seeds} seeds see {effect}"
    return f"no difference found at this budget; it would take {seeds} seeds to see {effect}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationNoise:
    """How far one run's crossing moves with the choice of validation data."""

    tokens: float | None
    """Of the run on all blocks; None where it did not reach the target."""
    log_sigma: float | None
    """Of log tokens: half the distance of the 16th and 84th percentile. None where too many resamples missed it."""
    low_tokens: float
    high_tokens: float
    """2.5th and 97.5th percentile; infinite where resamples missed the target."""
    reached_share: float
    """Of resamples."""


def bootstrap_crossing(
    losses_by_block: F64, tokens: F64, target: float, seed: int, *, num_resamples: int = 400
) -> EvaluationNoise:
    """Evaluation noise of one run: its crossing when blocks of validation data are drawn again with replacement.

    It says nothing of seeds. The spread between seeds (`describe`, `ratio`) already holds what evaluation adds to each
    run on its own; what all runs share by being read on the same blocks goes into `describe` as `evaluation_sigma`, and
    cancels in a ratio.

    Args:
        losses_by_block: Mean loss of each block of equally many tokens, shape (points, blocks).
        tokens: Seen at each point, shape (points,).
        target: The loss to reach.
        seed: Of the draws.
        num_resamples: Draws, 100 or more.

    Raises:
        PlanError: The shapes differ, the target is not above 0, or there are too few draws.
        MeasurementError: There are fewer than `MIN_BLOCKS` blocks, or a draw is at the target from its first point on.
    """
    if losses_by_block.ndim != 2 or losses_by_block.shape[0] != len(tokens) or num_resamples < 100:
        raise PlanError(
            f"losses of shape {losses_by_block.shape} for {len(tokens)} points and {num_resamples} draws; there must "
            "be a row for each point, and 100 draws or more"
        )
    blocks = losses_by_block.shape[1]
    if blocks < MIN_BLOCKS:
        raise MeasurementError(
            f"{blocks} validation blocks; their spread needs {MIN_BLOCKS} or more: cut the validation data finer"
        )
    whole = tokens_to_target(Curve.of(tokens, losses_by_block.mean(axis=1)), target)
    random = np.random.default_rng(seed)
    drawn = np.empty(num_resamples)
    for place in range(num_resamples):
        counts = random.multinomial(blocks, np.full(blocks, 1 / blocks))
        curve = Curve.of(tokens, losses_by_block @ counts / blocks)
        found = tokens_to_target(curve, target, method=whole.method).tokens
        drawn[place] = math.inf if found is None else found
    low, down, up, high = np.quantile(drawn, (0.025, 0.16, 0.84, 0.975), method="higher").tolist()
    return EvaluationNoise(
        tokens=whole.tokens,
        log_sigma=None if math.isinf(up) else (math.log(up) - math.log(down)) / 2,
        low_tokens=low,
        high_tokens=high,
        reached_share=float(np.mean(np.isfinite(drawn))),
    )


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise PlanError(f"confidence is {confidence!r}; it must be above 0 and below 1")


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A log mean, or a difference of two, with its interval."""

    log_value: float | None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    sigma: float | None = None
    degrees_of_freedom: float | None = None
    method: Method = "none"


def _of_t(estimate: float, error: float, freedom: float, sigma: float, method: Method, confidence: float) -> _Found:
    half = float(stdtrit(freedom, 0.5 + confidence / 2)) * error
    return _Found(
        log_value=estimate,
        low=estimate - half,
        high=estimate + half,
        p_value=2 * float(stdtr(freedom, -abs(estimate) / error)),
        sigma=sigma,
        degrees_of_freedom=freedom,
        method=method,
    )


def _of_mean(sample: Sample, pilot: Pilot | None, confidence: float) -> _Found:
    values, reached = sample.log_tokens, sample.num_reached
    if not reached:
        return _Found(log_value=None, low=float(values.mean()), high=math.inf, method="bound")
    known = pilot if reached == 1 else None
    if reached == 1 and known is None:
        return _Found(log_value=float(values[0]) if sample.num_runs == 1 else None)
    if reached < sample.num_runs:
        return _Likelihood.of_mean(values, sample.reached, known).found(confidence)
    sigma, freedom = _spread(values) if known is None else (known.sigma, known.degrees_of_freedom)
    error = sigma / math.sqrt(len(values))
    return _of_t(float(values.mean()), error, freedom, sigma, "t" if known is None else "pilot", confidence)


def _spread(values: F64) -> tuple[float, float]:
    _check_spread([values])
    return float(values.std(ddof=1)), len(values) - 1.0


def _check_spread(arms: Sequence[F64]) -> None:
    if all(np.ptp(arm) == 0 for arm in arms if len(arm)):
        raise MeasurementError(
            "runs took the same tokens to the target, or pairs the same ratio, to the last digit; seeds scatter, so "
            "these are copies of one run: give each run its own seed"
        )


def _of_pairs(candidate: Sample, baseline: Sample, confidence: float) -> _Found | None:
    """The interval of pairs' differences, or None where too few pairs say anything by themselves."""
    told = candidate.reached | baseline.reached
    both = candidate.reached & baseline.reached
    if np.count_nonzero(both) < 2:
        return None
    values = (candidate.log_tokens - baseline.log_tokens)[told]
    if both[told].all():
        sigma, freedom = _spread(values)
        error = sigma / math.sqrt(len(values))
        return _of_t(float(values.mean()), error, freedom, sigma / math.sqrt(2), "paired", confidence)
    # A censored candidate needs at least the difference more, a censored baseline at most.
    sides = np.where(candidate.reached, -1.0, 1.0)[told]
    found = _Likelihood.of_mean(values, both[told], None, sides).found(confidence)
    assert found.sigma is not None
    return replace(found, sigma=found.sigma / math.sqrt(2))


def _of_difference(candidate: Sample, baseline: Sample, pilot: Pilot | None, confidence: float) -> _Found:
    arms = (candidate, baseline)
    alone = min(candidate.num_runs, baseline.num_runs) == 1
    means = [float(arm.log_tokens.mean()) for arm in arms]
    whole = all(arm.num_reached == arm.num_runs for arm in arms)
    reached = [arm.num_reached for arm in arms]
    known = pilot if alone else None
    if known is None and (alone or sum(reached) <= sum(count > 0 for count in reached)):
        return _Found(log_value=means[0] - means[1] if whole else None)
    if not any(reached):
        return _Found(log_value=None)
    if not whole:
        return _Likelihood.of_difference(candidate, baseline, known).found(confidence)
    if known is not None:
        error = known.sigma * math.sqrt(sum(1 / arm.num_runs for arm in arms))
        return _of_t(means[0] - means[1], error, known.degrees_of_freedom, known.sigma, "pilot", confidence)
    variances = [float(arm.log_tokens.var(ddof=1)) for arm in arms]
    _check_spread([arm.log_tokens for arm in arms])
    parts = [variance / arm.num_runs for variance, arm in zip(variances, arms, strict=True)]
    # Welch 1947, with the degrees of freedom of Satterthwaite 1946.
    freedom = sum(parts) ** 2 / sum(part**2 / (arm.num_runs - 1) for part, arm in zip(parts, arms, strict=True))
    pooled = sum(variance * (arm.num_runs - 1) for variance, arm in zip(variances, arms, strict=True))
    sigma = math.sqrt(pooled / (sum(arm.num_runs for arm in arms) - 2))
    return _of_t(means[0] - means[1], math.sqrt(sum(parts)), freedom, sigma, "welch", confidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arm:
    """Values that share a mean: those reached as sums, those censored one by one."""

    num_reached: int
    total: float
    squares: float
    limits: tuple[tuple[float, float], ...]
    """Bound and side of each censored value: 1 where it is above the bound, -1 where it is below."""

    @classmethod
    def of(cls, values: F64, reached: npt.NDArray[np.bool_], sides: F64) -> _Arm:
        """An arm of values, shape (runs,)."""
        known = values[reached]
        limits = zip(values[~reached].tolist(), sides[~reached].tolist(), strict=True)
        return cls(num_reached=len(known), total=float(known.sum()), squares=float(known @ known), limits=tuple(limits))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peak:
    """The most likely means and spread of arms."""

    log_likelihood: float
    means: tuple[float, ...]
    sigma: float


def _peak(arms: Sequence[_Arm], *, free: bool = True, sigma: float | None = None) -> _Peak:
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
    return _Peak(log_likelihood=height, means=tuple(value / inverse for value in scaled), sigma=1 / inverse)


def _first_spread(arms: Sequence[_Arm], means: Sequence[float]) -> float:
    """The spread if censored runs had ended at their bounds."""
    squares = 0.0
    for arm, mean in zip(arms, means, strict=True):
        squares += arm.squares - 2 * mean * arm.total + arm.num_reached * mean**2
        squares += sum((bound - mean) ** 2 for bound, _ in arm.limits)
    return math.sqrt(squares / sum(arm.num_reached + len(arm.limits) for arm in arms))


def _height(arms: Sequence[_Arm], scaled: Sequence[float], inverse: float) -> float:
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
    arms: Sequence[_Arm], scaled: Sequence[float], inverse: float, *, free: bool, known: bool
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
class _Likelihood:
    """The profile likelihood of a log mean, or of a difference of two, in units of about a standard deviation."""

    at: Callable[[float], float]
    """Highest log-likelihood under a value, up to the constant of `peak`."""
    peak: _Peak
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
    ) -> _Likelihood:
        """Of one arm, shapes (runs,), with at least two reached, or one and a pilot."""
        sides = np.ones(len(values)) if sides is None else sides
        centre = float(values[reached].mean())
        scale = pilot.sigma if pilot else _scale([(values, reached)])
        unit = (values - centre) / scale
        sigma = None if pilot is None else pilot.sigma / scale
        peak = _peak([_Arm.of(unit, reached, sides)], sigma=sigma)
        return cls(
            at=lambda mean: _peak([_Arm.of(unit - mean, reached, sides)], free=False, sigma=sigma).log_likelihood,
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
    def of_difference(cls, candidate: Sample, baseline: Sample, pilot: Pilot | None) -> _Likelihood:
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
            return _peak([_Arm.of(together, reached, sides)], sigma=sigma).log_likelihood

        peak = _peak(
            [
                _Arm.of(unit, arm.reached, np.ones(arm.num_runs))
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

    def found(self, confidence: float) -> _Found:
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
            return _Found(log_value=None, low=low, high=high, sigma=sigma, degrees_of_freedom=freedom, method="bound")
        ends = [self.centre + self.scale * _root(beyond, self.value, side) for side in (-1, 1)]
        score = self._score(max(0.0, self.peak.log_likelihood - self.at(-self.centre / self.scale)))
        return _Found(
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
    _check_spread([values[reached] for values, reached in arms])
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
