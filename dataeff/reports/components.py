"""What the open sets hold, as a table."""

from __future__ import annotations

import dataclasses
import difflib

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dataeff import registry
from dataeff.errors import PlanError


def print_components(kind: str | None) -> None:
    """Print members of one kind, or of all: name, one-line meaning, options with defaults.

    Raises:
        PlanError: There is no such kind.
    """
    if kind is not None and kind not in registry.KINDS:
        nearest = difflib.get_close_matches(kind, registry.KINDS, n=1, cutoff=0.3)
        hint = f" (did you mean {nearest[0]}?)" if nearest else ""
        raise PlanError(f"{kind!r} is not a kind of component{hint}; there are {', '.join(registry.KINDS)}")
    console = Console(highlight=False)
    for each in [kind] if kind else registry.KINDS:
        table = Table(title=each, title_justify="left", title_style="bold", box=None, show_header=False, pad_edge=False)
        table.add_column(no_wrap=True, style="cyan")
        table.add_column()
        for name in registry.names(each):
            cls = registry.member(each, name)
            options = ", ".join(_option(key, value) for key, value in registry.defaults(cls).items())
            table.add_row(name, escape(registry.meaning(cls)) + (f"\n[dim]{escape(options)}[/dim]" if options else ""))
        console.print(table)
        console.print()


def _option(name: str, default: object) -> str:
    if default is dataclasses.MISSING:
        return f"{name} (required)"
    text = repr(default)
    return f"{name}={text if len(text) <= 60 else text[:57] + '...'}"
