"""`dataeff list`."""

from __future__ import annotations

from typing import Annotated

import typer


def list_components(
    kind: Annotated[
        str | None, typer.Argument(help="readers, editors, filters, mixers, tokenizers or formats; all if not given.")
    ] = None,
) -> None:
    """Show every filter, mixer, reader, format, tokenizer and editor: what it means, and its defaults."""
    from dataeff.reports.components import print_components

    print_components(kind)
