"""Rungs: the points at which candidates of a contest are compared, and who has come to which."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dataeff.contest import Contest, Job, Result, Standing, Trial
from dataeff.errors import FormatError, PlanError

Out = Mapping[str, tuple[Literal["stopped", "failed"], str]]
"""Candidates that go no further, each with why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A point at which candidates are compared: all seeds of it, at equal tokens, by their mean."""

    size: str
    tokens: int
    seeds: tuple[int, ...]

    def jobs(self, candidate: str) -> list[Job]:
        """What brings a candidate here."""
        return [Job(candidate=candidate, seed=seed, size=self.size, tokens=self.tokens) for seed in self.seeds]

    def __str__(self) -> str:
        return f"{self.tokens:,} tokens of size {self.size}"


def ladder(contest: Contest, *, eta: int, min_share: float, screening_seeds: int) -> list[Rung]:
    """Rungs at the full size: the full budget, and before it 1/eta, 1/eta**2 ... down to `min_share` of it.

    Below the full budget only the first `screening_seeds` seeds are trained; who comes to the end gets all. Rungs
    that would fall on the same token, or below the first, are left out.
    """
    depths = [0]
    while eta ** (depths[-1] + 1) * min_share <= 1:
        depths.append(depths[-1] + 1)
    tokens = sorted({contest.budget_tokens // eta**depth for depth in depths} - {0})
    few = contest.seeds[:screening_seeds]
    size = contest.sizes[-1]
    below = [Rung(size=size, tokens=count, seeds=few) for count in tokens[:-1]]
    return [*below, Rung(size=size, tokens=contest.budget_tokens, seeds=contest.seeds)]


def check_ladder(screener: object, *, eta: int, min_share: float, screening_seeds: int) -> None:
    """Refuse options of which no ladder can be made.

    Raises:
        PlanError: One is out of range; the message names it as a field of `screener`.
    """
    if eta < 2:
        raise PlanError.out_of_range(screener, "eta", "2 or more")
    if not 0 < min_share <= 1:
        raise PlanError.out_of_range(screener, "min_share", "above 0 and at most 1")
    if screening_seeds < 1:
        raise PlanError.out_of_range(screener, "screening_seeds", "1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The results of a contest, by job and by trial."""

    contest: Contest
    losses: Mapping[Job, float | None]
    """In the order in which they came; None for a failure."""
    running: frozenset[Job]
    reached: Mapping[Trial, int]
    """Most tokens of a result."""
    failed: Mapping[Trial, int]
    """Fewest tokens of a failure."""

    @classmethod
    def of(cls, contest: Contest, results: Iterable[Result], running: Iterable[Job] = ()) -> Progress:
        """Sort the results out.

        Raises:
            FormatError: A result names what the contest does not have.
        """
        losses: dict[Job, float | None] = {}
        reached: dict[Trial, int] = {}
        failed: dict[Trial, int] = {}
        for result in results:
            job = result.job
            if job in losses:
                continue
            _check_job(contest, job)
            loss = result.loss if result.loss is not None and math.isfinite(result.loss) else None
            losses[job] = loss
            reached[job.trial] = max(job.tokens, reached.get(job.trial, 0))
            if loss is None:
                failed[job.trial] = min(job.tokens, failed.get(job.trial, job.tokens))
        return cls(contest=contest, losses=losses, running=frozenset(running), reached=reached, failed=failed)

    def finished(self, job: Job) -> bool:
        """Whether nothing more will come of a job: it has a result, or its trial failed on the way.

        Raises:
            FormatError: The trial is past the job and has no result of it.
        """
        if job in self.losses or self.failed.get(job.trial, math.inf) <= job.tokens:
            return True
        if self.reached.get(job.trial, 0) > job.tokens:
            raise FormatError(
                f"{job.candidate}, seed {job.seed}, has a result at {self.reached[job.trial]:,} tokens and none at "
                f"{job.tokens:,}, where it is to be judged: go on with the screener and the options that made the "
                "results, or begin anew"
            )
        return False

    def done(self, candidate: str, rung: Rung) -> bool:
        """Whether all seeds of the rung have come to it or failed."""
        return all(self.finished(job) for job in rung.jobs(candidate))

    def begun(self, candidate: str, rung: Rung) -> bool:
        """Whether a seed is on its way to the rung, or there."""
        return any(job in self.losses or job in self.running for job in rung.jobs(candidate))

    def startable(self, candidates: Iterable[str], rung: Rung) -> list[Job]:
        """Jobs that bring the candidates to the rung and neither run nor are finished."""
        jobs = (job for candidate in candidates for job in rung.jobs(candidate))
        return [job for job in jobs if job not in self.running and not self.finished(job)]

    def seed_losses(self, candidate: str, rung: Rung) -> list[float]:
        """Losses of the seeds that came to the rung."""
        losses = (self.losses.get(job) for job in rung.jobs(candidate))
        return [loss for loss in losses if loss is not None]

    def ranked(self, candidates: Iterable[str], rung: Rung) -> list[tuple[float, str]]:
        """Mean loss and name of each candidate with a loss at the rung, best first, ties in the order given."""
        losses = ((self.seed_losses(candidate, rung), candidate) for candidate in candidates)
        return sorted(((_mean(found), candidate) for found, candidate in losses if found), key=lambda pair: pair[0])

    def fallen(self, candidates: Iterable[str], rung: Rung) -> dict[str, tuple[Literal["stopped", "failed"], str]]:
        """Those of the candidates that are done at the rung with every seed failed."""
        lost = (name for name in candidates if self.done(name, rung) and not self.seed_losses(name, rung))
        return dict.fromkeys(lost, ("failed", f"every seed failed by {rung}"))

    def standings(self, out: Out) -> list[Standing]:
        """Each candidate, in the order of the contest, given those that go no further."""
        return [self._standing(candidate, out) for candidate in self.contest.candidates]

    def _standing(self, candidate: str, out: Out) -> Standing:
        found = [(job, loss) for job, loss in self.losses.items() if job.candidate == candidate and loss is not None]
        size, tokens = max(
            ((job.size, job.tokens) for job, _ in found),
            key=lambda place: (self.contest.sizes.index(place[0]), place[1]),
            default=(None, 0),
        )
        there = [loss for job, loss in found if (job.size, job.tokens) == (size, tokens)]
        at_end = size == self.contest.sizes[-1] and tokens == self.contest.budget_tokens
        state: Literal["baseline", "kept", "stopped", "failed"] = "kept"
        why = "came to the full budget" if at_end else "not decided yet"
        if candidate in out:
            state, why = out[candidate]
        elif candidate == self.contest.baseline:
            state, why = "baseline", "always carried to the full budget"
        return Standing(
            candidate=candidate,
            state=state,
            why=why,
            size=size,
            tokens=tokens,
            loss=_mean(there) if there else None,
            num_seeds=len(there),
            num_failed=sum(trial[0] == candidate for trial in self.failed),
        )


def cost_share(contest: Contest, results: Iterable[Result]) -> float:
    """Training so far over that of every candidate and seed at the full size and budget.

    Tokens times the cost of a token. A resumed trial is counted once; a failed job as if it had run to its end, since
    where it failed is not known.

    Raises:
        FormatError: A result names what the contest does not have.
    """
    reached = Progress.of(contest, results).reached
    spent = math.fsum(tokens * contest.size_costs[size] for (_, _, size), tokens in reached.items())
    trials = len(contest.candidates) * len(contest.seeds)
    return spent / (trials * contest.budget_tokens * contest.size_costs[contest.sizes[-1]])


def _mean(losses: Sequence[float]) -> float:
    return math.fsum(losses) / len(losses)


def _check_job(contest: Contest, job: Job) -> None:
    known = job.candidate in contest.candidates and job.seed in contest.seeds and job.size in contest.sizes
    if not known or not 0 < job.tokens <= contest.budget_tokens:
        raise FormatError(
            f"a result of {job.candidate}, seed {job.seed}, {job.tokens:,} tokens of size {job.size} belongs to no "
            f"trial of this contest of up to {contest.budget_tokens:,} tokens: it is of another one, so begin anew"
        )
