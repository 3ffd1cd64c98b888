"""Surrogates fitted to proxy runs: one fit a validation domain, and the choice of a surrogate.

A fit of the aggregated loss would be a fit of the wrong law: a sum of log-linear laws is none, and on the runs of Data
Mixing Laws one such fit ranks mixtures no better than chance where fits by domain, then summed, do well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dataeff.arrow import F64
from dataeff.errors import MeasurementError
from dataeff.proxy_runs import Runs
from dataeff.registry import member

SURROGATES = ("gaussian_process", "log_linear")
"""What `auto` chooses among: those that every installation has, so that a recipe means the same everywhere."""
FOLDS = 5
CHOICE_RUNS = 256
"""Most runs by which surrogates are compared; ranks hardly change with more, and time does."""


class Fitted(Protocol):
    """A surrogate that has seen its runs."""

    def predict(self, weights: F64) -> tuple[F64, F64]:
        """Loss of a proxy run at each mixture and the standard deviation of it, noise of a run included.

        Args:
            weights: Shares by source, shape (m, sources), in the order in which they were fitted.

        Returns:
            Both of shape (m,).

        Raises:
            PlanError: A row is no mixture of the sources.
        """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """One surrogate, fitted for every validation domain that counts."""

    surrogate: str
    sources: tuple[str, ...]
    shares: F64
    """Weight of each fit in the aggregate, shape (fits,), summing to 1."""
    fits: tuple[Fitted, ...]
    centre: F64
    """Mean mixture of the runs, shape (sources,)."""

    def predict(self, weights: F64) -> tuple[F64, F64]:
        """Aggregated loss and its standard deviation, both of shape (m,), for shares of shape (m, sources).

        Errors of domains are taken to rise and fall together, which overstates the deviation rather than understates
        it.
        """
        found = [fit.predict(weights) for fit in self.fits]
        mean: F64 = self.shares @ np.array([mean for mean, _ in found])
        std: F64 = self.shares @ np.array([std for _, std in found])
        return mean, std


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Surrogates compared on runs that they had not seen."""

    surrogate: str
    """The one that ranks the runs best; of equals the first that was named."""
    spearman: dict[str, float]
    """Rank correlation of out-of-fold predictions of the aggregated loss with what was measured, in [-1, 1]."""
    agreement: float
    """Lowest rank correlation between two surrogates' predictions; 1 where there is only one. Far below the scores
    above, the surrogates err in different places: look at what each proposes."""
    refused: dict[str, str]
    """Surrogates that cannot be fitted to so few runs, and why."""


def fit(runs: Runs, shares: F64, surrogate: str, seed: int) -> Model:
    """Fit a surrogate to each domain that has a share.

    Args:
        runs: Proxy runs.
        shares: Weight of each domain, shape (domains,), summing to 1.
        surrogate: A member of `dataeff.surrogates`.
        seed: For whatever it draws.

    Raises:
        PlanError: There is no such surrogate, or it cannot work here.
        MeasurementError: It needs more runs.
    """
    maker = member("surrogates", surrogate)()
    counted = np.flatnonzero(shares > 0)
    return Model(
        surrogate=surrogate,
        sources=runs.sources,
        shares=shares[counted],
        fits=tuple(maker.fit(runs.weights, runs.losses[:, domain], seed) for domain in counted),
        centre=runs.weights.mean(0),
    )


def choose(runs: Runs, shares: F64, names: Iterable[str] = SURROGATES, *, seed: int = 0) -> Choice:
    """Compare surrogates by how well they rank runs that were left out of their fits, in five seeded folds.

    Args:
        runs: Proxy runs; of more than 256, as many are drawn.
        shares: Weight of each domain, shape (domains,), summing to 1.
        names: Members of `dataeff.surrogates`.
        seed: For the folds and whatever surrogates draw.

    Raises:
        PlanError: There is no such surrogate, or it cannot work here.
        MeasurementError: There are too few runs for every one of them.
    """
    order = np.random.default_rng(seed).permutation(len(runs.weights))[:CHOICE_RUNS]
    drawn = runs.only(order)
    predicted: dict[str, F64] = {}
    refused: dict[str, str] = {}
    for name in names:
        try:
            predicted[name] = _out_of_fold(drawn, shares, name, seed)
        except MeasurementError as error:
            refused[name] = str(error)
    if not predicted:
        raise MeasurementError("no surrogate can be compared: " + "; ".join(refused.values()))
    measured = drawn.losses @ shares
    scores = {name: spearman(found, measured) for name, found in predicted.items()}
    pairs = itertools.combinations(predicted.values(), 2)
    return Choice(
        surrogate=max(scores, key=lambda name: scores[name]),
        spearman=scores,
        agreement=min((spearman(left, right) for left, right in pairs), default=1.0),
        refused=refused,
    )


def spearman(left: F64, right: F64) -> float:
    """Rank correlation of two arrays of shape (n,), ties by their mean rank; 0 where one of them is constant."""
    from scipy.stats import rankdata

    ranks = [rankdata(side) - (len(side) + 1) / 2 for side in (left, right)]
    size = math.sqrt(float(ranks[0] @ ranks[0]) * float(ranks[1] @ ranks[1]))
    return float(ranks[0] @ ranks[1]) / size if size else 0.0


def _out_of_fold(runs: Runs, shares: F64, name: str, seed: int) -> F64:
    """Prediction of each run's aggregated loss by fits that had not seen it, shape (runs,)."""
    predicted = np.empty(len(runs.weights))
    rows = np.arange(len(predicted))
    for fold in range(FOLDS):
        held = rows % FOLDS == fold
        if held.any():
            model = fit(runs.only(rows[~held]), shares, name, seed)
            predicted[held] = model.predict(runs.weights[held])[0]
    return predicted
