"""Filters: measure a batch, then judge each row. One definition a module, found through the registry."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from dataeff.arrow import F64

if TYPE_CHECKING:
    from dataeff.segments import Segments

Signals: TypeAlias = dict[str, F64]
"""Named measurements, one float a row, shape (rows,) each."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Values that pass, both ends included; a NaN passes."""

    low: float = -math.inf
    high: float = math.inf


class Filter(Protocol):
    """What a module in this folder provides, as a frozen keyword-only dataclass named after its file.

    A field that changes what `measure` returns, rather than which values pass, is named in the class
    variable `measured_by` (a tuple of field names, empty where all fields are thresholds): changing any other
    field re-judges from stored signals without reading text.
    """

    def measure(self, segments: Segments) -> Signals:
        """Signals of every row, in the order of the rules."""

    def bounds(self) -> dict[str, Bounds]:
        """Values that pass, by signal, in the order of the rules: the first that fails is the verdict."""


def __getattr__(name: str) -> Any:
    from dataeff.registry import by_class_name

    found = by_class_name("filters", name) if name[:1].isupper() else None
    if found is None:
        raise AttributeError(f"module 'dataeff.filters' has no attribute {name!r}")
    return found
