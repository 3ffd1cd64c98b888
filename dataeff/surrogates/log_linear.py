"""The log-linear mixing law: few parameters, convex in the mixture, and sensible beyond the mixtures that were tried.

On RegMix's runs it ranks unseen mixtures worse than a Gaussian process, at the proxies' size and, as a mean of 13
domains, at 1B parameters; but on Pile-CC, the domain that RegMix minimises, it ranks the 1B models best of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from dataeff.arrow import F64
from dataeff.errors import PlanError
from dataeff.proxy_runs import check_mixtures, check_runs

_FLOORS = (0.3, 0.8)
"""Share of the lowest loss that is taken for irreducible where a descent starts."""
_RIDGE = 1e-3
_MAX_STEPS = 300
_MAX_EXPONENT = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLinear:
    """L(w) = c + exp(t . w): an irreducible loss, and a factor for every share.

    Data Mixing Laws (Ye et al. 2024, arXiv:2403.16952) write c + k exp(t . w); shares sum to 1, so k is a constant
    added to every t. Fitted with a Huber loss, as there (threshold 0.01) and in Olmix (0.02).
    """

    huber_nats: float = 0.3
    """Residuals above count by their size, not by their square; above 0. Runs scatter about the law by some tenths of
    a nat, since it is an approximation; a threshold far below minimises absolute residuals, which ranks RegMix's
    mixtures worse (92.5 against 94.0 by 64 runs)."""

    def __post_init__(self) -> None:
        if not self.huber_nats > 0:
            raise PlanError.out_of_range(self, "huber_nats", "above 0")

    def fit(self, weights: F64, losses: F64, seed: int) -> Law:
        """Descend from fixed starts; nothing is drawn, so the seed changes nothing.

        Args:
            weights: Shape (runs, sources).
            losses: Shape (runs,).
            seed: Not used.

        Raises:
            PlanError: Shapes do not fit, or a row is no mixture.
            MeasurementError: There are fewer runs than sources plus 2.
        """
        check_runs(self, weights, losses, weights.shape[1] + 2)
        descents = [self._descent(weights, losses, start) for start in _starts(weights, losses)]
        return _law(weights, losses, min(descents, key=lambda descent: descent[0])[1])

    def _descent(self, weights: F64, losses: F64, start: F64) -> tuple[float, F64]:
        """The lowest misfit downhill of `start`, and where it is."""
        slopes = _slopes(weights, np.exp(weights @ start[1:]))
        normal = slopes.T @ slopes / len(losses)
        normal[np.diag_indices(len(start))] += 1e-4 * np.trace(normal) / len(start)
        # In these coordinates the valley is round: rare sources would take L-BFGS thousands of steps otherwise.
        turn = np.linalg.inv(np.linalg.cholesky(normal)).T * self.huber_nats

        def turned(place: F64) -> tuple[float, F64]:
            value, slope = misfit(start + turn @ place, weights, losses, self.huber_nats)
            return value, turn.T @ slope

        found = minimize(turned, np.zeros(len(start)), jac=True, method="L-BFGS-B", options={"maxiter": _MAX_STEPS})
        return float(found.fun), start + turn @ found.x


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A fitted law."""

    floor: float
    """The irreducible loss c."""
    exponents: F64
    """Of each source, t, shape (sources,). The lower, the more the source helps."""
    residual: float
    """Standard deviation of the runs about the law."""
    spread: F64
    """Covariance of (c, t) over the squared residual, shape (1 + sources, 1 + sources)."""

    def predict(self, weights: F64) -> tuple[F64, F64]:
        """Loss of a run at each mixture and its standard deviation, noise included, both of shape (m,).

        Raises:
            PlanError: A row is no mixture of the sources of the runs.
        """
        check_mixtures(weights, len(self.exponents))
        above = np.exp(np.minimum(weights @ self.exponents, _MAX_EXPONENT))
        slopes = _slopes(weights, above)
        return self.floor + above, self.residual * np.sqrt(1 + np.einsum("ij,jk,ik->i", slopes, self.spread, slopes))


def misfit(parameters: F64, weights: F64, losses: F64, huber_nats: float) -> tuple[float, F64]:
    """Mean Huber loss over its squared threshold, and the gradient of it.

    Args:
        parameters: (c, t), shape (1 + sources,).
        weights: Shape (runs, sources).
        losses: Shape (runs,).
        huber_nats: The threshold.
    """
    above = np.exp(np.minimum(weights @ parameters[1:], _MAX_EXPONENT))
    off = (parameters[0] + above - losses) / huber_nats
    size = np.abs(off)
    value = np.where(size <= 1, 0.5 * off**2, size - 0.5).mean()
    pull = np.clip(off, -1, 1) / (huber_nats * len(losses))
    return float(value), np.append(pull.sum(), weights.T @ (pull * above))


def _starts(weights: F64, losses: F64) -> list[F64]:
    """Ridge regressions of the logarithm of what is above a supposed floor, drawn towards equal exponents."""
    lowest, width = float(losses.min()), float(np.ptp(losses))
    normal = weights.T @ weights + _RIDGE * len(losses) * np.eye(weights.shape[1])
    factor = cho_factor(normal)
    found = []
    for share in _FLOORS:
        floor = share * lowest if lowest > 0 else lowest - (1 - share) * width
        logs = np.log(np.maximum(losses - floor, 1e-3 * width + 1e-9))
        exponents = logs.mean() + cho_solve(factor, weights.T @ (logs - logs.mean()))
        found.append(np.append(floor, exponents))
    return found


def _law(weights: F64, losses: F64, parameters: F64) -> Law:
    above = np.exp(np.minimum(weights @ parameters[1:], _MAX_EXPONENT))
    off = parameters[0] + above - losses
    slopes = _slopes(weights, above)
    free = max(len(losses) - len(parameters), 1)
    normal = slopes.T @ slopes
    return Law(
        floor=float(parameters[0]),
        exponents=parameters[1:],
        residual=float(np.sqrt(off @ off / free)),
        spread=np.linalg.inv(normal + 1e-9 * (np.trace(normal) + 1) * np.eye(len(parameters))),
    )


def _slopes(weights: F64, above: F64) -> F64:
    """Of the law by its parameters, shape (m, 1 + sources)."""
    return np.column_stack([np.ones(len(weights)), weights * above[:, None]])
