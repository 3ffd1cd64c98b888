"""`dataeff verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Output directory of `dataeff run`.")],
    threads: Annotated[int | None, typer.Option(min=1, help="Threads; one a core if not given.")] = None,
) -> None:
    """Re-check every checksum and count of a corpus, and name what is wrong; exit 1 where anything is."""
    from dataeff.engine import Engine
    from dataeff.verify import problems

    with Engine(threads=threads) as engine:
        found = problems(directory, engine)
    for problem in found:
        typer.echo(problem, err=True)
    if found:
        typer.echo(f"{len(found)} problems: run the recipe again with the same --out to mend them", err=True)
        raise typer.Exit(1)
    typer.echo(f"{directory}: every checksum and count is right")
