"""Loss against tokens: a checked curve, the power law through it, and the monotone curve where no law fits.

A power law uses every point after warm-up and so averages evaluation noise out, but is wrong where the curve bends
otherwise, as in a learning-rate decay. So its residuals are looked at: when neighbours err alike the law is not
trusted, and the nearest non-increasing curve is read instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression
from scipy.special import fdtri

from dataeff.arrow import F64
from dataeff.errors import MeasurementError, PlanError

MIN_POINTS = 2
MIN_FIT_POINTS = 8
"""Points after warm-up that a power law needs: with fewer its residuals cannot show that it is wrong."""
WARMUP_SHARE = 0.1
"""Of a curve's tokens; points before are left out of a fit unless the caller says where warm-up ends."""
STRUCTURE = 1.645
"""Score of the residuals above which a law is not trusted: 5 % of a normal variable lie above."""
_EXPONENTS = np.geomspace(0.01, 10.0, 49)
_ZOOM = np.linspace(0.0, 1.0, 17)
"""Places of further exponents between the neighbours of the best so far."""
_FINE = 1e-7
"""Relative distance of exponents at which the search ends; squares then hardly tell them apart."""
_IDENTIFIED = 0.95


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curve:
    """The validation losses of one run, in the order of its tokens; make one with `Curve.of`."""

    tokens: F64
    """Seen when the loss was measured, above 0 and increasing, shape (points,)."""
    losses: F64
    """Finite; nats a token, or bits a byte where tokenizers differ, shape (points,)."""
    budget_tokens: float
    """Last measured point, finite or not: what the run has spent."""
    diverged: bool = False
    """Whether the loss was infinite or no number at a later point; the curve ends before the first such."""

    def __post_init__(self) -> None:
        if self.tokens.shape != self.losses.shape or self.tokens.ndim != 1:
            raise PlanError(
                f"a curve of {self.tokens.shape} token counts and {self.losses.shape} losses; both must be of one "
                "dimension and equally long"
            )
        if len(self.tokens) < MIN_POINTS and not self.diverged:
            raise MeasurementError(
                f"a curve of {len(self.tokens)} points; it must have {MIN_POINTS} or more: evaluate more often"
            )
        _check_order(self.tokens)
        if not np.all(np.isfinite(self.losses)):
            raise PlanError(
                "Curve.losses holds a loss that is not finite; make the curve with `Curve.of`, which ends it"
            )
        if np.any(self.losses < 0):
            place = int(np.argmax(self.losses < 0))
            raise PlanError(
                f"the loss at point {place} is {self.losses[place]:g}; a cross entropy is 0 or more: look whether "
                "another column was read"
            )

    @classmethod
    def of(cls, tokens: npt.ArrayLike, losses: npt.ArrayLike) -> Curve:
        """A curve from what a run wrote; it ends before the first loss that is infinite or no number.

        Raises:
            PlanError: The two differ in length, tokens do not increase from above 0, or a loss is negative.
            MeasurementError: There are fewer than `MIN_POINTS` points.
        """
        x, y = np.array(tokens, np.float64, ndmin=1), np.array(losses, np.float64, ndmin=1)
        if x.shape != y.shape or x.ndim != 1 or not len(x):
            raise PlanError(
                f"{x.size} token counts and {y.size} losses make no curve; there must be a loss for each count"
            )
        _check_order(x)
        finite = np.isfinite(y)
        points = len(y) if finite.all() else int(np.argmin(finite))
        x.flags.writeable = y.flags.writeable = False
        return cls(tokens=x[:points], losses=y[:points], budget_tokens=float(x[-1]), diverged=points < len(y))


def _check_order(tokens: F64) -> None:
    if not np.all(np.isfinite(tokens)) or np.any(tokens <= 0):
        place = int(np.argmax(~(np.isfinite(tokens) & (tokens > 0))))
        raise PlanError(
            f"the token count at point {place} is {tokens[place]:g}; it must be a finite number above 0: leave out "
            "what was measured before training"
        )
    steps = np.diff(tokens)
    if np.any(steps <= 0):
        place = int(np.argmax(steps <= 0)) + 1
        raise PlanError(
            f"the token count at point {place} is {tokens[place]:g} after {tokens[place - 1]:g}; counts must "
            "increase: sort the points, and keep one of each count"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """L(t) = E + exp(a - b log t), t in tokens, fitted by least squares to the points of a curve after warm-up."""

    irreducible_loss: float
    """E; 0 where `identified` is false."""
    log_scale: float
    """a."""
    exponent: float
    """b, above 0."""
    identified: bool
    """Whether the points tell E from 0 (an F test at 5 %); where not, two parameters are fitted and E is 0."""
    scatter: float
    """Standard deviation of the residuals, in units of the loss (of a weight of 1, where weights are given)."""
    autocorrelation: float
    """Of residuals of neighbours, in [-1, 1]. Near 0: the law describes the curve."""
    num_points: int
    from_tokens: float
    """First point of the fit."""

    @property
    def structure(self) -> float:
        """How far neighbouring points err alike, in standard deviations of what independent errors give.

        The lag-1 autocorrelation of the residuals of n points around p parameters has a mean of about -p / n and a
        variance of about (n - p - 1) / n squared.
        """
        parameters = 3 if self.identified else 2
        return (self.num_points * self.autocorrelation + parameters) / math.sqrt(self.num_points - parameters - 1)

    @property
    def structured(self) -> bool:
        """Whether neighbouring points err alike, so that the curve is of another shape than the law."""
        return self.structure > STRUCTURE

    def loss(self, tokens: npt.ArrayLike) -> F64:
        """Losses by the law, shape of `tokens`."""
        x = np.asarray(tokens, np.float64)
        return self.irreducible_loss + np.exp(self.log_scale - self.exponent * np.log(x))

    def tokens(self, target: float) -> float:
        """Tokens at which the law falls to a loss; infinite where it never does."""
        above = target - self.irreducible_loss
        if above <= 0:
            return math.inf
        log_tokens = (self.log_scale - math.log(above)) / self.exponent
        return math.exp(log_tokens) if log_tokens < 700 else math.inf


def fit(curve: Curve, *, warmup_tokens: float | None = None, weights: F64 | None = None) -> PowerLaw | None:
    """The power law through a curve, or None where too few points are left or the losses do not fall.

    For each exponent the other two parameters are a linear least-squares problem, solved in closed form under E >= 0;
    so only the exponent is searched, over a grid and then between its neighbours, and no starting values are guessed.

    Args:
        curve: Losses of a run.
        warmup_tokens: Points before are left out; `WARMUP_SHARE` of the last point if not given.
        weights: One over the variance of each loss of the curve, up to a factor, shape (points,); equal if not given.

    Raises:
        PlanError: The weights do not fit the curve, or are not above 0.
    """
    weight = _weights(curve, weights)
    # A hair less, so that rounding does not decide over a point at the very share.
    start = (1 - 1e-9) * WARMUP_SHARE * curve.budget_tokens if warmup_tokens is None else warmup_tokens
    chosen = curve.tokens >= start
    if np.count_nonzero(chosen) < MIN_FIT_POINTS:
        return None
    x, y, weight = curve.tokens[chosen], curve.losses[chosen], weight[chosen]
    log_x = np.log(x / x[-1])
    free, fixed = (_search(log_x, y, weight, free=free) for free in (True, False))
    if free is None or fixed is None:
        return None
    spare = len(x) - 3
    beyond = (fixed.squares - free.squares) * spare
    identified = free.offset > 0 and beyond > fdtri(1, spare, _IDENTIFIED) * free.squares
    best = free if identified else fixed
    residuals = np.sqrt(weight) * (y - best.offset - best.scale * np.exp(-best.exponent * log_x))
    squares = float(residuals @ residuals)
    return PowerLaw(
        irreducible_loss=best.offset,
        log_scale=math.log(best.scale) + best.exponent * math.log(x[-1]),
        exponent=best.exponent,
        identified=bool(identified),
        scatter=math.sqrt(squares / (len(x) - (3 if identified else 2))),
        autocorrelation=float(residuals[1:] @ residuals[:-1]) / squares if squares > 0 else 0.0,
        num_points=len(x),
        from_tokens=float(x[0]),
    )


def _weights(curve: Curve, weights: F64 | None) -> F64:
    if weights is None:
        return np.ones(len(curve.tokens))
    if weights.shape != curve.tokens.shape or not np.all(np.isfinite(weights) & (weights > 0)):
        raise PlanError(
            f"weights of shape {weights.shape} for a curve of {len(curve.tokens)} points; there must be one for each, "
            "finite and above 0"
        )
    return weights


@dataclass(frozen=True, slots=True, kw_only=True)
class _Linear:
    """The law `offset + scale * exp(-exponent * log_x)`."""

    offset: float
    scale: float
    exponent: float
    squares: float


def _search(log_x: F64, y: F64, weight: F64, *, free: bool) -> _Linear | None:
    """The best exponent, with an offset of 0 or more, or of 0 unless it is free; None where no falling law is best."""
    exponents = _EXPONENTS
    while True:
        offsets, scales, squares = _linear(log_x, y, weight, exponents, free=free)
        place = int(np.argmin(squares))
        low, high = exponents[max(place - 1, 0)], exponents[min(place + 1, len(exponents) - 1)]
        if high <= low * (1 + _FINE):
            break
        exponents = low * (high / low) ** _ZOOM
    if scales[place] <= 0:
        return None
    return _Linear(
        offset=float(offsets[place]),
        scale=float(scales[place]),
        exponent=float(exponents[place]),
        squares=float(squares[place]),
    )


def _linear(log_x: F64, y: F64, weight: F64, exponents: F64, *, free: bool) -> tuple[F64, F64, F64]:
    """Offsets, scales and weighted squares that are least for each exponent, each of shape (exponents,)."""
    z = np.exp(-exponents[:, None] * log_x)
    share = weight / weight.sum()
    scales = z @ (share * y) / (z**2 @ share)
    offsets = np.zeros(len(exponents))
    if free:
        mean_z, mean_y = z @ share, float(share @ y)
        centred = z - mean_z[:, None]
        slopes = centred @ (share * (y - mean_y)) / (centred**2 @ share)
        floors = mean_y - slopes * mean_z
        above = floors >= 0
        offsets, scales = np.where(above, floors, 0.0), np.where(above, slopes, scales)
    residuals = y - offsets[:, None] - scales[:, None] * z
    return offsets, scales, residuals**2 @ weight


def monotone(curve: Curve, *, weights: F64 | None = None) -> F64:
    """The non-increasing losses nearest to a curve's by least squares (pool adjacent violators), shape (points,).

    Raises:
        PlanError: The weights do not fit the curve, or are not above 0.
    """
    if not len(curve.losses):
        return np.empty(0)
    found: F64 = isotonic_regression(curve.losses, weights=_weights(curve, weights), increasing=False).x
    return found
