"""Filter: measure every document once, judge as often as thresholds change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataeff.arrow import F64
from dataeff.errors import PlanError
from dataeff.filters import Bounds
from dataeff.filters import Filter as Rule
from dataeff.registry import name_of
from dataeff.segments import Segments
from dataeff.stages.sources import check_patterns, rows_of


@dataclass(frozen=True, slots=True, init=False)
class Filter:
    """Drop documents that fail a rule; the first failing rule, in order, is the verdict.

    Args:
        filters: Members of `dataeff.filters`, in the order of judgement.
        sources: Shell-style patterns of the sources to judge; None judges all. Rules for web prose destroy code
            and mathematics.
    """

    filters: tuple[Rule, ...]
    sources: tuple[str, ...] | None

    def __init__(self, *filters: Rule, sources: tuple[str, ...] | None = None) -> None:
        object.__setattr__(self, "filters", filters)
        object.__setattr__(self, "sources", sources)
        if not filters:
            raise PlanError("Filter needs at least one filter (`dataeff list filters`)")
        for rule in filters:
            if not callable(getattr(rule, "measure", None)) or not callable(getattr(rule, "bounds", None)):
                raise PlanError(f"{rule!r} is not a filter: it must have the methods `measure` and `bounds`")
        check_patterns("Filter", sources)

    def definition(self) -> list[Any]:
        """What determines the signals: the filters without their thresholds."""
        return [
            [
                name_of(rule),
                {name: getattr(rule, name) for name in getattr(type(rule), "measured_by", _all(rule))},
            ]
            for rule in self.filters
        ] + [list(self.sources or ["*"])]


def _all(rule: Any) -> tuple[str, ...]:
    return tuple(getattr(rule, "__dataclass_fields__", ()))


def signal_names(filters: tuple[Filter, ...]) -> dict[str, Bounds]:
    """Signals of all filter stages in the order of judgement, `filter.signal`, each with what passes.

    A filter that is used twice has its second set of signals under `filter#2.signal`.
    """
    return {f"{prefix}.{name}": bounds for prefix, _, rule in _rules(filters) for name, bounds in rule.bounds().items()}


def measure(stage: int, filters: tuple[Filter, ...], batch: pa.RecordBatch) -> dict[str, F64]:
    """Signals of the filter stage `filters[stage]`, shape (rows,) each; NaN where a row's source is not judged."""
    mine = filters[stage]
    rows = rows_of(batch.column("source"), mine.sources)
    measured: dict[str, F64] = {}
    segments = None
    if rows.any():
        text = batch.column("text")
        segments = Segments(text if rows.all() else text.filter(pa.array(rows)))
    for prefix, owner, rule in _rules(filters):
        if owner != stage:
            continue
        found = rule.measure(segments) if segments is not None else {}
        for name in rule.bounds():
            spread = np.full(len(rows), np.nan)
            if name in found:
                spread[rows] = found[name]
            measured[f"{prefix}.{name}"] = spread
    return measured


def judge(signals: dict[str, F64], bounds: dict[str, Bounds], num_rows: int) -> npt.NDArray[np.int16]:
    """The number of the first rule that each row fails, or -1 where it passes all. Shape (rows,)."""
    verdict = np.full(num_rows, -1, np.int16)
    for number, (name, passes) in reversed(list(enumerate(bounds.items()))):
        values = signals[name]
        verdict[(values < passes.low) | (values > passes.high)] = number
    return verdict


def _rules(filters: tuple[Filter, ...]) -> Iterator[tuple[str, int, Rule]]:
    used: dict[str, int] = {}
    for stage, entry in enumerate(filters):
        for rule in entry.filters:
            name = name_of(rule)
            used[name] = used.get(name, 0) + 1
            yield (name if used[name] == 1 else f"{name}#{used[name]}"), stage, rule
