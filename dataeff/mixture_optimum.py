"""Mixtures under caps on each source's share, and the one for which surrogates predict the lowest loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dataeff.arrow import F64
from dataeff.errors import PlanError
from dataeff.mixture_fit import Model

NUM_DRAWS = 20_000
NUM_AVERAGED = 128
"""RegMix averages so many of the mixtures that are predicted best."""
_STRENGTHS = np.logspace(-1, math.log10(5), 15)
"""Concentrations of RegMix's Dirichlet draws."""
_TEMPER = 0.5
_ROUNDING = 1e-12
_NEGLIGIBLE = 1e-200
_TRICKLE = 1e-12
_FEW_AVERAGED = 16
_FLOOR = 1e-6
_MAX_STEPS = 200
_SMALLEST_STEP = 1e-3
_DIFFERENCE = 1e-5


def caps(sources: Sequence[str], tokens: Mapping[str, int], budget: int, max_epochs: float | None) -> F64:
    """Largest share that each source can have without repeating more than `max_epochs` times, shape (sources,).

    Args:
        sources: Names, in the order wanted; one without tokens has the cap 0.
        tokens: Distinct tokens by source.
        budget: Tokens to train on.
        max_epochs: Most repetitions; None sets no limit where there are tokens at all.

    Raises:
        PlanError: A source with tokens is not among `sources`, no source has tokens, or even all of them at their
            caps fall short of the budget.
    """
    unknown = sorted(name for name, count in tokens.items() if count > 0 and name not in sources)
    if unknown:
        raise PlanError(
            f"no proxy run was trained on {', '.join(unknown)}; the runs' sources are {', '.join(sources)}: give both "
            "the same names, or train proxies on all sources"
        )
    if budget < 1:
        raise PlanError(f"the budget is {budget}; it must be 1 or more tokens")
    have = np.array([tokens.get(name, 0) for name in sources], np.float64)
    if not have.any():
        raise PlanError(f"none of the {len(have)} sources has tokens: nothing can be mixed")
    if max_epochs is None:
        return (have > 0).astype(np.float64)
    missing = budget - max_epochs * float(have.sum())
    if missing > _ROUNDING * budget:
        raise PlanError(
            f"{max_epochs:g} epochs of all sources are {missing:,.0f} tokens short of the budget of {budget:,}: find "
            "more data, raise max_epochs, or train on less"
        )
    limits: F64 = np.minimum(1.0, max_epochs * have / budget)
    return limits


def within_caps(weights: F64, limits: F64) -> F64:
    """The mixtures under `limits` that are nearest to `weights` by Kullback-Leibler divergence.

    Each is min(cap, s w) with the one s at which it sums to 1; where sources of weight 0 are needed to get there, they
    give in proportion to their caps.

    Args:
        weights: Shape (m, sources).
        limits: Largest share by source, shape (sources,), summing to 1 or more.
    """
    # Dirichlet draws have shares so small that a quotient with them overflows.
    wanted = np.where(weights > _NEGLIGIBLE, weights, 0)
    short = (limits * (wanted > 0)).sum(1, keepdims=True) < 1
    wanted = np.where(short, wanted + _TRICKLE * limits, wanted)
    ratio = np.divide(limits, wanted, out=np.full_like(wanted, np.inf), where=wanted > 0)
    order = np.argsort(ratio, axis=1, kind="stable")
    bounds = limits[order]
    left = 1 - (np.cumsum(bounds, axis=1) - bounds)
    behind = np.cumsum(np.take_along_axis(wanted, order, axis=1)[:, ::-1], axis=1)[:, ::-1]
    scale = np.divide(left, behind, out=np.full_like(wanted, np.inf), where=behind > 0)
    free = np.take_along_axis(ratio, order, axis=1) >= scale
    first = np.argmax(free, axis=1)[:, None]
    chosen = np.where(free.any(1, keepdims=True), np.take_along_axis(scale, first, axis=1), np.inf)
    filled: F64 = np.minimum(limits, np.multiply(wanted, chosen, out=np.zeros_like(wanted), where=wanted > 0))
    filled /= filled.sum(1, keepdims=True)
    return filled


def draws(prior: F64, limits: F64, count: int, seed: int) -> F64:
    """Mixtures around `prior` as RegMix draws them (sail-sg/regmix, synthesize_mixture.py).

    Dirichlet draws around the square roots of `prior`, at 15 concentrations from 0.1 to 5 with equal chance. What is
    above a cap is brought under it, where RegMix throws the draw away.

    Args:
        prior: 0 or more, shape (sources,).
        limits: Largest share by source, shape (sources,).
        count: How many.
        seed: Of the draws.

    Returns:
        Shape (count, sources).
    """
    rng = np.random.default_rng(seed)
    held = np.flatnonzero((prior > 0) & (limits > 0))
    found = np.zeros((count, len(prior)))
    if len(held):
        tempered = prior[held] ** _TEMPER / (prior[held] ** _TEMPER).sum()
        strengths = rng.integers(len(_STRENGTHS), size=count)
        for number, strength in enumerate(_STRENGTHS):
            rows = np.flatnonzero(strengths == number)
            found[np.ix_(rows, held)] = rng.dirichlet(tempered * strength, len(rows))
    return within_caps(found, limits)


def optimum(model: Model, limits: F64, *, seed: int = 0, num_draws: int = NUM_DRAWS) -> F64:
    """The mixture under `limits` for which the model predicts the lowest loss, shape (sources,).

    The best of many draws are averaged, as in RegMix, and exponentiated gradients lead down from there: for a sum of
    log-linear laws, which is convex, to the minimum; for trees, which have no slope, nowhere, and the average stays.

    Args:
        model: Fitted surrogates.
        limits: Largest share by source, shape (sources,), summing to 1 or more.
        seed: Of the draws.
        num_draws: How many.
    """
    pool = draws(model.centre, limits, num_draws, seed)
    best = pool[np.argsort(model.predict(pool)[0], kind="stable")]
    starts = [best[:NUM_AVERAGED].mean(0), best[:_FEW_AVERAGED].mean(0), within_caps(model.centre[None], limits)[0]]
    places, values = _descended(model, np.array(starts), limits)
    found = places[np.argmin(values)]
    kept: F64 = within_caps(np.where(found >= 10 * _FLOOR, found, 0.0)[None], limits)[0]
    return kept


def _descended(model: Model, places: F64, limits: F64) -> tuple[F64, F64]:
    """Where exponentiated gradients lead from each row, shape (starts, sources), and the loss there, (starts,)."""
    starts, sources = places.shape
    places = within_caps(np.maximum(places, _FLOOR * limits), limits)
    values = model.predict(places)[0]
    steps = np.ones(starts)
    for _ in range(_MAX_STEPS):
        # Towards each pure source in turn: the slopes less a constant, which the steps below do not see.
        probes = (1 - _DIFFERENCE) * places[:, None, :] + _DIFFERENCE * np.eye(sources)
        slopes = (
            model.predict(probes.reshape(-1, sources))[0].reshape(starts, sources) - values[:, None]
        ) / _DIFFERENCE
        pushed = places * np.exp(-np.clip(steps[:, None] * (slopes - slopes.min(1, keepdims=True)), 0, 30))
        tried = within_caps(np.maximum(pushed, _FLOOR * limits), limits)
        found = model.predict(tried)[0]
        better = found < values
        places, values = np.where(better[:, None], tried, places), np.where(better, found, values)
        steps *= np.where(better, 2.0, 0.25)
        if (steps < _SMALLEST_STEP).all():
            break
    return places, values
