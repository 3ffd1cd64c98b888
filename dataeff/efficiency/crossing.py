"""Tokens to target: where a run's loss falls to a given loss, read from all of its points and never beyond the last.

The first point below the target is late by up to the distance of points, and early where noise dips below; a law
through all points is neither (`dataeff.efficiency.curves`). A crossing inside a schedule that lowers the learning rate
is not what a shorter run with its own schedule would need: compare runs of one schedule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dataeff.efficiency.curves import MIN_FIT_POINTS, STRUCTURE, Curve, PowerLaw, fit, monotone
from dataeff.errors import MeasurementError, PlanError

Method = Literal["power_law", "isotonic"]
MIN_BASELINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """When one run reached the target."""

    tokens: float | None
    """None where the run is censored: it had not reached the target when it ended."""
    method: Method
    budget_tokens: float
    """Last measured point. A censored run needs more than these."""
    projected_tokens: float | None = None
    """Of a censored run, where its power law would reach the target; an extrapolation, never to be counted as read."""

    @property
    def reached(self) -> bool:
        """Whether the run reached the target within its budget."""
        return self.tokens is not None

    @property
    def extrapolated(self) -> bool:
        """Whether the only figure there is lies beyond what was measured."""
        return self.projected_tokens is not None


def tokens_to_target(
    curve: Curve, target: float, *, method: Method | None = None, warmup_tokens: float | None = None
) -> Crossing:
    """Where a curve falls to the target.

    Args:
        curve: Losses of one run.
        target: The loss to reach, above 0, fixed before the run.
        method: `power_law` inverts the law through the points after warm-up; `isotonic` interpolates the monotone
            curve, linearly in the loss against the logarithm of tokens. If not given, the law where it describes the
            curve. Runs that are compared must be read by one method: see `crossings`.
        warmup_tokens: See `dataeff.efficiency.curves.fit`.

    Raises:
        PlanError: The target is not a finite number above 0.
        MeasurementError: The target is reached at the first point already, or the power law is asked for and there is
            none.
    """
    law = None if method == "isotonic" else fit(curve, warmup_tokens=warmup_tokens)
    if law is None and method == "power_law":
        raise MeasurementError(
            f"no power law goes through {len(curve.tokens)} points; it needs {MIN_FIT_POINTS} or more after warm-up, "
            "and losses that fall: evaluate more often, or read the curve with 'isotonic'"
        )
    trusted = law is not None and (method == "power_law" or not law.structured)
    return _read(curve, target, law if trusted else None)


def crossings(curves: Sequence[Curve], target: float, *, warmup_tokens: float | None = None) -> tuple[Crossing, ...]:
    """Where each curve falls to the target, all read by one method, so that no difference is one of methods.

    The power law is used where there is one for every curve that did not diverge and their residuals, taken together
    (the sum of the scores over the root of their number, Stouffer's method), show no structure.

    Raises:
        PlanError: There is no curve, or the target is not a finite number above 0.
        MeasurementError: A curve is at the target from its first point on.
    """
    if not curves:
        raise PlanError("there is no curve to read; give one for each run")
    laws = [fit(curve, warmup_tokens=warmup_tokens) for curve in curves]
    scores = [law.structure for law in laws if law is not None]
    lawful = all(law is not None or curve.diverged for law, curve in zip(laws, curves, strict=True))
    if not lawful or not scores or sum(scores) / math.sqrt(len(scores)) > STRUCTURE:
        laws = [None] * len(curves)
    return tuple(_read(curve, target, law) for curve, law in zip(curves, laws, strict=True))


def _read(curve: Curve, target: float, law: PowerLaw | None) -> Crossing:
    if not (math.isfinite(target) and target > 0):
        raise PlanError(f"the target is {target!r}; it must be a finite loss above 0")
    tokens = 0.0 if law is None else law.tokens(target)
    if law is None or tokens < law.from_tokens:
        # A law says nothing of the curve before its first point.
        return _isotonic(curve, target)
    reached = tokens <= curve.tokens[-1]
    return Crossing(
        tokens=tokens if reached else None,
        method="power_law",
        budget_tokens=curve.budget_tokens,
        projected_tokens=None if reached or curve.diverged or math.isinf(tokens) else tokens,
    )


def choose_target(final_losses: Sequence[float], *, margin_sigmas: float = 2.0) -> float:
    """A loss that runs of the baseline reach: the median of their final losses and a margin above.

    The median is AlgoPerf's (mlcommons/algorithmic-efficiency, DOCUMENTATION.md, Scoring); the margin is what makes
    most of the baseline reach it. Choose it before the candidates run, and write it down with the result.

    Args:
        final_losses: Of runs of the baseline that differ in nothing but the seed.
        margin_sigmas: Standard deviations between runs, 0 or more.

    Raises:
        PlanError: The margin is below 0.
        MeasurementError: There are fewer than `MIN_BASELINES` runs, or one has no finite loss.
    """
    if not (math.isfinite(margin_sigmas) and margin_sigmas >= 0):
        raise PlanError(f"margin_sigmas is {margin_sigmas!r}; it must be 0 or more")
    losses = np.asarray(final_losses, np.float64)
    if len(losses) < MIN_BASELINES or not np.all(np.isfinite(losses)):
        raise MeasurementError(
            f"{np.count_nonzero(np.isfinite(losses))} of {len(losses)} baseline runs have a finite final loss; a "
            f"target needs {MIN_BASELINES} or more runs, all finite: run the baseline with further seeds"
        )
    return float(np.median(losses) + margin_sigmas * losses.std(ddof=1))


def _isotonic(curve: Curve, target: float) -> Crossing:
    losses = monotone(curve)
    below = losses <= target
    if not below.any():
        return Crossing(tokens=None, method="isotonic", budget_tokens=curve.budget_tokens)
    place = int(np.argmax(below))
    if place == 0:
        raise MeasurementError(
            f"the loss is {losses[0]:g} at the first point, {curve.tokens[0]:g} tokens, and the target {target:g}; it "
            "must be crossed between two points: choose a lower target, or evaluate earlier"
        )
    before, after = losses[place - 1], losses[place]
    part = (before - target) / (before - after)
    log_before, log_after = math.log(curve.tokens[place - 1]), math.log(curve.tokens[place])
    # Rounding must not carry a crossing past the point that proves it.
    tokens = min(math.exp(log_before + part * (log_after - log_before)), float(curve.tokens[place]))
    return Crossing(tokens=tokens, method="isotonic", budget_tokens=curve.budget_tokens)
