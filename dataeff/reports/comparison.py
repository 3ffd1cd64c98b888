"""A comparison in the terminal: the table that decides, what it rests on, and what it means for the real run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dataeff.compare.corpora import VALIDATION
from dataeff.compare.journal import Entry
from dataeff.compare.mlflow_tracking import track_comparison
from dataeff.compare.optuna_study import export_study
from dataeff.compare.outcome import Outcome, Read, Row, device_hours_to, outcome, usd
from dataeff.compare.tables import write_tables
from dataeff.compare.trials import aggregate
from dataeff.errors import MeasurementError, PlanError
from dataeff.reports.accounting import cpu_s_of
from dataeff.reports.comparison_page import write_comparison_page
from dataeff.reports.priced import Priced, in_usd
from dataeff.reports.proposal import print_proposal
from dataeff.reports.quantities import count, share
from dataeff.reports.visible import one_line

PAGE = "report.html"
_NAME_CHARACTERS = 32
_MANY_EPOCHS = 4.0


def line_of(entry: Entry) -> str:
    """A line for one result while a comparison runs."""
    job = entry.job
    what = {"baseline": "baseline", "screen": "screening", "confirm": "fresh seed", "anneal": "annealed"}[entry.phase]
    result = f"failed: {entry.failure}" if entry.loss is None else f"loss {entry.loss:.4f}"
    return (
        f"{what:<10} {one_line(job.candidate, _NAME_CHARACTERS)}, seed {job.seed}, {count(job.tokens)} tokens: {result}"
    )


def print_comparison(out: Path, priced: Priced, console: Console | None = None) -> Outcome:
    """Print the table and what it rests on.

    Raises:
        StorageError: There is no comparison.
    """
    console = console or Console(highlight=False)
    found = outcome(out)
    if found.target is None:
        raise MeasurementError(f"{out} has no target yet: the baseline is not trained; run `dataeff compare` again")
    console.print(_headline(found, priced))
    console.print()
    console.print(_table(found, priced))
    console.print()
    for line in _foot(found, priced):
        console.print(f"[dim]{line}[/]" if line.startswith("note:") else line, soft_wrap=True)
    return found


def _headline(found: Outcome, priced: Priced) -> Text:
    """What to do, in a sentence."""
    best = next((row for row in found.rows[1:] if row.headline and row.headline.verdict == "cheaper"), None)
    if best is None:
        return Text(
            f"Keep {found.baseline.candidate}: no candidate was found to be cheaper at this budget.", style="bold"
        )
    read = best.headline
    assert read is not None
    assert read.ratio is not None
    saving = _saving(read)
    return Text(
        f"Train on {best.candidate}: {saving} fewer tokens than {found.baseline.candidate} to the same loss"
        f"{'' if read.fresh else '; judged by the seeds that it was chosen by, so run it with fresh ones'}.",
        style="bold",
    )


def _table(found: Outcome, priced: Priced) -> Table:
    kind = "annealed" if found.baseline.annealed else "constant rate"
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("candidate")
    table.add_column(f"tokens to target ({kind})", justify="right")
    table.add_column("reached", justify="right")
    table.add_column("device-hours", justify="right")
    if priced.device:
        table.add_column("$", justify="right")
    table.add_column("saving in tokens", justify="right")
    table.add_column("verdict")
    for row in found.rows:
        table.add_row(*_cells(found, row, priced), style="dim" if row.state in ("stopped", "failed") else "")
    return table


def _cells(found: Outcome, row: Row, priced: Priced) -> list[str]:
    read = row.headline
    name = one_line(row.candidate, _NAME_CHARACTERS)
    if read is None:
        blanks = [""] * (3 + bool(priced.device))
        failed = f"failed: {row.num_failed} of its runs diverged" if row.num_failed else ""
        return [name, "–", *blanks, _stopped(row) if row.state == "stopped" else failed or "not run"]
    described = read.described
    hours = device_hours_to(described.mean_tokens, found)
    marked = "*" if row.annealed is None and found.baseline.annealed else ""
    cells = [
        name,
        _tokens(read) + marked,
        f"{described.num_reached} of {described.num_runs}",
        "–" if hours is None else f"{hours:.3g}",
    ]
    if priced.device:
        dollars = usd(hours, priced.device)
        cells.append("–" if dollars is None else in_usd(dollars))
    verdict = read.verdict
    if row.state == "stopped":
        verdict = _stopped(row)
    if row.num_failed:
        verdict += f"; {row.num_failed} runs failed"
    return [*cells, _saving(read) if read.ratio else "", verdict]


def _stopped(row: Row) -> str:
    """Why a candidate was trained no further."""
    return f"stopped: {row.why}"


def _tokens(read: Read) -> str:
    described = read.described
    if described.mean_tokens is None:
        return f">{count(described.low_tokens)}" if described.low_tokens else "–"
    if described.low_tokens is None or described.high_tokens is None:
        return count(described.mean_tokens)
    high = "∞" if math.isinf(described.high_tokens) else count(described.high_tokens)
    return f"{count(described.mean_tokens)} ({count(described.low_tokens)} to {high})"


def _saving(read: Read) -> str:
    """In per cent of the baseline's tokens."""
    ratio = read.ratio
    assert ratio is not None
    if ratio.ratio is None:
        if ratio.low is not None and ratio.high is not None and math.isinf(ratio.high):
            return f"at most {100 * (1 - ratio.low):.1f} %"
        return "–"
    if ratio.low is None or ratio.high is None:
        return f"{100 * (1 - ratio.ratio):.1f} %"
    return f"{100 * (1 - ratio.ratio):.1f} % ({100 * (1 - ratio.high):.1f} to {100 * (1 - ratio.low):.1f})"


def _foot(found: Outcome, priced: Priced) -> list[str]:
    target = found.annealed_target if found.baseline.annealed else found.target
    assert target is not None
    plan = found.plan
    lines = [f"target: {target['loss']:.4f} nats a token on held-out text ({target['rule']})"]
    if found.grid_device_hours:
        lines.append(
            f"search: {found.device_hours:.3g} device-hours in {len(found.trials)} runs; screening trained "
            f"{100 * found.screening_share:.0f} % of what every candidate with every seed would take"
        )
    if found.tokens_per_s:
        lines.append(f"speed: {found.tokens_per_s:,.0f} tokens/s a device, median of runs, waits for data included")
    cpu_s = {name: cpu_s_of(found.out / "corpora" / name) for name in {**plan["supply"], VALIDATION: {}}}
    lines.append(
        "corpora: "
        + ", ".join(f"{name} {seconds / 3600:.3g} CPU-hours" for name, seconds in cpu_s.items())
        + (f" (${sum(cpu_s.values()) / 3600 * priced.cpu_usd_per_hour:.2g})" if priced.cpu_usd_per_hour else "")
    )
    lines.append(priced.note(datetime.now(UTC).date()))
    if found.baseline.annealed:
        lines.append(
            "note: * at a constant rate, against another target than the annealed runs of the finalists: not to be "
            "compared with those"
        )
    lines += [f"note: {line}" for line in _warnings(found)]
    return lines


def _warnings(found: Outcome) -> list[str]:
    """What the reader should know before believing it."""
    lines = []
    for row in found.rows:
        many = {name: epochs for name, epochs in row.epochs.items() if epochs > _MANY_EPOCHS}
        if many and row.headline and row.state != "stopped":
            worst = max(many, key=lambda name: many[name])
            lines.append(
                f"{row.candidate} repeats {worst} {many[worst]:.1f} times in {count(found.plan['horizon_tokens'])} "
                "tokens; beyond 4 times a repetition is worth less and less"
            )
    for name, entry in found.plan["overlap"].items():
        lost = 1 - entry["left"] / entry["tokens"]
        if lost > 0.1 and name in found.plan["domains"]:
            lines.append(
                f"{share(lost, 1)} of {name}'s validation text also stands in a candidate's corpus, and does not count"
            )
    return lines


def explain_candidate(out: Path, candidate: str, priced: Priced, console: Console | None = None) -> None:
    """Print where each figure of a candidate comes from, down to the files.

    Raises:
        PlanError: There is no such candidate.
    """
    console = console or Console(highlight=False)
    found = outcome(out)
    row = next((row for row in found.rows if row.candidate == candidate), None)
    if row is None:
        known = ", ".join(found.plan["candidates"])
        raise PlanError(f"{out} compares no {candidate!r}; its candidates are {known}")
    for line in _explained(found, row, priced):
        console.print(line, soft_wrap=True, markup=False)


def _explained(found: Outcome, row: Row, priced: Priced) -> list[str]:
    plan = found.plan
    weights = ", ".join(
        f"{name} {100 * weight:.1f} % ({row.epochs[name]:.2f} epochs)" for name, weight in row.weights.items()
    )
    lines = [
        f"{row.candidate}: corpus {row.corpus}; {weights}",
        f"  mixer: {plan['candidates'][row.candidate]['mixer']}",
        f"  epochs are those of {count(plan['horizon_tokens'])} tokens; {row.state}: {row.why}",
        f"  domains: {', '.join(f'{name} {weight:.3f}' for name, weight in plan['domains'].items())}",
    ]
    for name, read, target in (
        ("constant rate", row.constant, found.target),
        ("annealed", row.annealed, found.annealed_target),
    ):
        if read is None or target is None:
            continue
        lines.append(f"{name}: target {target['loss']:.6f} ({target['rule']})")
        for seed, crossing in zip(read.seeds, read.crossings, strict=True):
            reached = "not reached" if crossing.tokens is None else f"{crossing.tokens:,.0f} tokens"
            lines.append(f"  seed {seed}: {reached} by {crossing.method}, of {crossing.budget_tokens:,.0f} trained")
        lines.append(f"  together: {read.described.words}")
        if read.ratio is not None:
            p_value = "none" if read.p_value is None else f"{read.p_value:.4g} after Holm"
            lines.append(f"  against {plan['baseline']}: {read.ratio.words}; {read.ratio.method_words}; p {p_value}")
        lines.append(f"  verdict: {read.verdict}{' (fresh seeds)' if read.fresh else ''}")
    hours = device_hours_to(row.headline.described.mean_tokens, found) if row.headline else None
    if hours is not None and row.headline and found.tokens_per_s:
        mean = row.headline.described.mean_tokens
        lines.append(f"device-hours: {hours:.6g} = {mean:,.0f} tokens / {found.tokens_per_s:,.1f} tokens/s / 3600")
        if priced.device:
            lines.append(f"dollars: {in_usd(hours * priced.device.usd_per_hour)} = {hours:.6g} x {priced.device}")
    lines.append("runs:")
    for trial in found.trials:
        if trial.candidate == row.candidate:
            last = "no reading"
            if trial.losses:
                end = max(trial.losses)
                last = f"loss {aggregate(trial.losses[end], plan['domains']):.4f} at {end:,}"
            failed = f"; failed: {trial.failure}" if trial.failure else ""
            lines.append(
                f"  {trial.folder.relative_to(found.out)}: {last}, {trial.device_ns / 3.6e12:.4g} device-hours{failed}"
            )
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Where else a comparison is written."""

    propose: int = 0
    """Mixtures to try next."""
    export: Path | None = None
    """Folder of tables."""
    optuna: str | None = None
    """Storage of a study."""
    mlflow: str | None = None
    """Address of a tracking server."""


def show(out: Path, priced: Priced, shown: Shown, console: Console | None = None) -> None:
    """Print a comparison, write its page, and whatever else is asked for.

    Raises:
        DataeffError: See `dataeff.errors`.
    """
    console = console or Console(highlight=False)
    found = print_comparison(out, priced, console)
    if shown.propose:
        print_proposal(found, shown.propose, console)
    if shown.export is not None:
        write_tables(found, shown.export, priced.device)
        console.print(f"tables: {shown.export}", soft_wrap=True)
    if shown.optuna is not None:
        console.print(f"Optuna study: {export_study(found, shown.optuna)}", soft_wrap=True)
    if shown.mlflow is not None:
        written = track_comparison(found, shown.mlflow, out.name, priced.device)
        console.print(f"MLflow: {written} runs written")
    page = write_comparison_page(found, out / PAGE, priced.device)
    console.print(f"Report: {page}   next: dataeff compare --out {out} --explain CANDIDATE", soft_wrap=True)


@contextmanager
def with_torch() -> Iterator[None]:
    """Say what is missing where an import needs torch.

    Raises:
        PlanError: It is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise PlanError("a comparison trains models and needs torch: pip install 'dataeff[train]'") from error
