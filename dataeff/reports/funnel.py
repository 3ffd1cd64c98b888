"""The funnel in the terminal: what was read, what left and why, what is kept, by source and by reason."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dataeff.reports.accounting import Amount, Fate, Mixed, by_reason, fates, mixture, total, with_others
from dataeff.reports.finished import Finished, open_finished
from dataeff.reports.quantities import count, share, size
from dataeff.reports.visible import one_line

NARROW_COLUMNS = 80
_MAX_SOURCES = 30
_NAME_CHARACTERS = 34


def print_summary(directory: Path) -> None:
    """Print the funnel and the mixture of a finished corpus to standard output."""
    finished = open_finished(directory)
    console = terminal()
    print_funnel(console, finished, finished.sources)
    print_mixture(console, finished, finished.sources)


def terminal() -> Console:
    """Standard output: coloured where somebody looks; plain, and at least 80 columns wide, where it is piped."""
    console = Console(highlight=False, soft_wrap=False, file=sys.stdout)
    if not console.is_terminal:
        return Console(highlight=False, file=sys.stdout, width=max(console.width, 100), color_system=None)
    return console


def print_funnel(console: Console, finished: Finished, sources: Sequence[str]) -> None:
    """By reason, then by source where there is more than one."""
    parts = fates(finished.content, sources)
    whole = total(parts)
    kept, read = whole.kept, whole.read
    tokens = f", {count(whole.kept_tokens)} tokens" if whole.kept_tokens is not None else ""
    console.print(
        Text.assemble(
            (f"{count(kept.documents)} of {count(read.documents)} documents kept", "bold"),
            f" ({share(kept.documents, read.documents)}): {size(kept.num_bytes)} of {size(read.num_bytes)}{tokens}",
        )
    )
    console.print()
    console.print(_reasons(whole, list(finished.bounds)))
    if len(parts) > 1:
        console.print()
        console.print(_by_source(with_others(parts, _MAX_SOURCES), whole, narrow=console.width < NARROW_COLUMNS))
    _print_notes(console, finished)


def print_mixture(console: Console, finished: Finished, sources: Sequence[str]) -> None:
    """Wanted and realised shares, where the recipe mixes."""
    mixed = [entry for entry in mixture(finished.content) if entry.source in set(sources)]
    if not mixed:
        return
    unit = finished.content["unit"]
    table = _table("mixture", "wanted", "realised", "epochs", unit, "")
    for entry in mixed[:_MAX_SOURCES]:
        table.add_row(*_mixed_row(entry))
    console.print()
    console.print(table)
    if len(mixed) > _MAX_SOURCES:
        console.print(f"and {len(mixed) - _MAX_SOURCES} more sources")
    plan = finished.content["mixture"]
    if plan["unreachable_tokens"]:
        cap = plan["max_epochs"]
        console.print(
            Text(
                f"{count(plan['unreachable_tokens'])} of {count(plan['budget_tokens'])} {unit} cannot be reached: "
                f"every source is at its cap of {cap:g} epochs. Find more data, raise the cap, or train on less.",
                "yellow",
            )
        )


def _reasons(whole: Fate, order: list[str]) -> Table:
    table = _table("what became of them", "documents", "share", "bytes")
    table.add_row("read", *_amounts(whole.read, whole.read), style="bold")
    for reason, amount in by_reason(whole, order):
        table.add_row(Text(f"  {one_line(reason, 60)}", overflow="fold"), *_amounts(amount, whole.read, minus=True))
    table.add_row("kept", *_amounts(whole.kept, whole.read), style="bold green")
    return table


def _by_source(parts: list[Fate], whole: Fate, *, narrow: bool) -> Table:
    tokenized = whole.kept_tokens is not None
    names = ["source", "read", *([] if narrow else ["filtered", "duplicates"]), "kept", "share", "bytes"]
    table = _table(*names, *(["tokens"] if tokenized and not narrow else []))
    for fate in [*parts, whole]:
        row = [count(fate.read.documents)]
        if not narrow:
            row += [count(fate.filtered.documents), count(fate.duplicates.documents)]
        row += [count(fate.kept.documents), share(fate.kept.documents, fate.read.documents), size(fate.kept.num_bytes)]
        if tokenized and not narrow:
            row.append(count(fate.kept_tokens or 0))
        name = Text(one_line(fate.source, _NAME_CHARACTERS), overflow="fold")
        table.add_row(name, *row, style="bold" if fate is whole else None)
    return table


def _print_notes(console: Console, finished: Finished) -> None:
    funnel = finished.content["funnel"]
    notes = []
    if rejects := sum(funnel["rejected"].values()):
        reasons = ", ".join(f"{one_line(reason, 40)} {count(num)}" for reason, num in funnel["rejected"].items())
        notes.append(f"not readable: {count(rejects)} rows or files ({reasons})")
    if changed := sum(funnel["newlines"].values()):
        notes.append(f"line ends normalised in {count(changed)} documents")
    if edits := [f"{one_line(name, 60)} {count(num)}" for name, num in funnel["edited"].items() if num]:
        notes.append(f"removed or masked inside documents: {', '.join(edits)}")
    if skipped := finished.content.get("skipped_comparisons"):
        notes.append(f"comparisons that the dedup's limits left out: {count(skipped)}")
    if notes:
        console.print()
    for note in notes:
        console.print(Text(note, "dim"))


def _mixed_row(entry: Mixed) -> list[str | Text]:
    return [
        Text(one_line(entry.source, _NAME_CHARACTERS), overflow="fold"),
        share(entry.target_share, 1),
        share(entry.realised_share, 1),
        f"{entry.epochs:.2f}",
        count(entry.used),
        "at its cap" if entry.capped else "",
    ]


def _amounts(amount: Amount, whole: Amount, *, minus: bool = False) -> list[str]:
    sign = "\N{MINUS SIGN}" if minus else ""
    return [
        f"{sign}{count(amount.documents)}",
        share(amount.documents, whole.documents),
        f"{sign}{size(amount.num_bytes)}",
    ]


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, overflow="fold", min_width=8)
    for name in others:
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    return table
