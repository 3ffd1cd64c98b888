"""Running a comparison: the baseline first, which sets the target; then as the screener says; then the finalists."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dataeff import manifest
from dataeff.compare.comparison import Comparison
from dataeff.compare.corpora import Prepared, prepare
from dataeff.compare.journal import FILE, Entry, Journal, Phase
from dataeff.compare.trials import Plan, Runner, Task, directory
from dataeff.contest import Contest, Job, Standing
from dataeff.efficiency.crossing import MIN_BASELINES, choose_target
from dataeff.errors import DataeffError, MeasurementError, PlanError, StorageError
from dataeff.stages.tasks import Context

PLAN_FILE = "comparison.json"
VERSION = 1
_ANNEALED_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A comparison that is over."""

    out: Path
    plan: Mapping[str, Any]
    """What `comparison.json` holds."""
    journal: Journal
    standing: list[Standing]


def compare(
    comparison: Comparison,
    context: Context,
    workers: int = 1,
    observe: Callable[[Entry], None] = lambda entry: None,
) -> Compared:
    """Run a comparison into `context.out`, or what of it is not there yet.

    Args:
        comparison: What to compare.
        context: Where, and what corpora are made with.
        workers: Trials at a time.
        observe: Told of every result.

    Raises:
        DataeffError: See `dataeff.errors`; all finished trials stay, and the same call goes on from them.
    """
    _claim(context.out)
    try:
        prepared = prepare(comparison, context)
    except DataeffError:
        # Corpora that were made stay; a directory without a single file is not worth keeping.
        if not any(path.is_file() for path in context.out.rglob("*")):
            shutil.rmtree(context.out)
        raise
    plan = _plan(comparison, prepared)
    journal = Journal(context.out / FILE, plan["fingerprint"])
    manifest.write(context.out / PLAN_FILE, plan)
    drive = _Drive(comparison, prepared, plan, journal, context.out, observe)
    with Runner(workers) as runner:
        drive.baseline(runner)
        standing = drive.screen(runner)
        drive.confirm(runner, standing)
    return Compared(out=context.out, plan=plan, journal=journal, standing=standing)


def open_compared(out: Path) -> tuple[dict[str, Any], Journal]:
    """A comparison's plan and journal, whether it is over or not.

    Raises:
        StorageError: There is none.
    """
    plan = manifest.read(out / PLAN_FILE)
    if plan is None:
        raise StorageError(f"{out} holds no comparison: give the --out of a `dataeff compare` run")
    # Names come back sorted; the last proxy decides, and the first candidate of equal ones is preferred.
    for kind, names in plan["order"].items():
        plan[kind] = {name: plan[kind][name] for name in names}
    return plan, Journal(out / FILE, plan["fingerprint"])


def contest_of(plan: Mapping[str, Any], baseline_losses: Sequence[float] = ()) -> Contest:
    """What the screener decides; how much seeds matter is taken from the baseline's, which are trained first."""
    return Contest(
        candidates=tuple(plan["candidates"]),
        baseline=plan["baseline"],
        seeds=tuple(range(plan["seeds"])),
        budget_tokens=plan["budget_tokens"],
        sizes=tuple(plan["proxies"]),
        size_costs={name: proxy["cost"] for name, proxy in plan["proxies"].items()},
        sigma=statistics.stdev(baseline_losses) if len(baseline_losses) > 1 else None,
    )


class _Drive:
    def __init__(
        self,
        comparison: Comparison,
        prepared: Prepared,
        plan: Mapping[str, Any],
        journal: Journal,
        out: Path,
        observe: Callable[[Entry], None],
    ) -> None:
        self._comparison, self._prepared, self._plan = comparison, prepared, plan
        self._journal, self._out, self._observe = journal, out, observe
        self._size = list(comparison.proxies)[-1]

    def baseline(self, runner: Runner) -> None:
        """Train the baseline to the end with every seed: it is carried there anyway, and sets the target."""
        jobs = [self._job(self._comparison.baseline, seed) for seed in range(self._comparison.seeds)]
        self._all(runner, "baseline", jobs)
        losses = [entry.loss for entry in self._journal.of("baseline") if entry.loss is not None]
        if not losses:
            why = self._journal.of("baseline")[0].failure
            raise MeasurementError(
                f"every run of the baseline {self._comparison.baseline!r} failed, so there is nothing to compare with "
                f"({why}): lower learning_rate, or look at its corpus"
            )
        self._settle_target("target", "constant", losses)

    def screen(self, runner: Runner) -> list[Standing]:
        """Do what the screener asks for until it asks for nothing."""
        losses = [entry.loss for entry in self._journal.of("baseline") if entry.loss is not None]
        contest, screener = contest_of(self._plan, losses), self._comparison.screener
        while True:
            results = [entry.result for entry in self._journal.of("screen")]
            wanted = screener.next_jobs(contest, results, runner.running) if runner.free else []
            if wanted:
                runner.start(self._task("screen", wanted[0]))
                continue
            if not runner.running:
                return list(screener.standing(contest, results))
            for entry in runner.finished():
                self._note(entry)

    def confirm(self, runner: Runner, standing: list[Standing]) -> None:
        """Train the finalists and the baseline with fresh seeds, and anneal them on the way."""
        comparison = self._comparison
        self._journal.settle(
            "standing", {entry.candidate: {"state": entry.state, "why": entry.why} for entry in standing}
        )
        if not comparison.fresh_seeds:
            return
        ranked = sorted(
            (entry for entry in standing if entry.loss is not None and entry.tokens == comparison.budget_tokens),
            key=lambda entry: (entry.size != self._size, entry.loss),
        )
        best = [entry.candidate for entry in ranked if entry.candidate != comparison.baseline][: comparison.finalists]
        self._journal.settle("finalists", best)
        seeds = range(comparison.seeds, comparison.seeds + comparison.fresh_seeds)
        runs = [(name, seed) for name in (comparison.baseline, *self._journal.facts["finalists"]) for seed in seeds]
        for share in comparison.annealed:
            # The constant run is paused where annealing begins, so that its checkpoint is there to branch off.
            end = max(2, self._steps(share))
            begin = min(self._steps(share * (1 - _ANNEALED_SHARE)), end - 1)
            self._all(runner, "confirm", [self._job(*run, begin) for run in runs])
            self._all(runner, "anneal", [self._job(*run, end) for run in runs])
        self._all(runner, "confirm", [self._job(*run) for run in runs])
        losses = [
            entry.loss
            for entry in self._journal.of("anneal")
            if entry.job.candidate == comparison.baseline
            and entry.job.tokens == comparison.budget_tokens
            and entry.loss is not None
        ]
        if losses:
            self._settle_target("annealed target", "annealed", losses)

    def _settle_target(self, fact: str, kind: str, losses: list[float]) -> None:
        """What is asked for, or what runs of the baseline of a kind reach; written down before it is used."""
        asked = self._comparison.target
        if asked is not None:
            target, rule = asked, "as asked for"
        elif len(losses) >= MIN_BASELINES:
            target = choose_target(losses)
            rule = f"the median of {len(losses)} {kind} runs of the baseline, two sigmas above"
        else:
            target, rule = max(losses), f"the worst of {len(losses)} {kind} runs of the baseline, too few for a sigma"
        self._journal.settle(fact, {"loss": target, "rule": rule})

    def _all(self, runner: Runner, phase: Phase, jobs: list[Job]) -> None:
        """Do jobs of a phase that have no entry yet; none of a trial that failed."""
        done = {entry.job for entry in self._journal.of(phase)}
        dead = {entry.job.trial for entry in self._journal.entries if entry.loss is None}
        tasks = [self._task(phase, job) for job in jobs if job not in done and job.trial not in dead]
        for entry in runner.run(tasks):
            self._note(entry)

    def _note(self, entry: Entry) -> None:
        self._journal.add(entry)
        self._observe(entry)

    def _steps(self, share: float) -> int:
        return max(1, round(share * self._comparison.steps))

    def _job(self, candidate: str, seed: int, steps: int | None = None) -> Job:
        tokens = (steps or self._comparison.steps) * self._comparison.step_tokens
        return Job(candidate=candidate, seed=seed, size=self._size, tokens=tokens)

    def _task(self, phase: Phase, job: Job) -> Task:
        comparison = self._comparison
        corpus = comparison.candidates[job.candidate].corpus
        steps = comparison.steps
        out = directory(self._out, job)
        if phase == "anneal":
            out = out.with_name(f"{out.name}-annealed-{job.tokens // comparison.step_tokens}")
        plan = Plan(
            corpus=str(self._prepared.corpora[corpus]),
            validation=str(self._prepared.validation),
            shape=comparison.proxies[job.size].shape,
            settings={
                "batch_size": comparison.batch_rows,
                "learning_rate": comparison.learning_rate,
                "warmup_steps": max(1, round(comparison.warmup_share * steps)),
                "weights": self._plan["candidates"][job.candidate]["weights"],
                "rows_share": comparison.rows_share,
                "holdout_rows": 0,
                "validate_every": steps // comparison.evaluations,
                "checkpoint_every": 3 * (steps // comparison.evaluations),
                "keep_checkpoints": 1,
                "log_every": max(1, steps // comparison.evaluations),
                "team": comparison.team,
                "project": comparison.project,
                "run": f"{job.size}/{job.candidate}/{out.name}",
                "candidate": job.candidate,
            },
            step_tokens=comparison.step_tokens,
            domains=self._plan["domains"],
        )
        return Task(
            phase=phase,
            job=job,
            plan=plan,
            out=out,
            branch_of=directory(self._out, job) if phase == "anneal" else None,
        )


def _plan(comparison: Comparison, prepared: Prepared) -> dict[str, Any]:
    """What is written down before anything is trained."""
    horizon = comparison.real_tokens or comparison.budget_tokens
    candidates = {}
    for name, candidate in comparison.candidates.items():
        supply = prepared.tokens[candidate.corpus]
        weights = candidate.mixer.weights(supply, horizon)
        candidates[name] = {
            "corpus": candidate.corpus,
            "mixer": manifest.canonical(candidate.mixer),
            "weights": weights,
            "epochs": {source: weights[source] * horizon / supply[source] for source in supply},
        }
    sources = list(prepared.overlap)
    wanted = dict(comparison.domains) if comparison.domains else dict.fromkeys(sources, 1.0)
    unknown = sorted(set(wanted) - set(sources))
    if unknown or not sum(wanted.values()) > 0 or min(wanted.values()) < 0:
        raise PlanError(
            f"domains names {', '.join(unknown) or 'no source with a weight above 0'}; there are validation rows of "
            f"{', '.join(sources) or 'no source'} (holdout_share and validation_rows say how many)"
        )
    total = sum(wanted.values())
    content: dict[str, Any] = {
        "version": VERSION,
        "order": {name: list(getattr(comparison, name)) for name in ("candidates", "proxies")},
        "baseline": comparison.baseline,
        "candidates": candidates,
        "domains": {name: weight / total for name, weight in wanted.items()},
        "overlap": prepared.overlap,
        "supply": prepared.tokens,
        "proxies": {name: {**asdict(proxy), "cost": proxy.cost} for name, proxy in comparison.proxies.items()},
        "screener": manifest.canonical(comparison.screener),
        "budget_tokens": comparison.budget_tokens,
        "step_tokens": comparison.step_tokens,
        "sequence_length": comparison.sequence_length,
        "horizon_tokens": horizon,
        "seeds": comparison.seeds,
        "fresh_seeds": comparison.fresh_seeds,
        "finalists": comparison.finalists,
        "annealed": list(comparison.annealed),
        "schedule": {"learning_rate": comparison.learning_rate, "warmup_share": comparison.warmup_share},
        "evaluations": comparison.evaluations,
        "target": comparison.target,
        "team": comparison.team,
        "project": comparison.project,
    }
    return {**content, "fingerprint": manifest.fingerprint(manifest.canonical(content), prepared.digest)}


def _claim(out: Path) -> None:
    """Make the directory ours.

    Raises:
        StorageError: It holds something else.
    """
    known = {"corpora", PLAN_FILE, FILE}
    there = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if there and not there & known:
        raise StorageError(f"{out} is not empty and holds no comparison: give --out a new directory")
    with manifest.storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
