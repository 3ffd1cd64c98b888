"""Synchronous successive halving: wait for all at a rung, then train the best of them on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dataeff.contest import Contest, Job, Result, Standing
from dataeff.errors import PlanError
from dataeff.rungs import Out, Progress, Rung, check_ladder, ladder

MIN_POOLED = 3
"""Candidates with two seeds or more from which a deviation between seeds is pooled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessiveHalving:
    """Train all to the first rung and the best 1/eta of them to the next, until few are left at the full budget.

    Successive halving (Jamieson and Talwalkar 2016, arXiv:1502.07943) over a fixed list: ceil(n / eta**j) of the n
    challengers go on to rung j, on top of the baseline. It is cheaper than the asynchronous form, and which results
    came first changes nothing.

    Losses that differ by less than the seeds do are not told apart: who is within z * sigma * sqrt(2 / seeds) of the
    last that goes on, goes on too. Sigma is that of the contest, or else pooled at the rung from three candidates or
    more with two seeds each (so `screening_seeds` must be 2 or more), or else nobody is added.
    """

    eta: int = 3
    """One in `eta` goes on; 2 or more."""
    min_share: float = 0.1
    """The first rung is at the lowest budget / eta**j that is at least this share of the budget; in (0, 1]."""
    screening_seeds: int = 1
    """Seeds of each candidate below the full budget; who comes to the end gets all."""
    z: float = 1.0
    """Standard deviations of a difference within which two losses count as equal; 0 or more."""
    max_extra_share: float = 0.25
    """Most candidates added for the noise, as a share of those that go on by rank; 0 or more."""

    def __post_init__(self) -> None:
        check_ladder(self, eta=self.eta, min_share=self.min_share, screening_seeds=self.screening_seeds)
        if not 0 <= self.z < math.inf:
            raise PlanError.out_of_range(self, "z", "a finite number, 0 or more")
        if not 0 <= self.max_extra_share < math.inf:
            raise PlanError.out_of_range(self, "max_extra_share", "a finite number, 0 or more")

    def next_jobs(self, contest: Contest, results: Sequence[Result], running: Sequence[Job]) -> list[Job]:
        """See `Screener`."""
        return self._climb(Progress.of(contest, results, running)).jobs

    def standing(self, contest: Contest, results: Sequence[Result]) -> list[Standing]:
        """See `Screener`."""
        progress = Progress.of(contest, results)
        return progress.standings(self._climb(progress).out)

    def _climb(self, progress: Progress) -> Climb:
        contest = progress.contest
        rungs = ladder(contest, eta=self.eta, min_share=self.min_share, screening_seeds=self.screening_seeds)
        challengers = contest.challengers
        quotas = [math.ceil(len(challengers) / self.eta**number) for number in range(1, len(rungs))]
        return climb(progress, challengers, rungs, quotas, carried=[contest.baseline], num_extra=self._num_extra)

    def _num_extra(self, progress: Progress, rung: Rung, ranked: Sequence[tuple[float, str]], quota: int) -> int:
        sigma = progress.contest.sigma
        if sigma is None:
            sigma = pooled_sigma(progress, rung)
        if sigma is None:
            return 0
        limit = ranked[quota - 1][0] + self.z * sigma * math.sqrt(2 / len(rung.seeds))
        return min(sum(loss <= limit for loss, _ in ranked[quota:]), int(self.max_extra_share * quota))


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """Where a synchronous climb stands."""

    jobs: list[Job]
    """That may start now."""
    out: Out
    """Who goes no further."""


def climb(
    progress: Progress,
    challengers: Sequence[str],
    rungs: Sequence[Rung],
    quotas: Sequence[int],
    *,
    carried: Sequence[str] = (),
    num_extra: Callable[[Progress, Rung, Sequence[tuple[float, str]], int], int] | None = None,
) -> Climb:
    """Take candidates from rung to rung, all at the same time.

    Args:
        progress: The results so far.
        challengers: Who competes, in the order that breaks ties.
        rungs: From the first to the last.
        quotas: How many challengers go on from each rung but the last.
        carried: Who goes on whatever the loss, beside the quota.
        num_extra: How many more go on, given the rung, its challengers from best to worst, and the quota.
    """
    going = list(challengers)
    out: dict[str, tuple[Literal["stopped", "failed"], str]] = {}
    for rung, quota in zip(rungs, [*quotas, len(challengers)], strict=True):
        field = [name for name in progress.contest.candidates if name in carried or name in going]
        if not all(progress.done(name, rung) for name in field):
            return Climb(jobs=progress.startable(field, rung), out=out)
        out |= progress.fallen(going, rung)
        ranked = progress.ranked(going, rung)
        num_kept = min(quota, len(ranked))
        if num_extra and num_kept < len(ranked):
            num_kept += num_extra(progress, rung, ranked, quota)
        for rank, (loss, name) in enumerate(ranked[num_kept:], num_kept + 1):
            out[name] = ("stopped", f"rank {rank} of {len(ranked)} at {rung}, loss {loss:.4f}: {num_kept} go on")
        going = [name for name in going if name not in out]
    return Climb(jobs=[], out=out | progress.fallen(carried, rungs[-1]))


def pooled_sigma(progress: Progress, rung: Rung) -> float | None:
    """Standard deviation between seeds at a rung, pooled over the candidates that have two seeds or more there.

    None where fewer than three candidates do.
    """
    groups = [progress.seed_losses(name, rung) for name in progress.contest.candidates]
    groups = [losses for losses in groups if len(losses) >= 2]
    if len(groups) < MIN_POOLED:
        return None
    means = [math.fsum(losses) / len(losses) for losses in groups]
    squares = [(loss - mean) ** 2 for losses, mean in zip(groups, means, strict=True) for loss in losses]
    return math.sqrt(math.fsum(squares) / sum(len(losses) - 1 for losses in groups))
