"""`dataeff audit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def audit(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="What was loaded: a directory or URL.")],
    logs: Annotated[Path, typer.Argument(metavar="LOGS", help="Folder that was given to Loader(audit=...).")],
) -> None:
    """Prove from the logs of all ranks that every row was served once; exit with 1 where it was not."""
    from dataeff.reports.audit import print_audit

    raise typer.Exit(0 if print_audit(corpus, logs) else 1)
