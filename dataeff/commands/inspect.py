"""`dataeff inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def inspect(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Output directory of `dataeff run`.")],
    rules: Annotated[
        list[str] | None,
        typer.Option(
            "--rule", metavar="RULE", help="Show documents that this rule (filter.signal) dropped; repeatable."
        ),
    ] = None,
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="Show removed duplicates, each with the kept document that decided.")
    ] = False,
    rejected: Annotated[bool, typer.Option("--rejected", help="Show rows and files that could not be read.")] = False,
    samples: Annotated[int, typer.Option(min=1, help="How many of each to show.")] = 5,
    source: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Only this source; a pattern such as 'web*' takes several.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed chooses other samples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show what became of every document: by source and reason, the mixture, the largest clusters, and samples.

    A sample of a rule comes with the value that decided; a duplicate with the kept document, how much the two share,
    and where they differ.
    """
    from dataeff.reports.inspection import Question, inspection_json, print_inspection

    question = Question(
        rules=tuple(rules or ()),
        duplicates=duplicates,
        rejected=rejected,
        samples=samples,
        source=source,
        seed=seed,
    )
    if as_json:
        typer.echo(inspection_json(directory, question))
    else:
        print_inspection(directory, question)
