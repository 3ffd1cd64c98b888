"""Tokens to a target of several runs, and what an interval of them is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dataeff.arrow import F64
from dataeff.efficiency.crossing import Crossing
from dataeff.errors import MeasurementError, PlanError

Method = Literal["t", "welch", "paired", "tobit", "pilot", "bound", "none"]
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Tokens to one target of runs that differ in their seeds only."""

    log_tokens: F64
    """Natural logarithm of the tokens at the target, or of the budget where it was not reached, shape (runs,)."""
    reached: npt.NDArray[np.bool_]
    """Shape (runs,)."""

    def __post_init__(self) -> None:
        if self.log_tokens.ndim != 1 or self.log_tokens.shape != self.reached.shape or not len(self.log_tokens):
            raise PlanError(
                f"a sample of {self.log_tokens.shape} token counts and {self.reached.shape} marks; there must be one "
                "of both for each run, and at least one run"
            )
        if not np.all(np.isfinite(self.log_tokens)):
            raise PlanError(
                "Sample.log_tokens holds a value that is not finite; a run that missed the target has the logarithm of "
                "its budget and is marked as not reached"
            )

    @classmethod
    def of(cls, crossings: Sequence[Crossing]) -> Sample:
        """What `dataeff.efficiency.crossing.crossings` read."""
        return cls(
            log_tokens=np.log([one.budget_tokens if one.tokens is None else one.tokens for one in crossings]),
            reached=np.array([one.reached for one in crossings], np.bool_),
        )

    @property
    def num_runs(self) -> int:
        """Runs, censored ones too."""
        return len(self.reached)

    @property
    def num_reached(self) -> int:
        """Runs that reached the target."""
        return int(np.count_nonzero(self.reached))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """The spread between seeds, known from earlier runs of the baseline."""

    sigma: float
    """Standard deviation of log tokens to target."""
    degrees_of_freedom: float
    num_runs: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise PlanError.out_of_range(self, "sigma", "a finite number above 0")
        if not self.degrees_of_freedom > 0:
            raise PlanError.out_of_range(self, "degrees_of_freedom", "above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A log mean, or a difference of two, with its interval."""

    log_value: float | None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    sigma: float | None = None
    degrees_of_freedom: float | None = None
    method: Method = "none"


def check_spread(arms: Sequence[F64]) -> None:
    """Refuse arms whose runs do not differ at all.

    Raises:
        MeasurementError: They do not.
    """
    if all(np.ptp(arm) == 0 for arm in arms if len(arm)):
        raise MeasurementError(
            "runs took the same tokens to the target, or pairs the same ratio, to the last digit; seeds scatter, so "
            "these are copies of one run: give each run its own seed"
        )
