"""`dataeff compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="[RECIPE.py]", help="A Python file with a function that returns a Comparison."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Output directory: new, or of an earlier run, which goes on.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An option of the recipe; repeatable.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Trials at a time.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads that make corpora; one a core if not given.")
    ] = None,
    price: Annotated[
        str | None, typer.Option(metavar="NAME_OR_USD", help="An accelerator, such as H100, or dollars for an hour.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A price list with the columns of a SkyPilot catalogue.")
    ] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Take spot prices.")] = False,
    cpu_price: Annotated[float | None, typer.Option(metavar="USD", help="Of a CPU-hour, for making corpora.")] = None,
    explain: Annotated[
        str | None, typer.Option(metavar="CANDIDATE", help="Show where each of its figures comes from; trains nothing.")
    ] = None,
    propose: Annotated[
        int, typer.Option(min=0, metavar="N", help="Say which N mixtures to try next, and which is predicted best.")
    ] = 0,
    export: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the tables as CSV and Parquet.")] = None,
    optuna: Annotated[
        str | None, typer.Option(metavar="STORAGE", help="Write the trials as an Optuna study, for its dashboard.")
    ] = None,
    mlflow: Annotated[str | None, typer.Option(metavar="URI", help="Write the trials to an MLflow server.")] = None,
) -> None:
    """Say which of several corpora and mixtures reaches a loss with the fewest tokens, and what that saves.

    Trains small models on each candidate, the promising ones for longer. Run the same command again after a crash:
    finished trials are kept. Without a recipe, what --out holds is shown.
    """
    from dataeff.errors import PlanError
    from dataeff.reports.comparison import Shown, explain_candidate, show
    from dataeff.reports.priced import Priced

    if out is None:
        raise PlanError("give --out DIR: where the comparison is kept, or is to be kept")
    out = out.resolve()
    priced = Priced.of(price, prices, spot=spot, cpu_price=cpu_price)
    if explain is not None:
        explain_candidate(out, explain, priced)
        return
    if recipe is not None:
        _run(recipe, options or [], out, workers, threads)
    show(out, priced, Shown(propose=propose, export=export, optuna=optuna, mlflow=mlflow))


def _run(recipe: str, options: list[str], out: Path, workers: int, threads: int | None) -> None:
    from dataeff.commands.progress import ProgressBar
    from dataeff.engine import Engine
    from dataeff.recipes import load
    from dataeff.reports.comparison import line_of, with_torch
    from dataeff.stages.tasks import Context

    with with_torch():
        from dataeff.compare.comparison import Comparison
        from dataeff.compare.drive import compare as run_comparison
    made, _ = load(recipe, Comparison).make(options)
    with Engine(threads=threads) as engine, ProgressBar() as progress:
        context = Context(out=out, engine=engine, observer=progress, seed=made.seed)
        run_comparison(made, context, workers, lambda entry: progress.say(line_of(entry)))
