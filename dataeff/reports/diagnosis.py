"""What `dataeff diagnose` shows: the verdict, where the time went, what to change; as text, JSON, or one web page."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dataeff.prices import Price, find_price, price_of, stated
from dataeff.profile.diagnosis import Diagnosis, diagnose
from dataeff.reports.diagnosis_page import write_page
from dataeff.reports.diagnosis_words import LABELS, dollars, facts, milliseconds, percent
from dataeff.reports.funnel import terminal
from dataeff.reports.trace import write_trace
from dataeff.reports.visible import one_line
from dataeff.steps import RunRecord, read_run


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A run to diagnose, and what to make of it."""

    run: Path
    headroom: Path | None = None
    html: Path | None = None
    trace: Path | None = None
    usd_per_hour: float | None = None
    accelerator: str | None = None
    cores: float | None = None
    loop_processor_share: float = 1.0
    peak_flops_per_s: float | None = None
    as_json: bool = False


def report(request: Request) -> None:
    """Diagnose a run and print or write what is asked.

    Raises:
        InputError: There is no run, or nothing in it.
        FormatError: The record is damaged.
        MeasurementError: There are too few steps.
        PlanError: The accelerator has no known price.
    """
    record = read_run(request.run)
    found = diagnose(
        record,
        headroom=read_run(request.headroom) if request.headroom else None,
        price=_price(request, record),
        cores=request.cores,
        loop_processor_share=request.loop_processor_share,
    )
    written: list[tuple[str, Path]] = []
    if request.html:
        written.append(("Report", write_page(found, record, request.html, request.peak_flops_per_s)))
    if request.trace:
        written.append(("Trace", write_trace(record, request.trace)))
    console = terminal()
    if request.as_json:
        print(as_json(found))
        return
    print_diagnosis(console, found, request.peak_flops_per_s)
    for name, path in written:
        console.print(f"{name}: {path}", soft_wrap=True)


def _price(request: Request, record: RunRecord) -> Price | None:
    """What the user says, else what the table has for the device."""
    if request.usd_per_hour is not None:
        return stated(request.usd_per_hour)
    if request.accelerator is not None:
        return price_of(request.accelerator)
    return find_price(record.info.device)


def as_json(found: Diagnosis) -> str:
    """The diagnosis as one JSON object; times in seconds, shares in [0, 1]. The replayed times are left out."""
    shown: dict[str, Any] = dataclasses.asdict(found)
    del shown["stalls"]["charged"]
    if found.model is not None:
        del shown["model"]["workload"]
        shown["model"]["error_share"] = found.model.error_share
    return json.dumps(shown, indent=1, allow_nan=False)


def print_diagnosis(console: Console, found: Diagnosis, peak_flops_per_s: float | None = None) -> None:
    """Print it as a person reads it: answer first."""
    info, stalls = found.info, found.stalls
    console.print(Text(found.verdict, "bold"))
    clock = "the device's own clock" if info.clock == "cuda" else "the loop's clock, not the device's"
    console.print(
        Text(
            f"{stalls.num_steps} steady steps of {one_line(info.run, 60)} on {info.world} x "
            f"{one_line(info.device, 60)}, by {clock}",
            "dim",
        )
    )
    console.print()
    console.print(_where(found))
    console.print()
    if found.recommendations:
        console.print(Text("What to change, with the step time that it would give", "bold"))
        for number, advised in enumerate(found.recommendations, 1):
            line = Text.assemble((f"{number}. {advised.advice}", "bold"), f": {100 * advised.gain_share.value:.1f} %")
            line.append(f" less, {milliseconds(advised.prediction.step_s)}")
            if advised.usd_per_day is not None:
                line.append(f", worth {dollars(advised.usd_per_day)} a day", "green")
            console.print(line)
            console.print(Text(f"   {advised.evidence}", "dim"))
        console.print()
    for fact in facts(found, peak_flops_per_s):
        console.print(Text(fact, "dim"))
    for note in found.notes:
        console.print(Text(f"note: {note}", "yellow"))


def _where(found: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("the device waited for")
    table.add_column("share of step time, 95 %", justify="right")
    table.add_column("ms a step", justify="right")
    for cause, share in found.stalls.causes.items():
        if share.value > 0:
            table.add_row(LABELS[cause], percent(share), f"{1e3 * share.value * found.stalls.step_s.value:,.3g}")
    whole = found.stalls.share
    table.add_row("all", percent(whole), f"{1e3 * whole.value * found.stalls.step_s.value:,.3g}", style="bold")
    return table
