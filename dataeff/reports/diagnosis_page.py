"""A diagnosis as one web page without scripts: the answer, some steps on a time line, stalls, what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pyarrow as pa
from markupsafe import Markup

from dataeff.manifest import committed
from dataeff.profile.diagnosis import Diagnosis
from dataeff.profile.stalls import Interval, column
from dataeff.reports.diagnosis_words import LABELS, dollars, facts, milliseconds, percent, rate
from dataeff.reports.visible import one_line, visible
from dataeff.steps import CAUSES, RunRecord

_FOLDER = Path(__file__).parent
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_SHOWN_STEPS = 12
_MAX_LANES = 8
_WIDTH = 1000.0
"""Of the time line, in its own units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A coloured piece of a lane."""

    left: float
    """In [0, `_WIDTH`]."""
    width: float
    kind: str
    """`loop`, `wait`, `worker`, or one of `steps.CAUSES`."""
    tip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The loop or a worker."""

    name: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLine:
    """Some consecutive steps of one rank."""

    title: str
    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]
    kinds: tuple[str, ...]
    """Those of the pieces, for the key."""
    hidden_workers: int
    """Workers that are not shown."""


def write_page(found: Diagnosis, record: RunRecord, path: Path, peak_flops_per_s: float | None = None) -> Path:
    """Write the page.

    Raises:
        StorageError: It cannot be written.
    """
    with committed(path) as sink:
        sink.write(page(found, record, peak_flops_per_s).encode("utf-8", "replace"))
    return path


def page(found: Diagnosis, record: RunRecord, peak_flops_per_s: float | None = None) -> str:
    """The page as HTML; equal for equal diagnoses."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=lambda printed: printed if isinstance(printed, Markup) else visible(str(printed)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(line=one_line, percent=percent, milliseconds=milliseconds, dollars=dollars)
    styles = [(_FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "diagnosis.css")]
    return environment.get_template("diagnosis.html.jinja").render(
        found=found,
        facts=facts(found, peak_flops_per_s),
        headlines=_headlines(found),
        labels=LABELS | {"loop": "the loop works", "wait": "a wait that cost nothing"},
        bars=_bars(found),
        time_line=time_line(found, record),
        width=_WIDTH,
        style="\n".join(styles),
        policy=_POLICY,
    )


def _headlines(found: Diagnosis) -> list[tuple[str, str, str]]:
    """Label, number, note."""
    stalls = found.stalls
    shown = [
        (
            "Waiting for data",
            f"{100 * stalls.share.value:.1f} %",
            f"of step time, {100 * stalls.share.low:.1f} to {100 * stalls.share.high:.1f}",
        ),
        ("Step", f"{_short_ms(stalls.step_s)} ms", f"mean of {stalls.num_steps:,} steady steps"),
    ]
    if found.ceiling_s is not None:
        shown.append(("If data cost nothing", f"{_short_ms(found.ceiling_s)} ms", "a step, by replay"))
    if stalls.tokens_per_s:
        shown.append(("Tokens", f"{rate(stalls.tokens_per_s)}/s", f"on {found.info.world} x {found.info.device}"))
    else:
        shown.append(("Samples", f"{rate(stalls.samples_per_s)}/s", f"on {found.info.world} x {found.info.device}"))
    if found.stall_usd_per_day is not None and found.price is not None:
        hour = f"{found.info.world} x ${found.price.usd_per_hour:.2f} an hour; source under Facts"
        shown.append(("Waiting costs", f"${found.stall_usd_per_day.value:,.0f} a day", hour))
    return shown


def _short_ms(time: Interval) -> str:
    return f"{1e3 * time.value:,.0f}" if time.value >= 0.1 else f"{1e3 * time.value:.3g}"


def _bars(found: Diagnosis) -> list[dict[str, Any]]:
    """Causes that cost anything, the dearest first, on one scale."""
    shown = {cause: share for cause, share in found.stalls.causes.items() if share.high > 0}
    top = max((share.high for share in shown.values()), default=0.0) or 1.0
    return [
        {
            "cause": cause,
            "share": share,
            "width": 100 * share.value / top,
            "low": 100 * share.low / top,
            "span": 100 * (share.high - share.low) / top,
            "ms": f"{1e3 * share.value * found.stalls.step_s.value:,.3g}",
        }
        for cause, share in sorted(shown.items(), key=lambda item: -item[1].value)
    ]


def time_line(found: Diagnosis, record: RunRecord) -> TimeLine | None:
    """Steps in the middle of the steady ones, whose stall is nearest to the run's; None without batches."""
    rank = found.model.rank if found.model else max(record.steps, key=lambda number: record.steps[number].num_rows)
    steps = record.steps[rank]
    chosen = _typical(steps, found.stalls.share.value)
    batches = record.batches.get(rank)
    if not chosen.num_rows or batches is None:
        return None
    begin, end = int(column(chosen, "start_ns")[0]), int(column(chosen, "stop_ns")[-1])
    scale = _WIDTH / max(end - begin, 1)

    def piece(start: float, stop: float, kind: str, tip: str) -> Piece | None:
        left, right = max(start, begin), min(stop, end)
        if right <= left:
            return None
        return Piece(left=(left - begin) * scale, width=(right - left) * scale, kind=kind, tip=tip)

    loop: list[Piece | None] = []
    for row in chosen.to_pylist():
        loop.append(piece(row["start_ns"], row["stop_ns"], "loop", f"step {row['step']}"))
    workers: dict[int, list[Piece | None]] = {}
    causes = {row["step"]: [row[f"stall_{cause}_ns"] for cause in CAUSES] for row in chosen.to_pylist()}
    for row in batches.to_pylist():
        if row["step"] in causes:
            loop.extend(_wait(row, causes[row["step"]], piece))
        if row["worker"] is not None and row["worker"] >= 0 and row["fetch_start_ns"] is not None:
            workers.setdefault(row["worker"], []).extend(_made(row, piece))
    lanes = [Lane(name="loop", pieces=_there(loop))]
    names = sorted(workers)
    lanes += [Lane(name=f"worker {number}", pieces=_there(workers[number])) for number in names[:_MAX_LANES]]
    kinds = {part.kind for lane in lanes for part in lane.pieces}
    numbers = column(chosen, "step")
    return TimeLine(
        title=f"Steps {numbers[0]:,} to {numbers[-1]:,} of rank {rank}",
        lanes=tuple(lanes),
        ticks=_ticks((end - begin) / 1e6),
        kinds=tuple(kind for kind in ("loop", *CAUSES, "wait") if kind in kinds),
        hidden_workers=max(0, len(names) - _MAX_LANES),
    )


def _typical(steps: pa.Table, share: float) -> pa.Table:
    """A window of steady steps in a row whose stall share is nearest to the run's."""
    steady = steps.filter(steps.column("steady"))
    if steady.num_rows <= _SHOWN_STEPS:
        return steady
    window = np.ones(_SHOWN_STEPS)
    spent = np.convolve(column(steady, "stop_ns") - column(steady, "start_ns"), window, "valid")
    stalled = np.convolve(column(steady, "stall_ns"), window, "valid")
    return steady.slice(int(np.abs(stalled / np.maximum(spent, 1) - share).argmin()), _SHOWN_STEPS)


def _there(pieces: Sequence[Piece | None]) -> tuple[Piece, ...]:
    return tuple(part for part in pieces if part is not None)


def _wait(row: dict[str, Any], causes: list[int], piece: Any) -> list[Piece | None]:
    """A wait of the loop, cut in proportion to the causes of its step; what cost nothing first."""
    start, stop = row["wait_start_ns"], row["wait_stop_ns"]
    loader = [0 if cause == "copy" else cost for cause, cost in zip(CAUSES, causes, strict=True)]
    length = stop - start
    stalled = min(sum(loader), length)
    told = f"batch {row['batch']}: the loop waited {length / 1e6:.3g} ms"
    found = [piece(start, stop - stalled, "wait", told)]
    at = stop - stalled
    for cause, cost in zip(CAUSES, loader, strict=True):
        part = stalled * cost / max(sum(loader), 1)
        found.append(piece(at, at + part, cause, f"{told}, {part / 1e6:.3g} ms of it for {LABELS[cause]}"))
        at += part
    return found


def _made(row: dict[str, Any], piece: Any) -> list[Piece | None]:
    """A worker's making of a batch: what it waited for storage, then what it computed, though the two alternate."""
    start, stop = row["fetch_start_ns"], row["fetch_stop_ns"]
    work = min(stop - start if row["fetch_cpu_ns"] is None else row["fetch_cpu_ns"], stop - start)
    told = f"batch {row['batch']}"
    found = [
        piece(start, stop - work, "storage", f"{told}: {(stop - start - work) / 1e6:.3g} ms for storage"),
        piece(stop - work, stop, "decode", f"{told}: {work / 1e6:.3g} ms computing samples"),
    ]
    if row["collate_start_ns"] is not None and row["collate_stop_ns"] is not None:
        took = (row["collate_stop_ns"] - row["collate_start_ns"]) / 1e6
        tip = f"{told}: {took:.3g} ms putting it together"
        found.append(piece(row["collate_start_ns"], row["collate_stop_ns"], "collate", tip))
    return found


def _ticks(span_ms: float) -> tuple[tuple[float, str], ...]:
    """Round times along the line, with their places on it."""
    step = 10.0 ** np.floor(np.log10(max(span_ms, 1e-6) / 3))
    step *= next(factor for factor in (1, 2, 5, 10) if span_ms / (step * factor) <= 6)
    times = np.arange(0, span_ms * 0.96, step)
    unit, scale = ("s", 1e-3) if span_ms >= 4000 else ("ms", 1.0)
    return tuple((float(time / span_ms * _WIDTH), f"{time * scale:g} {unit}") for time in times)
