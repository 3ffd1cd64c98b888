"""What became of every document and byte: the funnel of a finished corpus, its mixture, and its cost, as numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dataeff.stages.tasks import RUN_LOG


@dataclass(frozen=True, slots=True)
class Amount:
    """Documents, and bytes of their text."""

    documents: int = 0
    num_bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.documents + other.documents, self.num_bytes + other.num_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of the documents of one source, or of several."""

    source: str
    read: Amount
    dropped: Mapping[str, Amount] = field(default_factory=dict)
    """By the rule that they failed first."""
    duplicates: Amount
    kept: Amount
    kept_tokens: int | None
    """Tokens of what was kept, or None where nothing was tokenized."""

    @property
    def filtered(self) -> Amount:
        """What all rules dropped."""
        return sum(self.dropped.values(), Amount())


def fates(content: Mapping[str, Any], sources: Iterable[str] | None = None) -> list[Fate]:
    """By source, the largest first.

    Args:
        content: Manifest of the corpus.
        sources: Which; None takes all.
    """
    funnel = content["funnel"]
    found = []
    for source in funnel["read"] if sources is None else sources:
        kept = funnel["kept"].get(source, {})
        rules = funnel["dropped"].get(source, {})
        found.append(
            Fate(
                source=source,
                read=_amount(funnel["read"][source]),
                dropped={rule: _amount(entry) for rule, entry in rules.items()},
                duplicates=_amount(funnel["duplicates"].get(source, {})),
                kept=_amount(kept),
                kept_tokens=kept.get("tokens"),
            )
        )
    return sorted(found, key=lambda fate: (-fate.read.num_bytes, fate.source))


def total(parts: Sequence[Fate], name: str = "all") -> Fate:
    """Several sources as one."""
    dropped: dict[str, Amount] = {}
    for fate in parts:
        for rule, amount in fate.dropped.items():
            dropped[rule] = dropped.get(rule, Amount()) + amount
    tokens = [fate.kept_tokens for fate in parts if fate.kept_tokens is not None]
    return Fate(
        source=name,
        read=sum((fate.read for fate in parts), Amount()),
        dropped=dropped,
        duplicates=sum((fate.duplicates for fate in parts), Amount()),
        kept=sum((fate.kept for fate in parts), Amount()),
        kept_tokens=sum(tokens) if tokens else None,
    )


def with_others(parts: Sequence[Fate], limit: int) -> list[Fate]:
    """At most `limit` entries: the first ones, and the rest as one."""
    if len(parts) <= limit:
        return list(parts)
    rest = parts[limit - 1 :]
    return [*parts[: limit - 1], total(rest, f"{len(rest):,} others")]


def by_reason(fate: Fate, order: Iterable[str]) -> list[tuple[str, Amount]]:
    """What left, and why: each rule that dropped something, in order of judgement, then duplicates."""
    rules = [(rule, fate.dropped[rule]) for rule in order if fate.dropped.get(rule, Amount()).documents]
    return [*rules, *([("duplicates", fate.duplicates)] if fate.duplicates.documents else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """One source's part in training."""

    source: str
    available: int
    """Distinct tokens (or bytes) that it has."""
    used: int
    """What is trained on, repetitions included."""
    target_share: float
    realised_share: float
    epochs: float
    capped: bool


def mixture(content: Mapping[str, Any]) -> list[Mixed]:
    """By source, the largest target first; empty where the recipe has no Mix."""
    plan = content.get("mixture")
    if not plan:
        return []
    found = [
        Mixed(
            source=source,
            available=entry["available_tokens"],
            used=entry["use_tokens"],
            target_share=entry["target_share"],
            realised_share=entry["realised_share"],
            epochs=entry["epochs"],
            capped=entry["capped"],
        )
        for source, entry in plan["sources"].items()
    ]
    return sorted(found, key=lambda mixed: (-mixed.target_share, -mixed.realised_share, mixed.source))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """What one step took, in all runs into a directory together."""

    step: str
    tasks: int = 0
    reused: int = 0
    """Tasks whose output was there already when the step was run again."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    num_bytes: int = 0
    """Size of the work, where the step has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a corpus took to make."""

    runs: int
    """How many runs there were; those after the first went on from it, or redid what a change touched."""
    steps: tuple[StepCost, ...]
    """In the order in which they first ran."""

    @property
    def wall_s(self) -> float:
        """Time on the clock, while a step ran."""
        return sum(step.wall_s for step in self.steps)

    @property
    def cpu_s(self) -> float:
        """Time on processors, in tasks."""
        return sum(step.cpu_s for step in self.steps)


def cost(directory: Path) -> Cost | None:
    """Cost by step, from the run log; None where there is no log. A line that a kill cut short is passed over."""
    try:
        lines = (directory / RUN_LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None
    runs: set[str] = set()
    steps: dict[str, StepCost] = {}
    for line in lines:
        try:
            entry = json.loads(line)
            name = _step_name(entry["step"])
            before = steps.get(name, StepCost(step=name))
            steps[name] = StepCost(
                step=name,
                tasks=before.tasks + int(entry["tasks"]),
                reused=before.reused + int(entry["reused"]),
                wall_s=before.wall_s + float(entry["wall_s"]),
                cpu_s=before.cpu_s + float(entry["cpu_s"]),
                num_bytes=before.num_bytes + int(entry["bytes"]),
            )
            runs.add(str(entry["run"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return Cost(runs=len(runs), steps=tuple(steps.values())) if steps else None


def cpu_s_of(directory: Path) -> float:
    """CPU time that making a corpus took, in seconds; 0 where nothing says so."""
    found = cost(directory)
    return found.cpu_s if found else 0.0


def _step_name(step: str) -> str:
    """Phases of a step count as the step, but each format of shards on its own."""
    return step.removesuffix("-spill") if step.startswith("shards/") else step.partition("/")[0]


def _amount(entry: Mapping[str, int]) -> Amount:
    return Amount(entry.get("documents", 0), entry.get("bytes", 0))
