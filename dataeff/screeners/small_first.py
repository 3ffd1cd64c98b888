"""Screening by size: small models choose whom large ones are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataeff.contest import Contest, Job, Result, Standing
from dataeff.errors import PlanError
from dataeff.rungs import Progress, Rung
from dataeff.screeners.successive_halving import Climb, climb


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFirst:
    """Train all at the smallest size to the full budget, and the best of them, and the baseline, at the full size.

    On the curves of Data Mixing Laws (Ye et al. 2024, arXiv:2403.16952) the best two of a 70M model hold the best of
    a 410M one on both families, at 14 and 16 % of the grid; the best one alone does on one of the two. It relies on
    small models ranking mixtures as large ones do: measure that on a few candidates first.
    """

    keep: int = 2
    """Challengers trained at the full size; 1 or more."""
    eta: int = 3
    """With sizes between the smallest and the full one, each keeps `eta` times what the next does; 2 or more."""
    screening_seeds: int = 1
    """Seeds of each candidate below the full size, at which all are trained."""

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise PlanError.out_of_range(self, "keep", "1 or more")
        if self.eta < 2:
            raise PlanError.out_of_range(self, "eta", "2 or more")
        if self.screening_seeds < 1:
            raise PlanError.out_of_range(self, "screening_seeds", "1 or more")

    def next_jobs(self, contest: Contest, results: Sequence[Result], running: Sequence[Job]) -> list[Job]:
        """See `Screener`.

        Raises:
            PlanError: The contest has one size.
        """
        return self._climb(Progress.of(contest, results, running)).jobs

    def standing(self, contest: Contest, results: Sequence[Result]) -> list[Standing]:
        """See `Screener`."""
        progress = Progress.of(contest, results)
        return progress.standings(self._climb(progress).out)

    def _climb(self, progress: Progress) -> Climb:
        contest = progress.contest
        *small, full = contest.sizes
        if not small:
            raise PlanError(f"small_first needs a size below {full!r}: name it in the contest, or halve by tokens")
        few = contest.seeds[: self.screening_seeds]
        rungs = [Rung(size=size, tokens=contest.budget_tokens, seeds=few) for size in small]
        rungs.append(Rung(size=full, tokens=contest.budget_tokens, seeds=contest.seeds))
        quotas = [self.keep * self.eta**above for above in reversed(range(len(small)))]
        return climb(progress, contest.challengers, rungs, quotas, carried=[contest.baseline])
