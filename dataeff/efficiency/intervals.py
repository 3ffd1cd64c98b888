"""How many tokens a target takes, and how two recipes compare, with intervals that hold for three to eight seeds.

All of it is on the logarithm of tokens to target, where seeds scatter evenly and a difference is a ratio. A run that
ended before the target is not left out, which would flatter its recipe: it counts as having needed more than its
budget (a right-censored value, Tobit's model). Resampling three seeds says too little of their spread (a percentile
bootstrap of a nominal 95 % covers about 75 % to 81 %), so it serves for evaluation noise within a run only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri, stdtr, stdtrit
from scipy.stats import nct

from dataeff.arrow import F64
from dataeff.efficiency.censored import Likelihood
from dataeff.efficiency.crossing import tokens_to_target
from dataeff.efficiency.curves import Curve
from dataeff.efficiency.samples import CONFIDENCE, Found, Method, Pilot, Sample, check_spread
from dataeff.errors import MeasurementError, PlanError

MIN_PILOT_RUNS = 8
MIN_BLOCKS = 20
"""Validation blocks below which resampling them says too little of their spread."""
_MAX_SEEDS = 1_000_000


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


def _of_t(estimate: float, error: float, freedom: float, sigma: float, method: Method, confidence: float) -> Found:
    half = float(stdtrit(freedom, 0.5 + confidence / 2)) * error
    return Found(
        log_value=estimate,
        low=estimate - half,
        high=estimate + half,
        p_value=2 * float(stdtr(freedom, -abs(estimate) / error)),
        sigma=sigma,
        degrees_of_freedom=freedom,
        method=method,
    )


def _of_mean(sample: Sample, pilot: Pilot | None, confidence: float) -> Found:
    values, reached = sample.log_tokens, sample.num_reached
    if not reached:
        return Found(log_value=None, low=float(values.mean()), high=math.inf, method="bound")
    known = pilot if reached == 1 else None
    if reached == 1 and known is None:
        return Found(log_value=float(values[0]) if sample.num_runs == 1 else None)
    if reached < sample.num_runs:
        return Likelihood.of_mean(values, sample.reached, known).found(confidence)
    sigma, freedom = _spread(values) if known is None else (known.sigma, known.degrees_of_freedom)
    error = sigma / math.sqrt(len(values))
    return _of_t(float(values.mean()), error, freedom, sigma, "t" if known is None else "pilot", confidence)


def _spread(values: F64) -> tuple[float, float]:
    check_spread([values])
    return float(values.std(ddof=1)), len(values) - 1.0


def _of_pairs(candidate: Sample, baseline: Sample, confidence: float) -> Found | None:
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
    found = Likelihood.of_mean(values, both[told], None, sides).found(confidence)
    assert found.sigma is not None
    return replace(found, sigma=found.sigma / math.sqrt(2))


def _of_difference(candidate: Sample, baseline: Sample, pilot: Pilot | None, confidence: float) -> Found:
    arms = (candidate, baseline)
    alone = min(candidate.num_runs, baseline.num_runs) == 1
    means = [float(arm.log_tokens.mean()) for arm in arms]
    whole = all(arm.num_reached == arm.num_runs for arm in arms)
    reached = [arm.num_reached for arm in arms]
    known = pilot if alone else None
    if known is None and (alone or sum(reached) <= sum(count > 0 for count in reached)):
        return Found(log_value=means[0] - means[1] if whole else None)
    if not any(reached):
        return Found(log_value=None)
    if not whole:
        return Likelihood.of_difference(candidate, baseline, known).found(confidence)
    if known is not None:
        error = known.sigma * math.sqrt(sum(1 / arm.num_runs for arm in arms))
        return _of_t(means[0] - means[1], error, known.degrees_of_freedom, known.sigma, "pilot", confidence)
    variances = [float(arm.log_tokens.var(ddof=1)) for arm in arms]
    check_spread([arm.log_tokens for arm in arms])
    parts = [variance / arm.num_runs for variance, arm in zip(variances, arms, strict=True)]
    # Welch 1947, with the degrees of freedom of Satterthwaite 1946.
    freedom = sum(parts) ** 2 / sum(part**2 / (arm.num_runs - 1) for part, arm in zip(parts, arms, strict=True))
    pooled = sum(variance * (arm.num_runs - 1) for variance, arm in zip(variances, arms, strict=True))
    sigma = math.sqrt(pooled / (sum(arm.num_runs for arm in arms) - 2))
    return _of_t(means[0] - means[1], math.sqrt(sum(parts)), freedom, sigma, "welch", confidence)
