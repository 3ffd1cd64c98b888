"""From proxy runs to the mixture that they favour: one fit a validation domain, the choice of a surrogate, the optimum.

A fit of the aggregated loss would be a fit of the wrong law: a sum of log-linear laws is none, and on the runs of Data
Mixing Laws one such fit ranks mixtures no better than chance where fits by domain, then summed, do well.

Columns are sorted by name when a table is read, and names travel with the numbers, so that a cap never meets the wrong
source.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dataeff.arrow import F64, I64
from dataeff.errors import FormatError, MeasurementError, PlanError
from dataeff.registry import member, name_of

if TYPE_CHECKING:
    import pyarrow as pa

SURROGATES = ("gaussian_process", "log_linear")
"""What `auto` chooses among: those that every installation has, so that a recipe means the same everywhere."""
FOLDS = 5
CHOICE_RUNS = 256
"""Most runs by which surrogates are compared; ranks hardly change with more, and time does."""
NUM_DRAWS = 20_000
NUM_AVERAGED = 128
"""RegMix averages so many of the mixtures that are predicted best."""
MIN_SHARE = 2e-4
"""RegMix's: a smaller share of a proxy run is too few tokens to learn from."""
_STRENGTHS = np.logspace(-1, math.log10(5), 15)
"""Concentrations of RegMix's Dirichlet draws."""
_TEMPER = 0.5
_TOLERANCE = 1e-6
_ROUNDING = 1e-12
_NEGLIGIBLE = 1e-200
_TRICKLE = 1e-12
_ROUNDED = 0.01
"""Published weights are rounded; a row whose sum is off by less is divided by it."""
_FEW_AVERAGED = 16
_FLOOR = 1e-6
_MAX_STEPS = 200
_SMALLEST_STEP = 1e-3
_DIFFERENCE = 1e-5


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
class Runs:
    """Proxy runs: what each was trained on, and how well it did."""

    sources: tuple[str, ...]
    domains: tuple[str, ...]
    """Of validation."""
    weights: F64
    """Shares by source, shape (runs, sources)."""
    losses: F64
    """Shape (runs, domains)."""

    def __post_init__(self) -> None:
        check_mixtures(self.weights, len(self.sources))
        if self.losses.shape != (len(self.weights), len(self.domains)):
            raise PlanError(
                f"losses have the shape {self.losses.shape}; {len(self.weights)} runs on {len(self.domains)} domains "
                "need one row a run and one column a domain"
            )

    def only(self, rows: I64) -> Runs:
        """The runs at these positions."""
        return Runs(sources=self.sources, domains=self.domains, weights=self.weights[rows], losses=self.losses[rows])


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


def check_runs(owner: object, weights: F64, losses: F64, least: int) -> None:
    """See that a surrogate can be fitted.

    Args:
        owner: The surrogate.
        weights: Shape (runs, sources).
        losses: Shape (runs,).
        least: Fewest runs that it needs.

    Raises:
        PlanError: Shapes do not fit, a row is no mixture, or a loss is not finite.
        MeasurementError: There are fewer runs.
    """
    check_mixtures(weights, weights.shape[-1])
    if losses.shape != weights.shape[:1]:
        raise PlanError(f"losses have the shape {losses.shape}; {len(weights)} runs need one loss each")
    if not np.isfinite(losses).all():
        raise PlanError(f"the loss of run {int(np.argmin(np.isfinite(losses)))} is not finite: leave out failed runs")
    if len(losses) < least:
        raise MeasurementError(
            f"{name_of(owner)} has {len(losses)} proxy runs of {weights.shape[1]} sources; it needs {least} or more: "
            "train more proxies"
        )


def check_mixtures(weights: F64, num_sources: int) -> None:
    """See that rows are mixtures: shape (m, num_sources), 0 or more, sums within 1e-6 of 1.

    Raises:
        PlanError: They are not.
    """
    if weights.ndim != 2 or weights.shape[1] != num_sources:
        raise PlanError(f"mixtures have the shape {weights.shape}; it must be (mixtures, {num_sources} sources)")
    wrong = np.flatnonzero(~((weights >= 0).all(1) & (np.abs(weights.sum(1) - 1) <= _TOLERANCE)))
    if len(wrong):
        raise PlanError(
            f"row {int(wrong[0])} is no mixture: its shares sum to {weights[wrong[0]].sum():g} and the least is "
            f"{weights[wrong[0]].min():g}; shares must be 0 or more and sum to 1"
        )


def read_runs(path: Path) -> Runs:
    """Read a table of proxy runs, CSV or Parquet (by the ending `.parquet`), one row a run.

    Columns `weight:SOURCE` hold the share of each source that the run was trained on, columns `loss:DOMAIN` its final
    validation loss; other columns are left alone. Rows whose shares sum to 1 within 0.01 are divided by their sum.

    Returns:
        Sources and domains sorted by name.

    Raises:
        PlanError: There is no such file.
        FormatError: It cannot be read, lacks columns, or a row holds no mixture or no finite loss.
    """
    table = _table(path)
    weights, sources = _columns(path, table, "weight:")
    losses, domains = _columns(path, table, "loss:")
    sums = weights.sum(1)
    for fault, rows in (
        ("a share below 0", np.flatnonzero((weights < 0).any(1))),
        ("shares that do not sum to 1", np.flatnonzero(np.abs(sums - 1) > _ROUNDED)),
    ):
        if len(rows):
            raise FormatError(
                f"{path}, row {int(rows[0]) + 1}: {fault} (sum {sums[rows[0]]:g}); the columns weight:SOURCE of a run "
                "are what it was trained on, 0 or more each and 1 together"
            )
    return Runs(sources=sources, domains=domains, weights=weights / sums[:, None], losses=losses)


def domain_shares(domains: Sequence[str], wanted: Mapping[str, float]) -> F64:
    """Weight of each domain in the aggregate, shape (domains,), summing to 1; all alike if none is wanted.

    Raises:
        PlanError: A wanted domain is not there, a weight is negative or not finite, or all are 0.
    """
    unknown = sorted(set(wanted) - set(domains))
    if unknown:
        raise PlanError(f"no run has a loss on {', '.join(unknown)}; there are {', '.join(domains)}")
    found = np.array([wanted.get(name, 0.0) for name in domains] if wanted else np.ones(len(domains)), np.float64)
    if not (np.isfinite(found).all() and (found >= 0).all() and found.sum() > 0):
        raise PlanError(f"weights of domains are {dict(wanted)!r}; they must be finite, 0 or more, and not all 0")
    shares: F64 = found / found.sum()
    return shares


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


def _table(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if not path.is_file():
        raise PlanError(f"no table of proxy runs at {path}; give a CSV or Parquet file with one row a run")
    try:
        return pa.parquet.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"{path} cannot be read ({error}); it must be CSV, or Parquet named .parquet") from error


def _columns(path: Path, table: pa.Table, prefix: str) -> tuple[F64, tuple[str, ...]]:
    """Columns that begin with `prefix`, sorted, as an array of shape (rows, columns), and their names without it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = sorted(name for name in table.column_names if name.startswith(prefix))
    if not names or len(set(names)) < len(names):
        raise FormatError(
            f"{path} has {'no column' if not names else 'one column twice'} that begins with {prefix!r} among "
            f"{', '.join(table.column_names[:8])}; it needs one named {prefix}NAME for each"
        )
    found = np.empty((table.num_rows, len(names)))
    for place, name in enumerate(names):
        try:
            column = pc.cast(table.column(name), pa.float64())
        except pa.ArrowException as error:
            raise FormatError(f"{path}, column {name!r} does not hold numbers: {error}") from error
        found[:, place] = column.combine_chunks().to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(~np.isfinite(found[:, place]))
        if len(wrong):
            raise FormatError(
                f"{path}, row {int(wrong[0]) + 1}: {name!r} is empty or not finite; leave out runs that failed"
            )
    return found, tuple(name.removeprefix(prefix) for name in names)
