"""What all benchmarks share: figures with targets, interleaved medians, hardware, dated results."""

from __future__ import annotations

import datetime
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).resolve().parent / "results"
_OURS = ("numpy", "numba", "pyarrow", "dask", "distributed", "tokenizers")


class BenchmarkError(Exception):
    """A benchmark cannot be run as asked: something it needs is absent, or parity fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the target, if there is one, is met."""
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    @property
    def target(self) -> str:
        """The target as text."""
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return "" if self.at_most is None else f"at most {self.at_most:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a benchmark found."""

    name: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the peers."""
    details: Mapping[str, Any] = field(default_factory=dict)


def timings(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contestant in rounds in which every one runs once, the order turning each round."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds[name].append(contestants[name]())
    return seconds


def medians(contestants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median seconds of each contestant; see `timings`."""
    return {name: statistics.median(found) for name, found in timings(contestants, rounds).items()}


def hardware() -> dict[str, Any]:
    """The machine without its name, and the load of it over the last minute, ours included."""
    model = platform.processor() or "unknown"
    info = Path("/proc/cpuinfo")
    if info.is_file():
        found = {
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        }
        model = ", ".join(sorted(found)) or model
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


@functools.cache
def commit() -> str:
    """Short hash of the code at the first call, with `+` where files differ from it; `unknown` outside a checkout."""
    command = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def show(report: Report, console: Console) -> None:
    """Print a report as a table."""
    table = Table(title=f"{report.name}", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in ("figure", "value", "unit", "target", "", "note"):
        table.add_column(column, justify="right" if column == "value" else "left")
    for figure in report.figures:
        mark = "" if not figure.target else ("[green]ok[/]" if figure.holds else "[red]below[/]")
        table.add_row(figure.name, f"{figure.value:,.4g}", figure.unit, figure.target, mark, figure.note)
    console.print(table)
    for note in report.notes:
        console.print(f"  {note}", style="dim", highlight=False)
    if report.versions:
        console.print(
            "  " + ", ".join(f"{name} {number}" for name, number in sorted(report.versions.items())), style="dim"
        )


def content(report: Report) -> dict[str, Any]:
    """A report as plain data, with the hardware and our own versions."""
    figures = [{**asdict(figure), "holds": figure.holds} for figure in report.figures]
    return {
        "benchmark": report.name,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "hardware": hardware(),
        "versions": {"dataeff": version("dataeff"), **{name: version(name) for name in _OURS}, **report.versions},
        "figures": figures,
        "notes": list(report.notes),
        "details": dict(report.details),
    }


def write(report: Report) -> Path:
    """Keep a report as a dated file; a later one of the same day replaces it."""
    found = content(report)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{found['date']}-{report.name}.json"
    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return path


def say(text: str) -> None:
    """Tell on standard error what is going on."""
    print(text, file=sys.stderr, flush=True)
