"""A contest of candidates: what is to be decided, what is trained for it, and how far each has come."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dataeff.errors import PlanError

Trial = tuple[str, int, str]
"""Candidate, seed and size: what is trained, paused with a checkpoint, and resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Train this trial on, from its last checkpoint or from nothing, until it has seen `tokens`."""

    candidate: str
    seed: int
    size: str
    tokens: int

    @property
    def trial(self) -> Trial:
        """What is trained, whatever the tokens."""
        return self.candidate, self.seed, self.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came out of a job."""

    job: Job
    loss: float | None
    """Validation loss in nats, lower is better. None or not finite: the trial diverged, and is not resumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """What is to be decided: which of a fixed list of candidates has the lowest loss at the full budget."""

    candidates: tuple[str, ...]
    """All of them, the baseline too. Where losses are equal, the earlier one is preferred."""
    baseline: str
    """Carried to the full budget whatever its loss, and no candidate loses its place to it."""
    seeds: tuple[int, ...]
    budget_tokens: int
    """Full training of one trial."""
    sizes: tuple[str, ...] = ("full",)
    """Model sizes, from the smallest to the one that decides."""
    size_costs: Mapping[str, float] = field(default_factory=lambda: {"full": 1.0})
    """Relative cost of a token by size, such as FLOPs a token."""
    sigma: float | None = None
    """Known standard deviation of a loss between seeds, in nats."""

    def __post_init__(self) -> None:
        if len(self.candidates) < 2 or len(set(self.candidates)) < len(self.candidates):
            raise PlanError.out_of_range(self, "candidates", "the baseline and at least one other, no name twice")
        if self.baseline not in self.candidates:
            raise PlanError.out_of_range(self, "baseline", f"one of {', '.join(self.candidates)}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise PlanError.out_of_range(self, "seeds", "at least one seed, none twice")
        if self.budget_tokens < 1:
            raise PlanError.out_of_range(self, "budget_tokens", "1 or more")
        if not self.sizes or len(set(self.sizes)) < len(self.sizes):
            raise PlanError.out_of_range(self, "sizes", "at least one size, none twice")
        if set(self.size_costs) != set(self.sizes) or not all(0 < c < math.inf for c in self.size_costs.values()):
            raise PlanError.out_of_range(self, "size_costs", f"a finite cost above 0 for each of {self.sizes}")
        if self.sigma is not None and not 0 <= self.sigma < math.inf:
            raise PlanError.out_of_range(self, "sigma", "None or a finite number, 0 or more")

    @property
    def challengers(self) -> list[str]:
        """The candidates without the baseline, in order."""
        return [name for name in self.candidates if name != self.baseline]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far one candidate has come."""

    candidate: str
    state: Literal["baseline", "kept", "stopped", "failed"]
    why: str
    size: str | None
    """Of the furthest rung with a loss; None where there is none yet."""
    tokens: int
    """The furthest rung with a loss; 0 where there is none yet."""
    loss: float | None
    """Mean over the seeds that have a loss there, in nats."""
    num_seeds: int
    """Seeds in that mean."""
    num_failed: int
    """Trials of the candidate that diverged, at whatever rung and size; the mean is without them."""
