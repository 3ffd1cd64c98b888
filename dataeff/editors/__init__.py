"""Editors: change text, and report what they removed. One edit a module, found through the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from dataeff.filters import Signals


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """Text after an edit."""

    text: pa.Array
    """large_string, one a row; a row that lost all its text is empty, never missing."""
    removed: Signals
    """What was removed, by name, one count a row: lines by reason, bytes."""


class Editor(Protocol):
    """What a module in this folder provides, as a frozen keyword-only dataclass named after its file."""

    def edit(self, text: pa.Array) -> Edited:
        """Edit every row of a large_string array without nulls."""


def __getattr__(name: str) -> Any:
    from dataeff.registry import by_class_name

    found = by_class_name("editors", name) if name[:1].isupper() else None
    if found is None:
        raise AttributeError(f"module 'dataeff.editors' has no attribute {name!r}")
    return found
