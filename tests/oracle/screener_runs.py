"""Comparisons that take no training: losses from a function, workers that finish in a seeded order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from dataeff.contest import Contest, Job, Result
from dataeff.screeners import Screener

LossOf = Callable[[Job], float | None]
CURVES = 26
"""Candidates of a comparison of `curves`."""


def run(
    screener: Screener,
    contest: Contest,
    loss_of: LossOf,
    *,
    workers: int = 1,
    seed: int = 0,
    journal: Sequence[Result] = (),
    max_results: float = float("inf"),
) -> list[Result]:
    """Results in the order in which they came, after those of `journal`, until nothing is left or `max_results`."""
    rng = random.Random(seed)
    results, running = list(journal), []
    while len(results) < max_results:
        while len(running) < workers and (jobs := screener.next_jobs(contest, results, running)):
            check_laws(jobs, results, running, contest)
            running.append(jobs[0])
            assert screener.next_jobs(contest, results, running) == jobs[1:]
        if not running:
            break
        job = running.pop(rng.randrange(len(running)))
        results.append(Result(job=job, loss=loss_of(job)))
    return results


def check_laws(jobs: list[Job], results: Sequence[Result], running: Sequence[Job], contest: Contest) -> None:
    """What holds for the jobs of every screener."""
    trials = [job.trial for job in [*jobs, *running]]
    assert len(set(trials)) == len(trials), "one trial in two jobs"
    for job in jobs:
        before = [result for result in results if result.job.trial == job.trial]
        assert max((result.job.tokens for result in before), default=0) < job.tokens <= contest.budget_tokens
        assert all(result.loss is not None for result in before), "a failed trial goes on"


def quick_run(screener: Screener, contest: Contest, loss_of: LossOf, *, at_once: int = 1) -> list[Result]:
    """As `run`, without the checks: up to `at_once` jobs start together, and all of them finish before the next."""
    results: list[Result] = []
    while jobs := screener.next_jobs(contest, results, []):
        results += [Result(job=job, loss=loss_of(job)) for job in jobs[:at_once]]
    return results


def curves(seed: int, *, num_seeds: int = 1, noise: float = 0.001) -> tuple[Contest, LossOf, dict[str, float]]:
    """Power laws as published mixtures have them: losses at the end 0.23 nats apart, the best two 0.0015 to 0.006.

    Returns:
        The contest in a random order, the loss of a job with its seed's noise, and the true loss at the full budget.
    """
    rng = random.Random(seed)
    gap = rng.uniform(0.0015, 0.006)
    ends = [2.5, 2.5 + gap, *(2.5 + gap + rng.random() * (0.23 - gap) for _ in range(CURVES - 3)), 2.73]
    names = [f"mixture-{number:02}" for number in range(CURVES)]
    rng.shuffle(names)
    shapes = {name: (end, rng.gauss(0.35, 0.015), rng.gauss(0.25, 0.01)) for name, end in zip(names, ends, strict=True)}
    contest = Contest(
        candidates=tuple(sorted(names)),
        baseline="mixture-00",
        seeds=tuple(range(num_seeds)),
        budget_tokens=30_000,
        sigma=noise,
    )

    def loss_of(job: Job) -> float:
        end, height, power = shapes[job.candidate]
        fall = height * ((contest.budget_tokens / job.tokens) ** power - 1)
        own = random.Random(f"{seed} {job.candidate} {job.seed} {job.tokens}")
        return end + fall + own.gauss(0.0, noise)

    return contest, loss_of, {name: shapes[name][0] for name in contest.candidates}
