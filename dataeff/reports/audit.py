"""What the audit of a loader's logs proves, in the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from dataeff.loader.audits import Span, audit

_SHOWN = 5


def print_audit(corpus: str, logs: Path) -> bool:
    """Print what the logs prove; whether every position was served once."""
    console = Console(highlight=False)
    found = audit(corpus, logs)
    console.print(
        f"{found.batches:,} batches of {found.ranks} ranks, positions {found.start:,} to {found.stop:,}"
        + (f", {_length(found.skipped):,} of them skipped on purpose" if found.skipped else "")
    )
    if found.torn_lines:
        console.print(f"{found.torn_lines} lines were cut off by a kill")
    for spans, what in (
        (found.missing, "were served by no rank"),
        (found.repeated, "were served more than once (after a restart: steps that were lost and done again)"),
    ):
        if spans:
            shown = ", ".join(f"{start:,} to {stop:,}" for start, stop in spans[:_SHOWN])
            more = f" and {len(spans) - _SHOWN} more ranges" if len(spans) > _SHOWN else ""
            console.print(f"[red]{_length(spans):,} positions {what}:[/] {shown}{more}")
    if found.wrong:
        what = f"{len(found.wrong)} batches held other rows than the order says:"
        console.print(f"[red]{what}[/] the first at {found.wrong[0]:,}")
    if found.holds:
        console.print("[green]every row of the order was served once[/]")
    return found.holds


def _length(spans: tuple[Span, ...]) -> int:
    return sum(stop - start for start, stop in spans)
