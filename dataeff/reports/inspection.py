"""What `dataeff inspect` shows: funnel, mixture, clusters, and samples of what was refused, as text or as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from dataeff.errors import PlanError
from dataeff.reports.accounting import cost, fates, mixture
from dataeff.reports.clusters import ClusterFacts, cluster_facts
from dataeff.reports.differences import Piece
from dataeff.reports.finished import Finished, open_finished
from dataeff.reports.funnel import print_funnel, print_mixture, terminal
from dataeff.reports.quantities import count, duration, hours, passes, size, value
from dataeff.reports.samples import DuplicateSample, RejectSample, RuleSample, dropped_by, duplicates, rejected
from dataeff.reports.visible import excerpt, one_line

_EXCERPT_CHARACTERS = 400
_LARGEST = 8
_REMOVED = ("red", "[-", "-]")
_KEPT = ("green", "{+", "+}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What somebody wants to see of a corpus."""

    rules: tuple[str, ...] = ()
    """Show documents that these rules dropped."""
    duplicates: bool = False
    """Show documents that were removed as duplicates."""
    rejected: bool = False
    """Show what could not be read."""
    samples: int = 5
    """How many of each."""
    source: str | None = None
    """Only sources that match this shell-style pattern."""
    seed: int = 0
    """Another seed chooses other samples."""

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise PlanError.out_of_range(self, "samples", "1 or more")
        if self.seed < 0:
            raise PlanError.out_of_range(self, "seed", "0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    finished: Finished
    sources: tuple[str, ...]
    clusters: ClusterFacts | None
    excerpts: dict[int, str]
    dropped: dict[str, list[RuleSample]]
    duplicates: list[DuplicateSample] | None
    rejected: list[RejectSample] | None


def print_inspection(directory: Path, question: Question) -> None:
    """Print to standard output what is asked; without a request for samples also mixture and largest clusters.

    Raises:
        FormatError: The directory holds no finished corpus.
        PlanError: There is no such rule or source; the message lists what there is.
    """
    answer = _look(directory, question)
    console = terminal()
    asked = bool(question.rules or question.duplicates or question.rejected)
    print_funnel(console, answer.finished, answer.sources)
    if not asked:
        print_mixture(console, answer.finished, answer.sources)
        _print_clusters(console, answer)
        _print_cost(console, directory)
        _print_next(console, answer.finished)
    for rule, samples in answer.dropped.items():
        _print_dropped(console, rule, samples, answer.finished)
    if answer.duplicates is not None:
        _print_duplicates(console, answer.duplicates)
    if answer.rejected is not None:
        _print_rejected(console, answer.rejected)


def inspection_json(directory: Path, question: Question) -> str:
    """The same as one JSON object in ASCII; text stands in it as it is in the corpus, but cut.

    Raises:
        FormatError: The directory holds no finished corpus.
        PlanError: There is no such rule or source.
    """
    answer = _look(directory, question)
    shown: dict[str, Any] = {
        "directory": str(directory),
        "unit": answer.finished.content["unit"],
        "sources": [dataclasses.asdict(fate) for fate in fates(answer.finished.content, answer.sources)],
        "rules": {rule: dataclasses.asdict(bounds) for rule, bounds in answer.finished.bounds.items()},
        "rejected": answer.finished.content["funnel"]["rejected"],
        "edited": answer.finished.content["funnel"]["edited"],
        "mixture": [
            dataclasses.asdict(entry)
            for entry in mixture(answer.finished.content)
            if entry.source in set(answer.sources)
        ],
        "dropped_samples": {
            rule: [dataclasses.asdict(sample) for sample in samples] for rule, samples in answer.dropped.items()
        },
    }
    if answer.clusters is not None:
        shown["clusters"] = dataclasses.asdict(answer.clusters)
    if answer.duplicates is not None:
        shown["duplicate_samples"] = [dataclasses.asdict(sample) for sample in answer.duplicates]
    if answer.rejected is not None:
        shown["rejected_samples"] = [dataclasses.asdict(sample) for sample in answer.rejected]
    return json.dumps(_finite(shown), indent=1, allow_nan=False).replace("\x7f", "\\u007f")


def _look(directory: Path, question: Question) -> _Answer:
    finished = open_finished(directory)
    sources = finished.matching(question.source)
    for rule in question.rules:
        finished.rule_number(rule)
    asked = bool(question.rules or question.duplicates or question.rejected)
    clusters = None if asked else cluster_facts(directory, _LARGEST)
    return _Answer(
        finished=finished,
        sources=tuple(sources),
        clusters=clusters,
        excerpts=finished.texts([entry.survivor for entry in clusters.largest], 4096) if clusters else {},
        dropped={rule: dropped_by(finished, rule, sources, question.samples, question.seed) for rule in question.rules},
        duplicates=duplicates(finished, sources, question.samples, question.seed) if question.duplicates else None,
        rejected=rejected(finished, question.samples, question.seed) if question.rejected else None,
    )


def _print_clusters(console: Console, answer: _Answer) -> None:
    if answer.clusters is None or not answer.clusters.num_clusters:
        return
    _heading(console, f"{count(answer.clusters.num_clusters)} clusters of documents that may repeat each other")
    for cluster in answer.clusters.largest:
        names = [f"{one_line(name, 24)} {count(num)}" for name, num in cluster.sources[:3]]
        if len(cluster.sources) > 3:
            names.append(f"{len(cluster.sources) - 3} more sources")
        line = Text(f"{count(cluster.size):>8} documents, {count(cluster.kept)} kept  ({', '.join(names)})")
        line.stylize("bold", 0, 8)
        console.print(line)
        beginning = one_line(answer.excerpts[cluster.survivor], max(20, console.width - 9))
        console.print(Text(" " * 9 + beginning, "dim"), soft_wrap=True)


def _print_cost(console: Console, directory: Path) -> None:
    took = cost(directory)
    if took is None:
        return
    runs = "1 run" if took.runs == 1 else f"{took.runs} runs"
    console.print()
    console.print(Text(f"made in {runs}: {duration(took.wall_s)} on the clock, {hours(took.cpu_s)}", "dim"))


def _print_next(console: Console, finished: Finished) -> None:
    asks = ["--duplicates", "--rejected"]
    if finished.bounds:
        asks.insert(0, "--rule RULE")
    console.print(Text(f"look closer with {', '.join(asks[:-1])} or {asks[-1]}; --json for programs", "dim"))


def _print_dropped(console: Console, rule: str, samples: Sequence[RuleSample], finished: Finished) -> None:
    bounds = finished.bounds[rule]
    _heading(console, f"dropped by {one_line(rule, 80)}, which passes {passes(bounds.low, bounds.high)}")
    if not samples:
        console.print("  nothing")
    for sample in samples:
        line = Text.assemble((value(sample.value), "bold red"), "  ", one_line(sample.id, 90))
        line.append(f"  ({one_line(sample.source, 34)}, {size(sample.text_bytes)})", "dim")
        _print_item(console, line, Text(excerpt(sample.text, _EXCERPT_CHARACTERS) or "(no text)", "dim"))


def _print_duplicates(console: Console, samples: Sequence[DuplicateSample]) -> None:
    _heading(console, "removed as duplicates, each with the kept document that decided")
    if not samples:
        console.print("  nothing")
    for sample in samples:
        line = Text.assemble((f"Jaccard {sample.jaccard:.3f}", "bold red"), f", containment {sample.containment:.3f}")
        sides = [
            ("removed", sample.removed_id, sample.removed_source, sample.difference.removed, _REMOVED),
            ("kept", sample.survivor_id, sample.survivor_source, sample.difference.survivor, _KEPT),
        ]
        body = Text()
        for name, document, source, pieces, mark in sides:
            body.append(f"{name:<8}", mark[0]).append(f"{one_line(document, 90)}  ({one_line(source, 34)})\n")
            body.append_text(_marked(pieces, mark)).append("\n")
        if sample.difference.equal:
            body.append("no difference but white space\n", "dim")
        body.rstrip()
        _print_item(console, line, body)


def _print_rejected(console: Console, samples: Sequence[RejectSample]) -> None:
    _heading(console, "rows and files that could not be read")
    if not samples:
        console.print("  nothing")
    for sample in samples:
        place = "" if sample.position is None else f":{sample.position}"
        line = Text.assemble((one_line(sample.reason, 60), "bold red"), f"  {one_line(sample.file, 200)}{place}")
        _print_item(console, line, Text(excerpt(sample.detail, 200), "dim"))


def _marked(pieces: Sequence[Piece], mark: tuple[str, str, str]) -> Text:
    """What differs between marks, as `wdiff` does, so that it shows without colours too."""
    colour, opening, closing = mark
    text = Text()
    for piece in pieces:
        if len(text) > _EXCERPT_CHARACTERS:
            text.append("…", "dim")
            break
        shown = piece.text[: _EXCERPT_CHARACTERS + 1 - len(text)]
        text.append(f"{opening}{shown}{closing}" if piece.differs else shown, colour if piece.differs else "dim")
    return text


def _heading(console: Console, title: str) -> None:
    console.print()
    console.print(Text(title, "bold"))


def _print_item(console: Console, line: Text, body: Text) -> None:
    console.print()
    _print_indented(console, line, 2)
    _print_indented(console, body, 4)


def _print_indented(console: Console, text: Text, indent: int) -> None:
    """Wrapped and indented, without the padding on the right that a file does not want."""
    for line in text.wrap(console, max(20, console.width - indent), tab_size=4):
        line.rstrip()
        console.print(Text(" " * indent).append_text(line) if line else "", soft_wrap=True)


def _finite(node: Any) -> Any:
    """JSON has no infinities: an open bound is null."""
    if isinstance(node, dict):
        return {key: _finite(entry) for key, entry in node.items()}
    if isinstance(node, list | tuple):
        return [_finite(entry) for entry in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node
