"""Gradient-boosted trees, RegMix's own surrogate: the reference that others are measured against."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataeff.arrow import F64
from dataeff.errors import PlanError
from dataeff.proxy_runs import check_mixtures, check_runs

LEAST_RUNS = 10
_LEAST_LEAF = 2
_LEAF_SHARE = 8
_PATIENCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostedTrees:
    """LightGBM with the options of RegMix (Liu et al. 2024, arXiv:2407.01492): L2, 1000 trees, learning rate 0.01.

    RegMix stops early by the loss on its test set. Here the number of trees is fixed, or comes from runs held out of
    those that were given, never from what the surrogate is judged by. Needs the extra `surrogates`.
    """

    trees: int = 1000
    """Most trees, 1 or more."""
    learning_rate: float = 0.01
    leaf_runs: int = 20
    """Fewest runs in a leaf, LightGBM's default; an eighth of the runs where that is less, so that few runs split."""
    stop_early: bool = False
    """Whether the held-out runs choose the number of trees."""
    held_out_share: float = 0.1
    """Of the runs, kept aside once to state the standard deviation; the trees that predict are grown on all."""

    def __post_init__(self) -> None:
        if self.trees < 1:
            raise PlanError.out_of_range(self, "trees", "1 or more")
        if not self.learning_rate > 0:
            raise PlanError.out_of_range(self, "learning_rate", "above 0")
        if self.leaf_runs < 1:
            raise PlanError.out_of_range(self, "leaf_runs", "1 or more")
        if not 0 < self.held_out_share <= 0.5:
            raise PlanError.out_of_range(self, "held_out_share", "above 0, and 0.5 at most")

    def fit(self, weights: F64, losses: F64, seed: int) -> Forest:
        """Grow trees on all runs but some, see how far off they are there, and grow them again on all.

        Args:
            weights: Shape (runs, sources).
            losses: Shape (runs,).
            seed: Chooses the runs to hold out.

        Raises:
            PlanError: LightGBM is not installed, shapes do not fit, or a row is no mixture.
            MeasurementError: There are fewer than 10 runs.
        """
        lightgbm = _lightgbm()
        check_runs(self, weights, losses, LEAST_RUNS)
        order = np.random.default_rng(seed).permutation(len(losses))
        aside, kept = np.split(order, [max(2, round(self.held_out_share * len(losses)))])
        options = {
            "objective": "regression",
            "boosting": "gbdt",
            "metric": "l2",
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": min(self.leaf_runs, max(_LEAST_LEAF, len(losses) // _LEAF_SHARE)),
            "seed": seed,
            "num_threads": 1,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(weights[kept], losses[kept])
        held = lightgbm.Dataset(weights[aside], losses[aside], reference=data)
        stops = [lightgbm.early_stopping(_PATIENCE, verbose=False)] if self.stop_early else []
        trial = lightgbm.train(options, data, self.trees, valid_sets=[held], callbacks=stops)
        off = trial.predict(weights[aside]) - losses[aside]
        trees = trial.best_iteration if self.stop_early else self.trees
        return Forest(
            booster=lightgbm.train(options, lightgbm.Dataset(weights, losses), trees),
            residual=float(np.sqrt((off**2).mean())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Grown trees."""

    booster: Any
    residual: float
    """Root mean square of what they were off on runs held out."""

    def predict(self, weights: F64) -> tuple[F64, F64]:
        """Loss of a run at each mixture and its standard deviation, the same everywhere, both of shape (m,).

        Raises:
            PlanError: A row is no mixture of the sources of the runs.
        """
        check_mixtures(weights, self.booster.num_feature())
        return np.asarray(self.booster.predict(weights), np.float64), np.full(len(weights), self.residual)


def _lightgbm() -> Any:
    try:
        return importlib.import_module("lightgbm")
    except ImportError as error:
        raise PlanError(
            "the surrogate boosted_trees needs LightGBM, which is not installed: pip install 'dataeff[surrogates]', "
            "or choose gaussian_process or log_linear"
        ) from error
