"""What a comparison means for the run that is planned, in the terminal: device-hours, dollars, and whence they come."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dataeff.compare.outcome import Outcome, Row, outcome, usd
from dataeff.efficiency.dollars import Carried, Interval, RealRun, carried, central
from dataeff.efficiency.mfu import peak
from dataeff.efficiency.repetition import ScalingLaw
from dataeff.efficiency.repetition_draws import DRAWS
from dataeff.errors import MeasurementError, PlanError
from dataeff.reports.accounting import cpu_s_of
from dataeff.reports.priced import Priced, in_usd
from dataeff.reports.quantities import count
from dataeff.reports.visible import one_line

_NAME_CHARACTERS = 20
_SENSELESS_EPOCHS = 100.0
_UNITS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


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
    console.print(_table(found, kept))
    console.print()
    for line in _marks(found, real, kept[found.baseline.candidate]):
        console.print(line, soft_wrap=True)
    base = kept[found.baseline.candidate]
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
        console.print(f"[dim]the comparison itself: {found.device_hours:.3g} device-hours, ${in_usd(searched)}[/]")
    return kept


def _table(found: Outcome, kept: dict[str, Carried]) -> Table:
    """A figure a cell with its interval under it; each column of large numbers in one unit."""
    known = {name: entry for name, entry in kept.items() if entry.ratio.value is not None}
    base, others = kept[found.baseline.candidate], [name for name in known if name != found.baseline.candidate]
    entries = list(known.values())
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("candidate")
    columns = [
        ("tokens, ratio", [_cell(entry.ratio, "{:.3f}") for entry in entries]),
        _large("tokens", [entry.tokens for entry in entries]),
        _large("device-hours", [entry.device_hours for entry in entries]),
        _large("$", [entry.usd for entry in entries]),
        _large("saving, $", [_less(base.usd, entry.usd) if name in others else None for name, entry in known.items()]),
        (
            "loss at equal tokens ~",
            [_cell(entry.loss_change, "{:+.4f}") if name in others else Text() for name, entry in known.items()],
        ),
    ]
    for name, _ in columns:
        table.add_column(name, justify="right")
    for name, *cells in zip(known, *(cells for _, cells in columns), strict=True):
        table.add_row(one_line(name, _NAME_CHARACTERS), *cells)
    return table


def _large(name: str, intervals: Sequence[Interval | None]) -> tuple[str, list[Text]]:
    """A column of extrapolated figures in the unit that suits the largest, which its title names."""
    given = [abs(entry.value) for entry in intervals if entry is not None and entry.value is not None]
    largest = max(given, default=0.0)
    scale, unit = next(((scale, unit) for scale, unit in _UNITS if largest >= scale), (1.0, ""))
    places = 2 if largest / scale < 10 else 1 if largest / scale < 100 else 0
    form = f"{{:,.{places}f}}"
    cells = [Text() if entry is None else _cell(entry.times(1 / scale), form) for entry in intervals]
    return f"{name}, {unit} ~" if unit else f"{name} ~", cells


def _cell(interval: Interval, form: str) -> Text:
    """A figure, and its interval on the next line."""
    value, _, rest = _range(interval, form).partition(" (")
    return Text.assemble(value, ("\n" + rest.removesuffix(")"), "dim")) if rest else Text(value)


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
    hours = cpu_s_of(found.out / "corpora" / row.corpus) / 3600
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
        return f"{'−' if end < 0 else ''}∞" if math.isinf(end) else form.format(end)

    if interval.value is None:
        return "–"
    if interval.low is None or interval.high is None or interval.low == interval.high:
        return of(interval.value)
    return f"{of(interval.value)} ({of(interval.low)} to {of(interval.high)})"
