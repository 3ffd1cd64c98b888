"""Constants of the data-constrained scaling law, fitted to runs that repeat data.

The objective is that of Muennighoff et al. 2023 (arXiv 2305.16264, appendix A): Huber's loss of the errors of log
losses, quadratic up to 0.001, so for nearly all runs the absolute error. It has several minima. With A, B, E, alpha and
beta held, the 182 runs of the authors' own fit have one at R_D* = 15.37, R_N* = 5.315 (0.01582593), the published one,
and a deeper one at 46.99 and 2.330 (0.01580738); with all constants fitted, it is at 33.6 and 153 (0.006961). So unless
`near` is asked for, the fit starts from many places, and with a wide Huber loss that is narrowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dataeff.arrow import F64
from dataeff.efficiency.repetition import ScalingLaw
from dataeff.errors import MeasurementError, PlanError

REPETITION = ("r_d", "r_n")
ALL = ("log_a", "log_b", "log_e", "alpha", *REPETITION)
"""Every constant of the published law, whose beta is its alpha."""
HUBER = 1e-3
"""Error of a log loss up to which the objective is quadratic."""
_NARROWING = (0.1, 0.02, 0.005, HUBER)
_BOUNDS = {
    "log_a": (-5.0, 25.0),
    "log_b": (-5.0, 25.0),
    "log_e": (-5.0, 2.5),
    "alpha": (0.05, 2.0),
    "beta": (0.05, 2.0),
    "r_d": (0.05, 1e3),
    "r_n": (0.05, 1e3),
}
_STARTS = tuple((r_d, r_n) for r_d in (2.0, 15.0, 50.0) for r_n in (2.0, 5.0, 20.0))
_AT_BOUND = 1 + 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionRun:
    """One finished run."""

    parameters: float
    tokens: float
    """Trained on, repetitions included."""
    unique_tokens: float
    """Of these, different ones."""
    loss: float
    """On held-out text, in nats a token."""

    def __post_init__(self) -> None:
        for name in ("parameters", "tokens", "unique_tokens", "loss"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise PlanError.out_of_range(self, name, "finite and above 0")
        if self.unique_tokens > self.tokens:
            raise PlanError.out_of_range(self, "unique_tokens", f"at most tokens, {self.tokens:g}")


def misfit(runs: Sequence[RepetitionRun], law: ScalingLaw) -> float:
    """The objective: Huber's loss of the errors of log losses, summed over runs."""
    return _huber(log_losses(law, _columns(runs)[:3]) - _columns(runs)[3])


def log_losses(law: ScalingLaw, runs: F64) -> F64:
    """Logarithms of predicted losses: `ScalingLaw.loss` over arrays.

    Args:
        law: Which predicts.
        runs: Parameters, tokens and unique tokens, shape (3, runs).
    """
    _, tokens, unique = runs
    best, beyond = _sizes(law, runs)
    size = best + np.log1p(-law.r_n * np.expm1(-beyond / law.r_n))
    data = np.log(unique) + np.log1p(-law.r_d * np.expm1(-(tokens / unique - 1) / law.r_d))
    found: F64 = np.logaddexp(
        np.logaddexp(law.log_a - law.alpha * size, law.log_b - law.beta * data), np.full_like(size, law.log_e)
    )
    return found


def _sizes(law: ScalingLaw, runs: F64) -> tuple[F64, F64]:
    """Logarithm of the parameters that are best for the unique tokens, where a run has as many, and times beyond."""
    parameters, _, unique = runs
    balance = (math.log(law.alpha / law.beta) + law.log_a - law.log_b) / (law.alpha + law.beta)
    best = np.minimum(np.log(parameters), (np.log(unique) + balance) * law.beta / law.alpha + balance)
    # A trial law of the optimiser may find one parameter best for everything.
    return best, np.expm1(np.minimum(np.log(parameters) - best, 600.0))


def fit_repetition(
    runs: Sequence[RepetitionRun],
    law: ScalingLaw | None = None,
    fitted: Sequence[str] = REPETITION,
    *,
    near: bool = False,
) -> ScalingLaw:
    """The law whose losses are nearest to those of the runs.

    Leave out runs whose loss rose again with more epochs or parameters: the law knows no such thing.

    Args:
        runs: At least two more than constants are fitted.
        law: Constants that are held; the published ones if not given. Beta keeps its ratio to alpha unless fitted.
        fitted: Names of constants to fit, of `ScalingLaw`.
        near: Go down to the minimum nearest to `law` rather than the deepest that is found.

    Raises:
        PlanError: A name is no constant of the law, or none is given.
        MeasurementError: There are too few runs; none repeats data, or none has parameters in excess, where that is
            to be fitted; a constant runs away, since the runs do not bound it.
    """
    law = law or ScalingLaw()
    _check(runs, law, fitted)
    columns = _columns(runs)
    starts = [law] if near else _starts(law, fitted)
    found = [_descend(columns, np.ones(len(runs)), start, fitted, (HUBER,) if near else _NARROWING) for start in starts]
    best = _settle(columns, min(found, key=lambda one: one[0])[1], fitted)
    for name in fitted:
        low, high = _BOUNDS[name]
        if not low * _AT_BOUND < getattr(best, name) < high / _AT_BOUND and name in REPETITION:
            raise MeasurementError(
                f"{name} runs away to {getattr(best, name):g}: the runs do not bound it; give runs that repeat more "
                "(r_d) or have more parameters for their data (r_n), leave out runs whose loss rose again, or hold it "
                f"by leaving {name!r} out of `fitted`"
            )
    return best


def law_draws(
    runs: Sequence[RepetitionRun],
    clusters: Sequence[Hashable],
    law: ScalingLaw | None = None,
    fitted: Sequence[str] = ALL,
    *,
    num_draws: int = 199,
    seed: int = 0,
) -> tuple[ScalingLaw, ...]:
    """Equally likely laws: each is fitted to as many clusters of runs as there are, drawn with replacement.

    Runs of a cluster share what the law lacks, so that they are drawn together: seeds of a configuration always, and
    where residuals go by size, all runs of a size. A constant that a draw does not bound stays at the end of its range.

    Args:
        runs: As for `fit_repetition`.
        clusters: Which cluster each run is of.
        law: Where fits start, beside the fit to all runs.
        fitted: As for `fit_repetition`.
        num_draws, seed: Of the bootstrap.

    Raises:
        PlanError: There are not as many clusters as runs.
        MeasurementError: There are fewer than three different clusters.
        DataeffError: See `fit_repetition`.
    """
    law = law or ScalingLaw()
    if len(clusters) != len(runs):
        raise PlanError(f"{len(clusters)} clusters for {len(runs)} runs; give each run the one it is of")
    names = list(dict.fromkeys(clusters))
    if len(names) < 3:
        raise MeasurementError(f"{len(names)} clusters of runs; a bootstrap needs 3 or more")
    of_run = np.array([names.index(name) for name in clusters])
    starts = (fit_repetition(runs, law, fitted), law)
    columns, rng, found = _columns(runs), np.random.default_rng(seed), []
    for _ in range(num_draws):
        times = np.bincount(rng.integers(0, len(names), len(names)), minlength=len(names))[of_run].astype(np.float64)
        fits = [_descend(columns, times, start, fitted, _NARROWING) for start in starts]
        found.append(min(fits, key=lambda one: one[0])[1])
    return tuple(found)


def _check(runs: Sequence[RepetitionRun], law: ScalingLaw, fitted: Sequence[str]) -> None:
    unknown = sorted(set(fitted) - set(_BOUNDS))
    if unknown or not fitted:
        raise PlanError(f"cannot fit {', '.join(unknown) or 'nothing'}; the constants are {', '.join(_BOUNDS)}")
    if len(runs) < len(fitted) + 2:
        raise MeasurementError(f"{len(runs)} runs; to fit {len(fitted)} constants takes {len(fitted) + 2} or more")
    if "r_d" in fitted and all(run.tokens == run.unique_tokens for run in runs):
        raise MeasurementError(
            f"none of the {len(runs)} runs repeats data; r_d needs runs of several epochs, best up to 16 and more"
        )
    if "r_n" in fitted and not _sizes(law, _columns(runs)[:3])[1].any():
        raise MeasurementError(
            f"none of the {len(runs)} runs has more parameters than are best for its unique tokens; r_n needs some, or "
            "leave 'r_n' out of `fitted`"
        )


def _columns(runs: Sequence[RepetitionRun]) -> F64:
    """Parameters, tokens, unique tokens and the logarithm of the loss, shape (4, runs)."""
    return np.array([(run.parameters, run.tokens, run.unique_tokens, math.log(run.loss)) for run in runs]).T


def _starts(law: ScalingLaw, fitted: Sequence[str]) -> list[ScalingLaw]:
    found = [law]
    for r_d, r_n in _STARTS:
        start = {name: value for name, value in zip(REPETITION, (r_d, r_n), strict=True) if name in fitted}
        if replace(law, **start) not in found:
            found.append(replace(law, **start))
    return found


def _vector(law: ScalingLaw, fitted: Sequence[str]) -> F64:
    """What is fitted as an optimiser sees it: what must be above 0 as its logarithm."""
    raw = [getattr(law, name) for name in fitted]
    return np.array([v if name.startswith("log_") else math.log(v) for name, v in zip(fitted, raw, strict=True)])


def _limits(fitted: Sequence[str]) -> tuple[F64, F64]:
    pairs = [_BOUNDS[n] if n.startswith("log_") else tuple(map(math.log, _BOUNDS[n])) for n in fitted]
    low, high = np.array(pairs).T
    return low, high


def _law(values: F64, law: ScalingLaw, fitted: Sequence[str]) -> ScalingLaw:
    found = {name: float(v) if name.startswith("log_") else math.exp(v) for name, v in zip(fitted, values, strict=True)}
    if "alpha" in found and "beta" not in found:
        found["beta"] = found["alpha"] * law.beta / law.alpha
    return replace(law, **found)


def _errors(columns: F64, law: ScalingLaw, fitted: Sequence[str]) -> Callable[[F64], F64]:
    def of(values: F64) -> F64:
        found: F64 = log_losses(_law(values, law, fitted), columns[:3]) - columns[3]
        return found

    return of


def _huber(errors: F64, times: F64 | float = 1.0) -> float:
    from scipy.special import huber

    return float((times * huber(HUBER, errors)).sum())


def _descend(
    columns: F64, times: F64, start: ScalingLaw, fitted: Sequence[str], scales: Sequence[float]
) -> tuple[float, ScalingLaw]:
    """A minimum below `start`, runs counted `times` often, with one width of the Huber loss after the other."""
    from scipy.optimize import least_squares

    columns, times = columns[:, times > 0], times[times > 0]
    low, high = _limits(fitted)
    values = np.clip(_vector(start, fitted), low + 1e-6, high - 1e-6)
    errors, rows = _errors(columns, start, fitted), np.repeat(np.arange(columns.shape[1]), times.astype(int))
    for scale in scales:
        found = least_squares(
            lambda values: errors(values)[rows],
            values,
            bounds=(low, high),
            loss="huber",
            f_scale=scale,
            x_scale="jac",
            max_nfev=60,
        )
        values = np.clip(found.x, low + 1e-9, high - 1e-9)
    return _huber(errors(values), times), _law(values, start, fitted)


def _settle(columns: F64, law: ScalingLaw, fitted: Sequence[str]) -> ScalingLaw:
    """The same minimum to the last digits: the objective has kinks at which a model of it by squares stops early."""
    from scipy.optimize import minimize

    start, errors = _vector(law, fitted), _errors(columns, law, fitted)
    low, high = _limits(fitted)
    simplex = np.vstack([start, start + np.diag(np.full(len(start), 1e-3))])
    found = minimize(
        lambda values: _huber(errors(np.clip(values, low, high))),
        start,
        method="Nelder-Mead",
        options={"initial_simplex": simplex, "xatol": 1e-9, "fatol": 1e-16, "maxiter": 4000, "adaptive": True},
    )
    return _law(np.clip(found.x, low, high), law, fitted)
