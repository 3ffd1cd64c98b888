"""What the report shows, gathered and cut: its size is bounded whatever the corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dataeff.reports.accounting import Amount, Cost, Fate, Mixed, by_reason, cost, fates, mixture, total, with_others
from dataeff.reports.clusters import ClusterFacts, cluster_facts, overlap
from dataeff.reports.finished import Finished
from dataeff.reports.quantities import count, duration, passes, share, short, size, value
from dataeff.reports.samples import DuplicateSample, RejectSample, RuleSample, dropped_by, duplicates, rejected
from dataeff.reports.signals import Distribution, distributions
from dataeff.reports.sparkline import sparkline
from dataeff.reports.stage_text import stage_text
from dataeff.reports.visible import one_line

MAX_SOURCES = 30
MAX_OVERLAP_SOURCES = 16
MAX_REASONS = 24
MAX_RULES = 60
LARGEST_CLUSTERS = 12
RULE_SAMPLES = 4
DUPLICATE_SAMPLES = 3
"""For each class of similarity."""
REJECT_SAMPLES = 12
EXCERPT_CHARACTERS = 700
OTHERS = "others"
_SIMILARITY = (
    ("Jaccard below 0.9", 0.0, 0.9),
    ("Jaccard 0.9 to 0.99", 0.9, 0.99),
    ("Jaccard 0.99 and above", 0.99, 1.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One number that stands large."""

    label: str
    number: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule with its signal."""

    name: str
    passes: str
    distribution: Distribution
    spark: Any
    """Its distribution as a small drawing, SVG."""
    dropped: str
    facts: tuple[tuple[str, str], ...]
    samples: tuple[RuleSample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All that the page shows."""

    title: str
    subtitle: str
    headlines: tuple[Headline, ...]
    whole: Fate
    sources: tuple[Fate, ...]
    """The largest, and the others as one."""
    reasons: tuple[tuple[str, Amount], ...]
    rules: tuple[Rule, ...]
    """In order of judgement; of very many, those that dropped most."""
    num_rules: int
    deduplicated: bool
    clusters: ClusterFacts
    cluster_excerpts: Mapping[int, str]
    overlap: Mapping[tuple[str, str], int]
    overlap_sources: tuple[str, ...]
    duplicates: tuple[tuple[str, tuple[DuplicateSample, ...]], ...]
    """By class of similarity."""
    skipped_comparisons: int
    mixture: tuple[Mixed, ...]
    mixture_rest: int
    mixture_note: str
    unit: str
    rejected: Mapping[str, int]
    reject_samples: tuple[RejectSample, ...]
    edited: Mapping[str, int]
    newlines: int
    cost: Cost | None
    stages: tuple[str, ...]
    shards: tuple[tuple[str, ...], ...]
    """Format, shards, rows, documents, tokens, share of padding, bytes."""


def contents(finished: Finished) -> Contents:
    """Gather what the page shows of a finished corpus."""
    manifest = finished.content
    parts = fates(manifest)
    whole = total(parts)
    took = cost(finished.directory)
    counts = overlap(finished.directory)
    found = cluster_facts(finished.directory, LARGEST_CLUSTERS)
    repeated, repeated_sources = _cut_overlap(counts)
    mixed = mixture(manifest)
    texts = finished.texts([cluster.survivor for cluster in found.largest], EXCERPT_CHARACTERS)
    return Contents(
        title=one_line(finished.directory.resolve().name, 80) or "corpus",
        subtitle=_subtitle(manifest),
        headlines=tuple(_headlines(whole, took)),
        whole=whole,
        sources=tuple(with_others(parts, MAX_SOURCES)),
        reasons=tuple(_cut_reasons(by_reason(whole, finished.bounds))),
        rules=tuple(_rules(finished)),
        num_rules=len(finished.bounds),
        deduplicated=any(stage.get("class") == "Dedup" for stage in manifest["stages"]) or bool(counts),
        clusters=found,
        cluster_excerpts={doc: one_line(text, 200) for doc, text in texts.items()},
        overlap=repeated,
        overlap_sources=repeated_sources,
        duplicates=tuple(_duplicates(finished)),
        skipped_comparisons=manifest.get("skipped_comparisons") or 0,
        mixture=tuple(mixed[:MAX_SOURCES]),
        mixture_rest=max(0, len(mixed) - MAX_SOURCES),
        mixture_note=_mixture_note(manifest),
        unit=manifest["unit"],
        rejected=manifest["funnel"]["rejected"],
        reject_samples=tuple(rejected(finished, REJECT_SAMPLES)),
        edited={name: number for name, number in manifest["funnel"]["edited"].items() if number},
        newlines=sum(manifest["funnel"]["newlines"].values()),
        cost=took,
        stages=tuple(stage_text(stage) for stage in manifest["stages"]),
        shards=tuple(_shards(manifest)),
    )


def _subtitle(manifest: Mapping[str, Any]) -> str:
    recipe = manifest.get("recipe") or {}
    given = recipe.get("options", {}).items()
    options = ", ".join(f"{one_line(key, 40)} = {one_line(str(option), 60)}" for key, option in given)
    name = f"Recipe {one_line(str(recipe['name']), 60)}" if recipe.get("name") else "A recipe without a name"
    return f"{name}{': ' + options if options else ''}"


def _headlines(whole: Fate, took: Cost | None) -> list[Headline]:
    read, kept = whole.read, whole.kept
    found = [
        Headline(
            label="Documents kept",
            number=short(kept.documents),
            note=f"of {count(read.documents)}, {share(kept.documents, read.documents)}",
        ),
        Headline(
            label="Text kept",
            number=size(kept.num_bytes),
            note=f"of {size(read.num_bytes)}, {share(kept.num_bytes, read.num_bytes)}",
        ),
    ]
    if whole.kept_tokens is not None:
        a_token = f"{kept.num_bytes / whole.kept_tokens:.2f} bytes of text a token" if whole.kept_tokens else ""
        found.append(Headline(label="Tokens", number=short(whole.kept_tokens), note=a_token))
    for label, amount in (("Filtered out", whole.filtered), ("Duplicates", whole.duplicates)):
        note = f"{share(amount.documents, read.documents)} of documents, {size(amount.num_bytes)}"
        found.append(Headline(label=label, number=short(amount.documents), note=note))
    if took is not None:
        runs = "one run" if took.runs == 1 else f"{took.runs} runs"
        hours = f"{took.cpu_s / 3600:.2g}" if took.cpu_s < 3600 else short(took.cpu_s / 3600)
        found.append(
            Headline(
                label="CPU-hours",
                number=hours,
                note=f"{duration(took.cpu_s)}; {duration(took.wall_s)} on the clock, {runs}",
            )
        )
        if took.wall_s > 0:
            rate = read.num_bytes / 1e6 / took.wall_s
            found.append(Headline(label="MB/s", number=f"{rate:.3g}", note="text read, over the whole lane"))
    return found


def _cut_reasons(found: list[tuple[str, Amount]]) -> list[tuple[str, Amount]]:
    """The reasons that removed most, in their order; the rest as one."""
    if len(found) <= MAX_REASONS:
        return found
    by_size = sorted(found, key=lambda entry: -entry[1].documents)
    small = {reason for reason, _ in by_size[MAX_REASONS - 1 :]}
    rest = sum((amount for reason, amount in found if reason in small), Amount())
    shown = [(reason, amount) for reason, amount in found if reason not in small]
    place = len(shown) - (1 if shown and shown[-1][0] == "duplicates" else 0)
    return [*shown[:place], (f"{len(small)} other rules", rest), *shown[place:]]


def _cut_overlap(counts: Mapping[tuple[str, str], int]) -> tuple[dict[tuple[str, str], int], tuple[str, ...]]:
    """The sources that take part in most removals; the rest as one."""
    weight: dict[str, int] = {}
    for pair, number in counts.items():
        for source in set(pair):
            weight[source] = weight.get(source, 0) + number
    names = sorted(weight, key=lambda name: (-weight[name], name))
    if len(names) > MAX_OVERLAP_SOURCES:
        names = [*names[: MAX_OVERLAP_SOURCES - 1], OTHERS]
    cut: dict[tuple[str, str], int] = {}
    for (removed, kept), number in counts.items():
        pair = (removed if removed in names else OTHERS, kept if kept in names else OTHERS)
        cut[pair] = cut.get(pair, 0) + number
    return cut, tuple(names)


def _rules(finished: Finished) -> list[Rule]:
    measured = distributions(finished)
    if len(measured) > MAX_RULES:
        most = {entry.rule for entry in sorted(measured, key=lambda entry: -entry.dropped)[:MAX_RULES]}
        measured = [entry for entry in measured if entry.rule in most]
    return [_rule(finished, entry) for entry in measured]


def _rule(finished: Finished, entry: Distribution) -> Rule:
    bounds = entry.bounds
    facts = [
        ("passes", passes(bounds.low, bounds.high)),
        ("judged", f"{count(entry.judged)} documents"),
        ("outside", f"{count(entry.below)} below, {count(entry.above)} above"),
        ("dropped here", f"{count(entry.dropped)}, {share(entry.dropped, entry.judged)}; the rest failed earlier"),
        ("values", f"{value(entry.low)} to {value(entry.high)}, median {value(entry.median)}"),
    ]
    samples = dropped_by(finished, entry.rule, finished.sources, RULE_SAMPLES) if entry.dropped else []
    return Rule(
        name=entry.rule,
        passes=passes(bounds.low, bounds.high),
        distribution=entry,
        spark=sparkline(entry),
        dropped=count(entry.dropped),
        facts=tuple(facts),
        samples=tuple(samples),
    )


def _duplicates(finished: Finished) -> list[tuple[str, tuple[DuplicateSample, ...]]]:
    found = []
    for name, low, high in _SIMILARITY:
        top = high if high == 1 else high - 1e-9
        samples = duplicates(finished, finished.sources, DUPLICATE_SAMPLES, jaccard=(low, top))
        if samples:
            found.append((name, tuple(samples)))
    return found


def _mixture_note(manifest: Mapping[str, Any]) -> str:
    plan = manifest.get("mixture")
    if not plan:
        return ""
    unit = manifest["unit"]
    cap = "without a cap on repetition" if plan["max_epochs"] is None else f"at most {plan['max_epochs']:g} epochs each"
    note = f"{count(plan['use_tokens'])} of {count(plan['budget_tokens'])} {unit} wanted, {cap}."
    if plan["unreachable_tokens"]:
        note += (
            f" {count(plan['unreachable_tokens'])} {unit} cannot be reached, for every source is at its cap: find more "
            "data, raise the cap, or train on less."
        )
    return note


def _shards(manifest: Mapping[str, Any]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, shards in manifest["shards"].items():
        summed = {
            key: sum(shard.get(key) or 0 for shard in shards)
            for key in ("rows", "documents", "tokens", "padding_tokens", "num_bytes")
        }
        found.append(
            (
                one_line(name, 60),
                count(len(shards)),
                count(summed["rows"]),
                count(summed["documents"]),
                count(summed["tokens"]) if summed["tokens"] else "–",
                share(summed["padding_tokens"], summed["tokens"] + summed["padding_tokens"]),
                size(summed["num_bytes"]),
            )
        )
    return found
