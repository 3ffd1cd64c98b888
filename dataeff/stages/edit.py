"""Edit: change the text of documents, and count what was removed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataeff.arrow import F64, with_text
from dataeff.editors import Editor
from dataeff.errors import PlanError
from dataeff.registry import name_of
from dataeff.stages.sources import check_patterns, rows_of


@dataclass(frozen=True, slots=True, init=False)
class Edit:
    """Edit the text of documents, one editor after the other.

    Args:
        editors: Members of `dataeff.editors`.
        sources: Shell-style patterns of the sources to edit; None edits all.
    """

    editors: tuple[Editor, ...]
    sources: tuple[str, ...] | None

    def __init__(self, *editors: Editor, sources: tuple[str, ...] | None = None) -> None:
        object.__setattr__(self, "editors", editors)
        object.__setattr__(self, "sources", sources)
        if not editors:
            raise PlanError("Edit needs at least one editor (`dataeff list editors`)")
        for editor in editors:
            if not callable(getattr(editor, "edit", None)):
                raise PlanError(f"{editor!r} is not an editor: it must have a method `edit`")
        check_patterns("Edit", sources)


def apply(edit: Edit, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[str, F64]]:
    """The batch with its text edited, and what was removed: `editor.name` to one number a row."""
    rows = rows_of(batch.column("source"), edit.sources)
    removed: dict[str, F64] = {}
    if not rows.any():
        return batch, removed
    everything = bool(rows.all())
    text = batch.column("text")
    chosen = text if everything else text.filter(pa.array(rows))
    for editor in edit.editors:
        edited = editor.edit(chosen)
        chosen = edited.text
        for name, numbers in edited.removed.items():
            spread = np.zeros(len(rows))
            spread[rows] = numbers
            removed[f"{name_of(editor)}.{name}"] = spread
    if not everything:
        places = np.where(rows, np.cumsum(rows) - 1, len(chosen) + np.arange(len(rows)))
        chosen = pa.concat_arrays([chosen, text]).take(pa.array(places))
    return with_text(batch, chosen), removed
