"""`dataeff list`."""

from __future__ import annotations

from typing import Annotated

import typer


def list_components(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="readers, editors, filters, mixers, tokenizers, formats, screeners or surrogates; all if not given."
        ),
    ] = None,
) -> None:
    """Show every filter, mixer, reader, format, tokenizer, editor, screener and surrogate: its meaning and defaults."""
    from dataeff.reports.components import print_components

    print_components(kind)
