"""What the open sets hold, as a table."""

from __future__ import annotations

import dataclasses
import difflib

from rich.console import Console
from rich.markup import escape

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
        console.print(f"[bold]{each}[/bold]")
        for name in registry.names(each):
            cls = registry.member(each, name)
            console.print(f"  [cyan]{name}[/cyan]  {escape(registry.meaning(cls))}")
            options = ", ".join(_option(key, value) for key, value in registry.defaults(cls).items())
            if options:
                console.print(f"      [dim]{escape(options)}[/dim]")


def _option(name: str, default: object) -> str:
    if default is dataclasses.MISSING:
        return f"{name} (required)"
    text = repr(default)
    return f"{name}={text if len(text) <= 60 else text[:57] + '...'}"
