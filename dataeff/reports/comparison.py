"""A comparison in the terminal: the table that decides, what it rests on, and what it means for the real run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
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
from dataeff.efficiency.dollars import Carried, Interval, RealRun, carried, central
from dataeff.efficiency.mfu import peak
from dataeff.efficiency.repetition import ScalingLaw
from dataeff.efficiency.repetition_draws import DRAWS
from dataeff.errors import MeasurementError, PlanError
from dataeff.prices import Kind, Price, age_words, price_of, stated
from dataeff.prices.skypilot import read_prices
from dataeff.reports.accounting import cost
from dataeff.reports.comparison_page import write_comparison_page
from dataeff.reports.proposal import print_proposal
from dataeff.reports.quantities import count, share
from dataeff.reports.visible import one_line

PAGE = "report.html"
_NAME_CHARACTERS = 32
_MANY_EPOCHS = 4.0
_SENSELESS_EPOCHS = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """What time costs."""

    device: Price | None = None
    cpu_usd_per_hour: float | None = None
    """Of a processor, for making corpora."""

    @classmethod
    def of(
        cls, price: str | None, prices: Path | None = None, *, spot: bool = False, cpu_price: float | None = None
    ) -> Priced:
        """From what a command was given: dollars, or an accelerator's name.

        Raises:
            PlanError: There is no such price.
        """
        if price is None:
            return cls(cpu_usd_per_hour=cpu_price)
        try:
            return cls(device=stated(float(price)), cpu_usd_per_hour=cpu_price)
        except ValueError:
            kind: Kind | None = "spot" if spot else None
            table = read_prices(prices) if prices else None
            return cls(device=price_of(price, kind=kind, table=table), cpu_usd_per_hour=cpu_price)

    def note(self, today: date) -> str:
        """Who says so, and how old that is."""
        if self.device is None:
            return "no price was given: --price NAME or dollars for an hour of one device"
        return " ".join(filter(None, [f"price: {self.device}.", age_words(self.device, today)]))


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
        cells.append("–" if dollars is None else _usd(dollars))
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


def _usd(dollars: float) -> str:
    return f"{dollars:,.2f}" if dollars >= 0.1 else f"{dollars:.2g}"


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
    cpu_s = {name: _cpu_s(found.out / "corpora" / name) for name in {**plan["supply"], VALIDATION: {}}}
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


def _cpu_s(corpus: Path) -> float:
    found = cost(corpus)
    return found.cpu_s if found else 0.0


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
            lines.append(f"dollars: {_usd(hours * priced.device.usd_per_hour)} = {hours:.6g} x {priced.device}")
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
class Real:
    """The run that is planned, as a command is given it."""

    parameters: float
    tokens: float
    devices: int
    accelerator: str
    mfu: float | None = None
    tokens_per_s: float | None = None
    ettr: float = 1.0
    corpus_scale: float = 1.0
    """How many times larger the real corpus is than the one that was compared."""

    def run(self) -> RealRun:
        """The run, its device's peak looked up."""
        return RealRun(
            parameters=self.parameters,
            tokens=self.tokens,
            devices=self.devices,
            peak=peak(self.accelerator) if self.tokens_per_s is None else None,
            mfu=self.mfu,
            tokens_per_s=self.tokens_per_s,
            ettr=self.ettr,
        )


def print_cost(out: Path, real: Real, priced: Priced, console: Console | None = None) -> dict[str, Carried]:
    """Print what each candidate means for the real run; all but the ratio is marked as extrapolated.

    Raises:
        StorageError: There is no comparison.
        MeasurementError: It has no ratio yet.
    """
    console = console or Console(highlight=False)
    found, kept = _costs(out, real, priced)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in (
        "candidate",
        "tokens, measured ratio",
        "tokens ~",
        "device-hours ~",
        "$ ~",
        "saving, $ ~",
        "loss at equal tokens ~",
    ):
        table.add_column(name, justify="left" if name == "candidate" else "right")
    base = kept[found.baseline.candidate]
    for name, entry in kept.items():
        if entry.ratio.value is None:
            continue
        table.add_row(
            one_line(name, _NAME_CHARACTERS),
            "1" if name == found.baseline.candidate else _range(entry.ratio, "{:.3f}"),
            _range(entry.tokens, "{:.4g}"),
            _range(entry.device_hours, "{:,.0f}"),
            _range(entry.usd, "{:,.0f}"),
            "" if name == found.baseline.candidate else _range(_less(base.usd, entry.usd), "{:,.0f}"),
            "" if name == found.baseline.candidate else _range(entry.loss_change, "{:+.4f}"),
        )
    console.print(table)
    console.print()
    for line in _marks(found, real, base):
        console.print(line, soft_wrap=True)
    most = max(base.epochs.values())
    if most > _SENSELESS_EPOCHS:
        console.print(
            f"The baseline would repeat a source {most:,.0f} times: if the real corpus is larger than the one "
            "compared, say how many times with --corpus-scale.",
            style="bold",
            soft_wrap=True,
        )
    for line in (*base.steps, priced.note(datetime.now(UTC).date())):
        console.print(f"[dim]{line}[/]", soft_wrap=True)
    searched = usd(found.device_hours, priced.device)
    if searched is not None:
        console.print(f"[dim]the comparison itself: {found.device_hours:.3g} device-hours, ${_usd(searched)}[/]")
    return kept


def explain_cost(out: Path, candidate: str, real: Real, priced: Priced, console: Console | None = None) -> None:
    """Print how each figure of a candidate came about, and how unsure the ratio and the law each make it.

    Raises:
        PlanError: There is no such candidate, or it has no ratio to carry over.
        StorageError: There is no comparison.
        MeasurementError: It has no ratio yet.
    """
    console = console or Console(highlight=False)
    found, kept = _costs(out, real, priced)
    entry = kept.get(candidate)
    if entry is None or entry.ratio.value is None:
        known = ", ".join(name for name, one in kept.items() if one.ratio.value is not None)
        raise PlanError(f"{out} has no ratio of {candidate!r} to carry over; it has those of {known}")
    for line in (*_traced(found, candidate, entry), *_marks(found, real, entry)):
        console.print(line, soft_wrap=True, markup=False)


def _costs(out: Path, real: Real, priced: Priced) -> tuple[Outcome, dict[str, Carried]]:
    found = outcome(out)
    run = real.run()
    if not found.rows[0].headline:
        raise MeasurementError(f"{out} has no tokens to target yet: run `dataeff compare` to its end")
    kept = {row.candidate: _carried(found, row, run, priced, real.corpus_scale) for row in found.rows if row.headline}
    return found, kept


def _marks(found: Outcome, real: Real, entry: Carried) -> list[str]:
    """What is extrapolated, and what the intervals hold."""
    return [
        f"~ extrapolated: the ratio was measured with {count(found.plan['budget_tokens'])} tokens on small models, and "
        f"is taken to hold for {real.parameters:.3g} parameters and {count(real.tokens)} tokens; check it at one "
        "larger size before you rely on it",
        f"~ intervals of 95 %: the measured ratio's joined with the scaling law's own, of {len(DRAWS)} laws refitted "
        "to bootstrap samples of the law's runs",
        *(f"~ beyond the law's runs: {line}; no interval holds whether it is a law there" for line in entry.beyond),
    ]


def _traced(found: Outcome, candidate: str, entry: Carried) -> Iterator[str]:
    yield (
        f"{candidate}: {_range(entry.ratio, '{:.4f}')} times {found.baseline.candidate}'s tokens to the same loss, "
        f"measured (dataeff compare --out {found.out} --explain {candidate!r} has the runs)"
    )
    law = ScalingLaw()
    for name, value, (low, high) in (
        ("R_D*", law.r_d, central(one.r_d for one in DRAWS)),
        ("alpha = beta", law.beta, central(one.beta for one in DRAWS)),
    ):
        yield f"law: {name} {value:.4g} as published, {low:.4g} to {high:.4g} in 95 % of {len(DRAWS)} refitted laws"
    for name, form, whole, parts in (
        ("tokens", "{:.4g}", entry.tokens, entry.tokens_by),
        ("loss at equal tokens, nats", "{:+.5f}", entry.loss_change, entry.loss_change_by),
    ):
        yield (
            f"~ {name}: {_range(whole, form)}; by the ratio alone {_range(parts.ratio, form)}, by the law alone "
            f"{_range(parts.law, form)}"
        )
    yield f"~ new tokens that are worth as much: {_range(entry.new_tokens, '{:.4g}')}"
    yield f"~ device-hours: {_range(entry.device_hours, '{:,.0f}')}; $ {_range(entry.usd, '{:,.0f}')}"
    yield f"~ epochs: {', '.join(f'{name} {epochs:.3g}' for name, epochs in entry.epochs.items())}"
    yield from entry.steps


def _carried(found: Outcome, row: Row, run: RealRun, priced: Priced, corpus_scale: float) -> Carried:
    plan = found.plan
    base = plan["candidates"][plan["baseline"]]
    ratio = row.headline.ratio if row.headline else None
    one = row.candidate == plan["baseline"]
    interval = Interval(value=1.0, low=1.0, high=1.0) if one else Interval(value=None)
    if ratio is not None:
        interval = Interval(value=ratio.ratio, low=ratio.low, high=ratio.high)
    hours = _cpu_s(found.out / "corpora" / row.corpus) / 3600
    return carried(
        run,
        interval,
        row.weights,
        plan["supply"][row.corpus],
        (base["weights"], plan["supply"][base["corpus"]]),
        price=priced.device,
        corpus_usd=hours * (priced.cpu_usd_per_hour or 0.0) * corpus_scale,
        corpus_scale=corpus_scale,
        repetition_matched=plan["horizon_tokens"] > plan["budget_tokens"],
    )


def _less(base: Interval, entry: Interval) -> Interval:
    """The saving; the baseline's own figure is taken as known."""

    def of(end: float | None) -> float | None:
        return None if end is None or base.value is None else base.value - end

    return Interval(value=of(entry.value), low=of(entry.high), high=of(entry.low))


def _range(interval: Interval, form: str) -> str:
    def of(end: float) -> str:
        return form.format(end).replace("inf", "∞")

    if interval.value is None:
        return "–"
    if interval.low is None or interval.high is None or interval.low == interval.high:
        return of(interval.value)
    return f"{of(interval.value)} ({of(interval.low)} to {of(interval.high)})"


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
