"""No screening: the yardstick that the others are measured against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataeff.contest import Contest, Job, Result, Standing
from dataeff.rungs import Progress, Rung


@dataclass(frozen=True, slots=True, kw_only=True)
class FullGrid:
    """Train every candidate with every seed to the full budget, a seed of each before the next seed."""

    def next_jobs(self, contest: Contest, results: Sequence[Result], running: Sequence[Job]) -> list[Job]:
        """See `Screener`."""
        progress = Progress.of(contest, results, running)
        seeds = [Rung(size=contest.sizes[-1], tokens=contest.budget_tokens, seeds=(seed,)) for seed in contest.seeds]
        return [job for rung in seeds for job in progress.startable(contest.candidates, rung)]

    def standing(self, contest: Contest, results: Sequence[Result]) -> list[Standing]:
        """See `Screener`."""
        progress = Progress.of(contest, results)
        end = Rung(size=contest.sizes[-1], tokens=contest.budget_tokens, seeds=contest.seeds)
        return progress.standings(progress.fallen(contest.candidates, end))
