"""What `dataeff health` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from dataeff.efficiency.health import RankHealth, RunHealth
from dataeff.reports.funnel import terminal
from dataeff.reports.quantities import duration
from dataeff.reports.visible import one_line

_MAX_RANKS = 16


def print_health(runs: Sequence[RunHealth], idle: Sequence[str]) -> bool:
    """Print runs and idle processes; True where nothing is wrong."""
    console = terminal()
    for run in runs:
        console.print(Text(f"{one_line(run.run, 80)}: {_summary(run)}", "bold"))
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("rank", "state", "last step", "ago", "ms a step"):
            table.add_column(name, justify="left" if name == "state" else "right")
        for rank in _worst_first(run.ranks):
            table.add_row(*_row(rank), style="" if rank.state == "well" else "red")
        console.print(table)
        if len(run.ranks) > _MAX_RANKS:
            console.print(Text(f"and {len(run.ranks) - _MAX_RANKS} ranks more", "dim"))
        for sentence in run.sentences:
            console.print(Text(sentence, "red"))
    for sentence in idle:
        console.print(Text(sentence, "red"))
    return not idle and all(run.well for run in runs)


def _summary(run: RunHealth) -> str:
    well = sum(rank.state == "well" for rank in run.ranks)
    return f"{well} of {len(run.ranks)} ranks well"


def _worst_first(ranks: Sequence[RankHealth]) -> list[RankHealth]:
    return sorted(ranks, key=lambda rank: (rank.state == "well", rank.rank))[:_MAX_RANKS]


def _row(rank: RankHealth) -> tuple[str, ...]:
    if rank.age_s is None or rank.step_s is None:
        return (str(rank.rank), rank.state, "–", "–", "–")
    return (str(rank.rank), rank.state, f"{rank.last_step:,}", duration(rank.age_s), f"{1e3 * rank.step_s:,.4g}")
