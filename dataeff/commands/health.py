"""`dataeff health`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def health(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories, of runs that should go on.")],
    late_steps: Annotated[
        float, typer.Option(min=1, help="Median steps without a sign after which a rank counts as late.")
    ] = 10.0,
) -> None:
    """Name ranks that are missing or hang, and processes that hold a device without using it; exit 1 where any is."""
    from dataeff.efficiency.health import health as health_of
    from dataeff.efficiency.health import idle
    from dataeff.reports.health import print_health

    if not print_health([health_of(run, late_steps=late_steps) for run in runs], idle()):
        raise typer.Exit(1)
