"""Which mixtures to try next, and which to train on: few proxy runs, each where it tells most.

Of RegMix's 512 published proxies the best is found by running a twelfth of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dataeff.arrow import F64, I64
from dataeff.errors import PlanError
from dataeff.mixture_fit import SURROGATES, Choice, Model, choose, fit
from dataeff.mixture_optimum import caps, draws, optimum, within_caps
from dataeff.proxy_runs import Runs, check_mixtures

MIN_SHARE = 2e-4
"""RegMix's: a smaller share of a proxy run is too few tokens to learn from."""
KAPPA = 1.0
"""Standard deviations below its prediction at which an untried mixture is judged."""
MIN_DISTANCE = 0.01
"""Share of training in which two mixtures must differ to be worth two runs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """Mixtures to try next, the most promising first."""

    weights: F64
    """Shape (batch, sources)."""
    candidates: I64
    """Their positions among the candidates, shape (batch,)."""
    predicted: F64
    """Aggregated loss, shape (batch,)."""
    std: F64
    """Standard deviation of a run's aggregated loss, shape (batch,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """What one surrogate would train on."""

    weights: dict[str, float]
    """Share by source, summing to 1."""
    epochs: dict[str, float]
    """Times that each source is seen; 0 where it has nothing."""
    predicted: float
    """Aggregated loss of a proxy run."""
    std: float
    regret: float
    """Loss above its own optimum that the chosen surrogate predicts here, 0 or more but for the search's slack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The mixture to train on, and how far to trust it."""

    choice: Choice
    optima: dict[str, Optimum]
    """By surrogate, as far as they could be fitted."""
    disagreement_share: float
    """Share of training in which the optima furthest apart differ, in [0, 1]. Large with small regrets: the loss is
    flat there, and either will do. Large with large regrets: run proxies at both."""

    @property
    def best(self) -> Optimum:
        """That of the chosen surrogate."""
        return self.optima[self.choice.surrogate]


def candidate_draws(prior: F64, limits: F64, count: int, *, seed: int = 0) -> F64:
    """Mixtures to choose proxies from, drawn around a prior as RegMix does, no two alike.

    Shares below 2e-4 are none, and all are rounded to multiples of it.

    Args:
        prior: Shares by source, for instance of tokens, shape (sources,).
        limits: Largest share by source, shape (sources,).
        count: Most mixtures.
        seed: Of the draws.

    Returns:
        Shape (count or fewer, sources), in the order of drawing.
    """
    drawn = draws(prior, limits, 2 * count, seed)
    steps = np.round(np.where(drawn < MIN_SHARE, 0, drawn) / MIN_SHARE)
    _, first = np.unique(steps, axis=0, return_index=True)
    kept = steps[np.sort(first)[:count]]
    return within_caps(kept / kept.sum(1, keepdims=True), limits)


def propose(
    runs: Runs,
    shares: F64,
    candidates: F64,
    batch: int,
    *,
    surrogate: str = "gaussian_process",
    kappa: float = KAPPA,
    min_distance: float = MIN_DISTANCE,
    seed: int = 0,
) -> Proposal:
    """Choose the next proxy runs: those with the lowest bound, prediction less `kappa` standard deviations.

    Args:
        runs: What was tried.
        shares: Weight of each validation domain, shape (domains,), summing to 1.
        candidates: Mixtures to choose from, shape (candidates, sources).
        batch: How many to propose; fewer come where no more are far enough apart.
        surrogate: A member of `dataeff.surrogates`.
        kappa: 0 goes for the best prediction, more explores.
        min_distance: From every run and from each other, half the sum of absolute differences, in [0, 1].
        seed: For whatever the surrogate draws.

    Raises:
        PlanError: An option is out of range, or candidates are no mixtures of the runs' sources.
        MeasurementError: The surrogate needs more runs.
    """
    if batch < 1 or not kappa >= 0 or not 0 <= min_distance <= 1:
        raise PlanError(
            f"batch {batch}, kappa {kappa}, min_distance {min_distance}: batch must be 1 or more, kappa 0 or more and "
            "min_distance in [0, 1]"
        )
    check_mixtures(candidates, len(runs.sources))
    predicted, std = fit(runs, shares, surrogate, seed).predict(candidates)
    chosen = _apart(candidates, np.argsort(predicted - kappa * std, kind="stable"), runs.weights, batch, min_distance)
    return Proposal(weights=candidates[chosen], candidates=chosen, predicted=predicted[chosen], std=std[chosen])


def recommend(
    runs: Runs,
    shares: F64,
    tokens: Mapping[str, int],
    budget: int,
    *,
    max_epochs: float | None = 4.0,
    surrogates: Iterable[str] = SURROGATES,
    seed: int = 0,
) -> Recommendation:
    """The best mixture under a cap on repetition by each surrogate, and which of them to believe.

    Args:
        runs: Proxy runs.
        shares: Weight of each validation domain, shape (domains,), summing to 1.
        tokens: Distinct tokens by source; a source of the runs that is not named has none.
        budget: Tokens to train on.
        max_epochs: Most repetitions of a source; None sets no limit.
        surrogates: Members of `dataeff.surrogates`, two or more to see them disagree.
        seed: Of folds and draws.

    Raises:
        PlanError: Tokens name a source that no run was trained on, or fall short of the budget under the cap.
        MeasurementError: There are too few runs.
    """
    limits = caps(runs.sources, tokens, budget, max_epochs)
    choice = choose(runs, shares, surrogates, seed=seed)
    models = {name: fit(runs, shares, name, seed) for name in choice.spearman}
    places = {name: optimum(model, limits, seed=seed) for name, model in models.items()}
    judge = models[choice.surrogate]
    lowest = float(judge.predict(places[choice.surrogate][None])[0][0])
    return Recommendation(
        choice=choice,
        optima={
            name: _described(models[name], place, tokens, budget, float(judge.predict(place[None])[0][0]) - lowest)
            for name, place in places.items()
        },
        disagreement_share=max(
            0.5 * float(np.abs(left - right).sum()) for left in places.values() for right in places.values()
        ),
    )


def _described(model: Model, place: F64, tokens: Mapping[str, int], budget: int, regret: float) -> Optimum:
    mean, std = model.predict(place[None])
    weights = dict(zip(model.sources, place.tolist(), strict=True))
    return Optimum(
        weights=weights,
        epochs={name: share * budget / tokens[name] if tokens.get(name) else 0.0 for name, share in weights.items()},
        predicted=float(mean[0]),
        std=float(std[0]),
        regret=regret,
    )


def _apart(candidates: F64, order: I64, tried: F64, batch: int, min_distance: float) -> I64:
    """The first `batch` positions in `order` whose mixtures are apart from all tried and from each other."""
    chosen: list[int] = []
    near = list(tried)
    for place in order.tolist():
        distances = 0.5 * np.abs(np.array(near) - candidates[place]).sum(1)
        if (distances > 0).all() and (distances >= min_distance).all():
            chosen.append(place)
            near.append(candidates[place])
        if len(chosen) == batch:
            break
    return np.array(chosen, np.int64)
