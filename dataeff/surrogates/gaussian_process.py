"""A smooth surface through the proxy runs, for mixtures among those that were tried.

On RegMix's proxies it ranks unseen mixtures nearly as well with 128 runs as boosted trees do with 512. It falls back to
the mean of all runs far from any of them, so it is no law to extrapolate by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.linalg import cho_solve, lapack, solve_triangular
from scipy.optimize import minimize

from dataeff.arrow import F64
from dataeff.errors import PlanError
from dataeff.proxy_runs import check_mixtures, check_runs

LEAST_RUNS = 4
_STARTS = ((0.5, 1e-2), (2.0, 1e-4))
"""Length scale of all sources, and noise variance over signal variance, from which the likelihood is climbed."""
_FEW_RUNS = 128
"""Runs, spread evenly over all, on which the starts are climbed; only the best is climbed on with all."""
_LENGTHS = (0.02, 100.0)
_NOISE = (1e-8, 10.0)
_PRIOR_LENGTH = 1.0
"""Mean and standard deviation of the logarithm of a length scale before any run is seen: 2.7, within a factor of 2.7,
where transformed shares lie in [0, 1]. With few runs the likelihood alone calls too many sources irrelevant."""
_OFFSET = 1e-3
_BLOCK_ROWS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianProcess:
    """A Gaussian process on transformed shares: Matérn 5/2, one length scale a source, constant mean, white noise.

    Length scales and noise maximise the likelihood (Rasmussen and Williams 2006, section 5.4) times a weak log-normal
    prior on length scales; mean and signal variance are profiled out of it. The surface is that of the logarithm of
    the loss, so nats and bits give the same one.
    """

    transform: Literal["cube_root", "sqrt", "log"] = "cube_root"
    """Of shares: a root, or the logarithm of the share plus 0.001. All of them spread out small shares."""
    log_losses: bool = True
    """Whether the surface is that of the logarithm of the loss; losses must be above 0 then."""

    def __post_init__(self) -> None:
        if self.transform not in ("cube_root", "sqrt", "log"):
            raise PlanError.out_of_range(self, "transform", "'cube_root', 'sqrt' or 'log'")

    def fit(self, weights: F64, losses: F64, seed: int) -> Process:
        """Climb from fixed starts; nothing is drawn, so the seed changes nothing.

        Args:
            weights: Shape (runs, sources).
            losses: Shape (runs,).
            seed: Not used.

        Raises:
            PlanError: Shapes do not fit, a row is no mixture, or a loss has no logarithm.
            MeasurementError: There are fewer than 4 runs.
        """
        check_runs(self, weights, losses, LEAST_RUNS)
        if self.log_losses and losses.min() <= 0:
            raise PlanError(
                f"a loss of {losses.min():g} has no logarithm: set GaussianProcess.log_losses to False for such losses"
            )
        features = _features(weights, self.transform)
        heights = np.log(losses) if self.log_losses else losses
        if np.ptp(heights) <= 1e-12 * max(1.0, float(np.abs(heights).max())):
            theta = np.append(np.full(weights.shape[1], _PRIOR_LENGTH), np.log(_NOISE[0]))
        else:
            theta = _climbed(features, heights)
        return _process(self, features, heights, theta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process given its runs."""

    options: GaussianProcess
    lengths: F64
    """Length scale of each source's transformed share, shape (sources,)."""
    noise: float
    """Noise variance over signal variance."""
    signal: float
    """Variance of the surface about its mean."""
    mean: float
    """Of the surface; as `signal`, of the logarithm of the loss where the options say so."""
    scaled: F64
    """Transformed shares of the runs over the length scales, shape (runs, sources)."""
    pull: F64
    """Inverse correlation times the runs' heights less the mean, shape (runs,)."""
    factor: F64
    """Lower Cholesky factor of the runs' correlation, shape (runs, runs)."""

    def predict(self, weights: F64) -> tuple[F64, F64]:
        """Loss of a run at each mixture and its standard deviation, noise included, both of shape (m,).

        Of a logarithm's normal distribution they are the median, and the median times the deviation.

        Raises:
            PlanError: A row is no mixture of the sources of the runs.
        """
        check_mixtures(weights, self.scaled.shape[1])
        features = _features(weights, self.options.transform) / self.lengths
        starts = range(0, max(len(features), 1), _BLOCK_ROWS)
        blocks = [self._block(features[start : start + _BLOCK_ROWS]) for start in starts]
        height, std = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        if not self.options.log_losses:
            return height, std
        return np.exp(height), np.exp(height) * std

    def _block(self, scaled: F64) -> tuple[F64, F64]:
        correlation, _, _ = _correlation(scaled, self.scaled)
        explained = solve_triangular(self.factor, correlation.T, lower=True, check_finite=False)
        share = 1 + self.noise - np.einsum("ij,ij->j", explained, explained)
        return self.mean + correlation @ self.pull, np.sqrt(self.signal * np.maximum(share, 0))


def _climbed(features: F64, heights: F64) -> F64:
    """Logarithms of length scales and of noise over signal at the highest posterior found."""
    sources = features.shape[1]
    few = np.linspace(0, len(heights) - 1, min(len(heights), _FEW_RUNS)).round().astype(np.int64)
    limits = [tuple(np.log(_LENGTHS))] * sources + [tuple(np.log(_NOISE))]

    def climb(start: F64, rows: Any) -> Any:
        return minimize(
            misfit,
            start,
            args=(features[rows], heights[rows]),
            jac=True,
            method="L-BFGS-B",
            bounds=limits,
            options={"maxiter": 200},
        )

    starts = [np.log(np.append(np.full(sources, length), noise)) for length, noise in _STARTS]
    best = min((climb(start, few) for start in starts), key=lambda found: found.fun)
    return np.asarray((climb(best.x, slice(None)) if len(few) < len(heights) else best).x, np.float64)


def misfit(theta: F64, features: F64, heights: F64) -> tuple[float, F64]:
    """Negative log posterior a run, less its constant, and the gradient of it.

    Args:
        theta: Logarithms of length scales and of noise over signal, shape (sources + 1,).
        features: Transformed shares, shape (runs, sources).
        heights: Losses or their logarithms, shape (runs,).
    """
    runs = len(heights)
    scaled = features / np.exp(theta[:-1])
    correlation, distance, decay = _correlation(scaled, scaled)
    correlation[np.diag_indices(runs)] = 1 + np.exp(theta[-1])
    factor, failed = lapack.dpotrf(correlation, lower=1, clean=1)
    if failed:
        return 1e3, np.zeros_like(theta)
    inverse, _ = lapack.dpotri(factor, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    mean = inverse.sum(0) @ heights / inverse.sum()
    pull = inverse @ (heights - mean)
    signal = (heights - mean) @ pull / runs
    surprise = (theta[:-1] - _PRIOR_LENGTH) / runs
    value = 0.5 * np.log(signal) + np.log(np.diag(factor)).sum() / runs + 0.5 * runs * surprise @ surprise
    # Half the trace of this times a derivative of the correlation is the derivative of the misfit.
    slope = (inverse - np.outer(pull, pull) / signal) / runs
    # Of the correlation by the logarithm of a length: this, times that source's squared scaled difference.
    weight = slope * decay * (1 + distance) * (5 / 3)
    by_length = scaled.T**2 @ weight.sum(1) - np.einsum("ij,ij->j", scaled, weight @ scaled)
    return float(value), np.append(by_length + surprise, 0.5 * np.trace(slope) * np.exp(theta[-1]))


def _process(options: GaussianProcess, features: F64, heights: F64, theta: F64) -> Process:
    lengths, noise = np.exp(theta[:-1]), float(np.exp(theta[-1]))
    scaled = features / lengths
    correlation, _, _ = _correlation(scaled, scaled)
    correlation[np.diag_indices(len(heights))] = 1 + noise
    factor = np.asarray(np.linalg.cholesky(correlation), np.float64)
    ones = cho_solve((factor, True), np.ones(len(heights)))
    mean = float(ones @ heights / ones.sum())
    pull = cho_solve((factor, True), heights - mean)
    return Process(
        options=options,
        lengths=lengths,
        noise=noise,
        signal=float((heights - mean) @ pull) / len(heights),
        mean=mean,
        scaled=scaled,
        pull=pull,
        factor=factor,
    )


def _correlation(left: F64, right: F64) -> tuple[F64, F64, F64]:
    """Matérn 5/2 correlation, root-5 distance and its exponential decay, each of shape (left, right)."""
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    distance = np.sqrt(5 * np.maximum(squares, 0))
    decay = np.exp(-distance)
    return (1 + distance + distance**2 / 3) * decay, distance, decay


def _features(weights: F64, transform: str) -> F64:
    if transform == "log":
        return np.log(weights + _OFFSET)
    return np.cbrt(weights) if transform == "cube_root" else np.sqrt(weights)
