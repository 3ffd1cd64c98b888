"""Screeners: which candidates get more training, which stop. One policy a module, found through the registry.

A policy is a pure function of the results so far: no clock, no file, no state of its own. So a comparison that was
killed goes on by replaying its journal, and whoever reads the journal can see why a candidate was stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from dataeff.errors import FormatError, PlanError

Trial = tuple[str, int, str]
"""Candidate, seed and size: what is trained, paused with a checkpoint, and resumed."""
Out = Mapping[str, tuple[Literal["stopped", "failed"], str]]
"""Candidates that go no further, each with why."""


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


class Screener(Protocol):
    """What a module in this folder provides, as a frozen keyword-only dataclass named after its file."""

    def next_jobs(self, contest: Contest, results: Sequence[Result], running: Sequence[Job]) -> list[Job]:
        """Jobs that may start now, the most wanted first; none, with nothing running, means finished.

        Taking the first and asking again, with it among `running`, gives the rest. No job repeats one that is
        running or has a result, none takes a trial back, and a trial is never in two jobs at once.

        Args:
            contest: What is to be decided; the same at every call.
            results: All results so far, in the order in which they came. The second of one job is ignored.
            running: Jobs that were started and have no result yet.

        Raises:
            PlanError: The screener cannot decide such a contest.
            FormatError: The results are of another contest, or of a screener with other rungs.
        """

    def standing(self, contest: Contest, results: Sequence[Result]) -> list[Standing]:
        """Each candidate, in the order of the contest.

        Raises:
            PlanError, FormatError: As in `next_jobs`.
        """


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


def __getattr__(name: str) -> Any:
    from dataeff.registry import by_class_name

    found = by_class_name("screeners", name) if name[:1].isupper() else None
    if found is None:
        raise AttributeError(f"module 'dataeff.screeners' has no attribute {name!r}")
    return found
