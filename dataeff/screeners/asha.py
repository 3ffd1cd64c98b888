"""Asynchronous halving: no worker waits for a rung to fill."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dataeff.contest import Contest, Job, Result, Standing
from dataeff.rungs import Out, Progress, Rung, check_ladder, ladder


@dataclass(frozen=True, slots=True, kw_only=True)
class Asha:
    """Resume whoever is in the best 1/eta of a rung so far; where nobody is, start the next candidate.

    ASHA (Li et al. 2020, arXiv:1810.05934, algorithm 2): from the top rung down, of those recorded at a rung the best
    floor(recorded / eta) that were not resumed yet may be. A candidate pauses at a rung, so that one which looked
    bad among the first few is resumed once more are known. For a fixed list one rule is added: when all that can
    come to rung j have come, as many go on as in `successive_halving`, ceil(n / eta**(j + 1)) of n challengers, so
    that a short list has a winner too. The baseline is resumed at once and is not ranked.

    It costs a little more than `successive_halving`, which also ends no later with up to 8 workers on 26 candidates
    whose speed differs by half (simulated). It is for many workers, and for lists that a slow candidate would hold up.
    """

    eta: int = 3
    """One in `eta` goes on; 2 or more."""
    min_share: float = 0.1
    """The first rung is at the lowest budget / eta**j that is at least this share of the budget; in (0, 1]."""
    screening_seeds: int = 1
    """Seeds of each candidate below the full budget; who comes to the end gets all."""
    stopping: bool = False
    """Decide once, when a candidate comes to a rung, and stop it for good. For comparison with other tools, whose
    trials cannot pause: decisions are those of `optuna.pruners.SuccessiveHalvingPruner` (Optuna 5) with
    `min_early_stopping_rate=0`. It loses the best candidate more often, since the first are judged on little."""

    def __post_init__(self) -> None:
        check_ladder(self, eta=self.eta, min_share=self.min_share, screening_seeds=self.screening_seeds)

    def next_jobs(self, contest: Contest, results: Sequence[Result], running: Sequence[Job]) -> list[Job]:
        """See `Screener`."""
        return self._rise(Progress.of(contest, results, running))[0]

    def standing(self, contest: Contest, results: Sequence[Result]) -> list[Standing]:
        """See `Screener`."""
        progress = Progress.of(contest, results)
        return progress.standings(self._rise(progress)[1])

    def _rise(self, progress: Progress) -> tuple[list[Job], Out]:
        """Jobs that may start, from the top rung down, and who goes no further."""
        contest = progress.contest
        rungs = ladder(contest, eta=self.eta, min_share=self.min_share, screening_seeds=self.screening_seeds)
        jobs: list[Job] = []
        out: dict[str, tuple[Literal["stopped", "failed"], str]] = {}
        entered: Sequence[str] = contest.candidates
        closed = True
        for number, (rung, above) in enumerate(itertools.pairwise(rungs), 1):
            jobs = progress.startable(entered, rung) + jobs
            recorded = [name for name in entered if progress.done(name, rung)]
            closed = closed and len(recorded) == len(entered)
            rivals = [name for name in recorded if name != contest.baseline]
            ranked = progress.ranked(rivals, rung)
            if self.stopping:
                promoted = _survivors(progress, ranked, rung, self.eta)
            else:
                quota = math.ceil(len(contest.challengers) / self.eta**number) if closed else 0
                promoted = {name for _, name in ranked[: max(quota, len(rivals) // self.eta)]}
            promoted |= {name for name in recorded if name == contest.baseline or progress.begun(name, above)}
            out |= progress.fallen(rivals, rung)
            if closed or self.stopping:
                for rank, (loss, name) in enumerate(ranked, 1):
                    if name not in promoted:
                        out[name] = ("stopped", f"rank {rank} of {len(ranked)} at {rung}, loss {loss:.4f}")
            entered = [name for name in recorded if name in promoted]
        jobs = progress.startable(entered, rungs[-1]) + jobs
        return jobs, out | progress.fallen(entered, rungs[-1])


def _survivors(progress: Progress, ranked: Sequence[tuple[float, str]], rung: Rung, eta: int) -> set[str]:
    """Who goes on when each is judged once, on arrival, against those that had come before."""
    number = {job: number for number, job in enumerate(progress.losses)}
    arrival = {name: max(number.get(job, -1) for job in rung.jobs(name)) for _, name in ranked}
    met: list[float] = []
    found = set()
    for loss, name in sorted(ranked, key=lambda pair: arrival[pair[1]]):
        bisect.insort(met, loss)
        # The first eta - 1 that come have too few to be compared with: they go on if the best so far.
        if loss <= met[max(len(met) // eta - 1, 0)]:
            found.add(name)
    return found
