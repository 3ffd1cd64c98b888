"""What a comparison found: for each candidate the tokens to the target, what they cost, and whether that differs.

Figures come from the trials' own readings and ledgers, so a comparison that is not over, or that was stopped, can be
looked at too. A finalist is judged by its fresh seeds only: the seeds that it won with flatter it.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dataeff.compare.drive import contest_of, open_compared
from dataeff.compare.journal import Entry, Journal
from dataeff.compare.trials import FOLDER, aggregate, readings
from dataeff.efficiency.crossing import Crossing, crossings, tokens_to_target
from dataeff.efficiency.curves import MIN_FIT_POINTS, Curve
from dataeff.efficiency.intervals import Description, Ratio, describe, holm, ratio, verdict
from dataeff.efficiency.samples import Sample
from dataeff.errors import MeasurementError
from dataeff.ledger import FILE, read_ledger
from dataeff.prices import Price
from dataeff.rungs import cost_share

_WARMUP_SHARE = 0.1
"""Of the budget: earlier points say little of the law that follows."""
NS_PER_HOUR = 3.6e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run: its curve, and what it took."""

    candidate: str
    seed: int
    size: str
    folder: Path
    curve: Curve | None
    """None where there are too few readings."""
    losses: Mapping[int, Mapping[str, float]]
    """By tokens and source."""
    device_ns: int
    """All that it was allocated."""
    train_ns: int
    """In steps, waits for data included."""
    step_tokens_done: int
    failure: str
    """Empty unless it diverged or died."""
    annealed: bool = False

    @property
    def tokens_per_s(self) -> float | None:
        """While it trained, waits for data included."""
        return self.step_tokens_done / (self.train_ns / 1e9) if self.train_ns and self.step_tokens_done else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Tokens to one target of one candidate."""

    crossings: tuple[Crossing, ...]
    seeds: tuple[int, ...]
    described: Description
    ratio: Ratio | None
    """To the baseline; None for the baseline."""
    p_value: float | None
    """Adjusted by Holm for the candidates that are compared."""
    verdict: str
    fresh: bool
    """Whether all its seeds are other ones than those that it was chosen by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A candidate."""

    candidate: str
    corpus: str
    weights: Mapping[str, float]
    epochs: Mapping[str, float]
    """Times each source is repeated in the run that is planned."""
    state: Literal["baseline", "kept", "stopped", "failed"]
    why: str
    constant: Read | None
    """At a constant learning rate; None where no trial of it has a curve."""
    annealed: Read | None
    """Annealed runs: of finalists and the baseline."""
    num_failed: int
    device_hours: float
    """Of all its trials."""

    @property
    def headline(self) -> Read | None:
        """The annealed figure where there is one."""
        return self.annealed or self.constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A comparison, judged."""

    out: Path
    plan: Mapping[str, Any]
    target: Mapping[str, Any] | None
    """Loss, and by which rule; None while the baseline is not trained."""
    annealed_target: Mapping[str, Any] | None
    rows: tuple[Row, ...]
    """The baseline first, then by tokens."""
    trials: tuple[Trial, ...]
    tokens_per_s: float | None
    """Median over trials of the deciding proxy."""
    device_hours: float
    """All that the comparison took, corpora excepted."""
    screening_share: float
    """Training that the screener spent, of the full grid's."""
    grid_device_hours: float | None
    """What the full grid would have taken at the measured speed."""

    @property
    def baseline(self) -> Row:
        """The row that others are compared with."""
        return self.rows[0]


def outcome(out: Path) -> Outcome:
    """Judge a comparison, finished or not.

    Raises:
        StorageError: There is none.
        MeasurementError: The target is reached before a first reading.
    """
    plan, journal = open_compared(out)
    trials = tuple(_trials(out, plan, journal))
    targets = journal.facts.get("target"), journal.facts.get("annealed target")
    constant = _reads(plan, journal, trials, targets[0], annealed=False) if targets[0] else {}
    finals = _reads(plan, journal, trials, targets[1], annealed=True) if targets[1] else {}
    standing = _standing(plan, journal)
    rows = []
    for name, entry in plan["candidates"].items():
        state, why = standing[name]
        mine = [trial for trial in trials if trial.candidate == name]
        rows.append(
            Row(
                candidate=name,
                corpus=entry["corpus"],
                weights=entry["weights"],
                epochs=entry["epochs"],
                state=state,
                why=why,
                constant=constant.get(name),
                annealed=finals.get(name),
                num_failed=sum(bool(trial.failure) for trial in mine),
                device_hours=sum(trial.device_ns for trial in mine) / NS_PER_HOUR,
            )
        )
    size = list(plan["proxies"])[-1]
    speeds = [trial.tokens_per_s for trial in trials if trial.size == size and trial.tokens_per_s]
    speed = statistics.median(speeds) if speeds else None
    grid = len(plan["candidates"]) * plan["seeds"] * plan["budget_tokens"]
    return Outcome(
        out=out,
        plan=plan,
        target=targets[0],
        annealed_target=targets[1],
        rows=tuple(sorted(rows, key=lambda row: _place(row, plan["baseline"]))),
        trials=trials,
        tokens_per_s=speed,
        device_hours=sum(trial.device_ns for trial in trials) / NS_PER_HOUR,
        screening_share=cost_share(contest_of(plan), _screened(plan, journal)),
        grid_device_hours=grid / speed / 3600 if speed else None,
    )


def _screened(plan: Mapping[str, Any], journal: Journal) -> list[Any]:
    """Results that the screener asked for, and the baseline's, which were there already."""
    return [entry.result for entry in (*journal.of("screen"), *journal.of("baseline"))]


def _standing(plan: Mapping[str, Any], journal: Journal) -> dict[str, tuple[Any, str]]:
    """How each candidate stands, as the screener last said."""
    known: dict[str, tuple[Any, str]] = {
        name: ("baseline", "carried to the end") if name == plan["baseline"] else ("kept", "goes on")
        for name in plan["candidates"]
    }
    for name, entry in journal.facts.get("standing", {}).items():
        known[name] = (entry["state"], entry["why"])
    return known


def _trials(out: Path, plan: Mapping[str, Any], journal: Journal) -> Iterator[Trial]:
    """Every trial that left something."""
    failures = {(entry.job.trial, entry.phase == "anneal"): entry for entry in journal.entries if entry.loss is None}
    for size in plan["proxies"]:
        for candidate in plan["candidates"]:
            folder = out / FOLDER / size / candidate
            for path in sorted(folder.glob("seed-*")) if folder.is_dir() else ():
                _, seed, *branch = path.name.split("-")
                failure = failures.get(((candidate, int(seed), size), bool(branch)))
                yield _trial(path, plan, candidate, int(seed), size, failure, bool(branch))


def _trial(
    path: Path, plan: Mapping[str, Any], candidate: str, seed: int, size: str, failure: Entry | None, annealed: bool
) -> Trial:
    step_tokens = plan["step_tokens"]
    found = {step * step_tokens: losses for step, losses in readings(path).items()}
    windows, _ = read_ledger(path / FILE)
    spent = [(window.spent_ns, window.stop_ns - window.start_ns) for window in windows]
    train_ns = sum(parts.get(name, 0) for parts, _ in spent for name in ("step", "data_wait", "lost_to_restart"))
    first = json.loads((path / "branch.json").read_text())["step"] if annealed else 0
    return Trial(
        candidate=candidate,
        seed=seed,
        size=size,
        folder=path,
        curve=_curve(found, plan["domains"], failure),
        losses=found,
        device_ns=sum(length for _, length in spent),
        train_ns=train_ns,
        step_tokens_done=max(0, max((window.step for window in windows), default=0) - first) * step_tokens,
        failure=failure.failure if failure else "",
        annealed=annealed,
    )


def _curve(
    found: Mapping[int, Mapping[str, float]], domains: Mapping[str, float], failure: Entry | None
) -> Curve | None:
    points = [(tokens, aggregate(losses, domains)) for tokens, losses in found.items()]
    if failure is not None:
        points = [point for point in points if point[0] < failure.job.tokens] + [(failure.job.tokens, math.nan)]
    if sum(math.isfinite(loss) for _, loss in points) < 2:
        return None
    return Curve.of([tokens for tokens, _ in points], [loss for _, loss in points])


def _reads(
    plan: Mapping[str, Any], journal: Journal, trials: Sequence[Trial], target: Mapping[str, Any], *, annealed: bool
) -> dict[str, Read]:
    """Tokens to the target of every candidate that has runs of this kind at the deciding size."""
    arms: dict[str, dict[int, Crossing]] = {}
    for (candidate, seed), crossing in _crossings(plan, trials, target["loss"], annealed=annealed).items():
        arms.setdefault(candidate, {})[seed] = crossing
    baseline = plan["baseline"]
    if baseline not in arms:
        return {}
    fresh = {}
    for name, arm in arms.items():
        new = {seed: crossing for seed, crossing in arm.items() if seed >= plan["seeds"]}
        fresh[name] = bool(new) and (name != baseline or annealed)
        arms[name] = new if fresh[name] else arm
    samples = {name: Sample.of(tuple(arm.values())) for name, arm in arms.items()}
    ratios = {name: _ratio(sample, samples[baseline]) for name, sample in samples.items() if name != baseline}
    # A candidate that the screener stopped is not among those that a difference was looked for in.
    adjusted = dict(zip(ratios, holm([found.p_value if found else None for found in ratios.values()]), strict=True))
    return {
        name: Read(
            crossings=tuple(arm.values()),
            seeds=tuple(arm),
            described=describe(samples[name]),
            ratio=ratios.get(name),
            p_value=adjusted.get(name),
            verdict=_verdict(ratios.get(name), adjusted.get(name), name == baseline),
            fresh=fresh[name],
        )
        for name, arm in arms.items()
    }


def _crossings(
    plan: Mapping[str, Any], trials: Sequence[Trial], target: float, *, annealed: bool
) -> dict[tuple[str, int], Crossing]:
    size = list(plan["proxies"])[-1]
    if annealed:
        return _annealed_crossings(trials, plan["domains"], target)
    mine = {(t.candidate, t.seed): t.curve for t in trials if t.size == size and not t.annealed and t.curve}
    after = _WARMUP_SHARE * plan["budget_tokens"]
    long = {key: curve for key, curve in mine.items() if np.sum(curve.tokens >= after) >= MIN_FIT_POINTS}
    # Runs that were stopped early have too few points for a law; they seldom reach the target.
    read = dict(zip(long, crossings(list(long.values()), target, warmup_tokens=after), strict=True)) if long else {}
    for key, curve in mine.items():
        if key not in read:
            read[key] = tokens_to_target(curve, target, method="isotonic")
    return {key: read[key] for key in mine}


def _annealed_crossings(
    trials: Sequence[Trial], domains: Mapping[str, float], target: float
) -> dict[tuple[str, int], Crossing]:
    """Of the last readings of runs that were annealed at several budgets, a curve a seed."""
    points: dict[tuple[str, int], dict[int, float]] = {}
    for trial in trials:
        if trial.annealed and trial.losses and not trial.failure:
            end = max(trial.losses)
            points.setdefault((trial.candidate, trial.seed), {})[end] = aggregate(trial.losses[end], domains)
    return {
        key: tokens_to_target(Curve.of(sorted(found), [found[at] for at in sorted(found)]), target, method="isotonic")
        for key, found in points.items()
        if len(found) > 1
    }


def _ratio(sample: Sample, baseline: Sample) -> Ratio | None:
    try:
        return ratio(sample, baseline)
    except MeasurementError:
        return None  # copies of one run: nothing differs


def _verdict(found: Ratio | None, p_value: float | None, is_baseline: bool) -> str:
    if is_baseline:
        return "baseline"
    return verdict(found, p_value=p_value) if found else "the same runs as the baseline's"


def _place(row: Row, baseline: str) -> tuple[Any, ...]:
    read = row.headline
    tokens = read.described.mean_tokens if read else None
    return row.candidate != baseline, row.annealed is None, tokens is None, tokens or 0.0


def device_hours_to(tokens: float | None, found: Outcome) -> float | None:
    """Of one device at the measured speed."""
    return None if tokens is None or not found.tokens_per_s else tokens / found.tokens_per_s / 3600


def usd(hours: float | None, price: Price | None) -> float | None:
    """Dollars."""
    return None if hours is None or price is None else hours * price.usd_per_hour
