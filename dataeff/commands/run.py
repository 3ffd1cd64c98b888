"""`dataeff run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE.py", help="A Python file with a function that returns a Pipeline.")
    ],
    out: Annotated[Path, typer.Option(help="Output directory: new, or of an earlier run, which is then gone on with.")],
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An option of the recipe; repeatable.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler, tcp://host:port, to work on.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Local worker processes; 0 works with threads in this one.")] = 0,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads a worker; one a core if not given.")] = None,
) -> None:
    """Make a corpus: read, edit, filter, deduplicate, tokenize, mix, shard, as a recipe says.

    Run the same command again after a crash or a change: what is already there and still right is not redone.
    """
    from dataeff.commands.progress import ProgressBar
    from dataeff.engine import Engine
    from dataeff.pipeline import Pipeline
    from dataeff.pipeline import run as run_pipeline
    from dataeff.recipes import load
    from dataeff.reports.funnel import print_summary
    from dataeff.reports.page import write_report
    from dataeff.stages.tasks import Context

    loaded = load(recipe, Pipeline)
    pipeline, values = loaded.make(options or [])
    out = out.resolve()
    with Engine(scheduler, workers=workers, threads=threads) as engine, ProgressBar() as progress:
        context = Context(out=out, engine=engine, observer=progress, seed=pipeline.seed)
        run_pipeline(
            pipeline, context, {"name": loaded.name, "options": {key: str(value) for key, value in values.items()}}
        )
        report = write_report(out)
    print_summary(out)
    typer.echo(f"Report: {report}")
