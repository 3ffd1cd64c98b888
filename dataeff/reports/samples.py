"""Documents to look at: what a rule, the dedup, or a reader refused, each with what decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from dataeff.arrow import PART_SHIFT, U64
from dataeff.filters import Bounds
from dataeff.reports.clusters import REMOVALS, batches
from dataeff.reports.differences import MAX_CHARACTERS, Difference, difference
from dataeff.reports.finished import Finished

REJECTED = "rejected.parquet"
EXCERPT_CHARACTERS = 4000
"""Characters of a text that a sample keeps; who shows it may cut more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSample:
    """A document that a rule dropped."""

    id: str
    source: str
    rule: str
    value: float
    """The signal that decided."""
    bounds: Bounds
    text: str
    """Its beginning."""
    text_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateSample:
    """A document that was removed as a duplicate, and the kept one that decided."""

    removed_id: str
    survivor_id: str
    removed_source: str
    survivor_source: str
    jaccard: float
    containment: float
    difference: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectSample:
    """A row or a file that could not be read."""

    file: str
    position: int | None
    reason: str
    detail: str


def dropped_by(finished: Finished, rule: str, sources: Sequence[str], num: int, seed: int = 0) -> list[RuleSample]:
    """A seeded choice of the documents that failed `rule` first.

    Raises:
        PlanError: There is no such rule.
    """
    number = finished.rule_number(rule)
    bottom = _Bottom(num, seed)
    everything = set(sources) == set(finished.sources)
    for part in finished.parts:
        rows = np.flatnonzero(finished.verdict(part) == number)
        columns = part.columns().select(["id", "source", "text_bytes", rule])
        if not everything:
            rows = rows[_is_one_of(columns.column("source").take(pa.array(rows)), sources)]
        docs = (np.uint64(part.number) << np.uint64(PART_SHIFT)) + rows.astype(np.uint64)
        bottom.offer(columns, rows, docs)
    rows_found = bottom.rows()
    texts = finished.texts([doc for doc, _ in rows_found], EXCERPT_CHARACTERS)
    return [
        RuleSample(
            id=row["id"],
            source=row["source"],
            rule=rule,
            value=row[rule],
            bounds=finished.bounds[rule],
            text=texts[doc],
            text_bytes=row["text_bytes"],
        )
        for doc, row in rows_found
    ]


def duplicates(
    finished: Finished,
    sources: Sequence[str],
    num: int,
    seed: int = 0,
    jaccard: tuple[float, float] = (0.0, 1.0),
) -> list[DuplicateSample]:
    """A seeded choice of what the dedup removed from `sources`, among those with a Jaccard index in [low, high]."""
    bottom = _Bottom(num, seed)
    for batch in batches(finished.directory / REMOVALS):
        measured = batch.column("jaccard").to_numpy()
        mine = _is_one_of(batch.column("removed_source"), sources)
        mine &= (measured >= jaccard[0]) & (measured <= jaccard[1])
        rows_found = np.flatnonzero(mine)
        bottom.offer(pa.Table.from_batches([batch]), rows_found, batch.column("removed_doc").to_numpy()[rows_found])
    rows = [row for _, row in bottom.rows()]
    docs = [row[name] for row in rows for name in ("removed_doc", "survivor_doc")]
    texts = finished.texts(docs, MAX_CHARACTERS)
    shown = ("removed_id", "survivor_id", "removed_source", "survivor_source", "jaccard", "containment")
    return [
        DuplicateSample(
            **{name: row[name] for name in shown},
            difference=difference(texts[row["removed_doc"]], texts[row["survivor_doc"]]),
        )
        for row in rows
    ]


def rejected(finished: Finished, num: int, seed: int = 0) -> list[RejectSample]:
    """A seeded choice of what could not be read."""
    bottom = _Bottom(num, seed)
    place = 0
    for batch in batches(finished.directory / REJECTED):
        rows = np.arange(batch.num_rows)
        bottom.offer(pa.Table.from_batches([batch]), rows, (place + rows).astype(np.uint64))
        place += batch.num_rows
    return [RejectSample(**row) for _, row in bottom.rows()]


class _Bottom:
    """The rows with the smallest keys of all that are offered: a uniform choice that needs no second pass."""

    def __init__(self, num: int, seed: int) -> None:
        self._num, self._seed = num, seed
        self._found: list[tuple[int, int, dict[str, Any]]] = []

    def offer(self, table: pa.Table, rows: npt.NDArray[np.intp], names: U64) -> None:
        """Consider `rows` of a table; `names`, one a row, tell them apart from all other rows."""
        keys = _keys(names, self._seed)
        order = np.argsort(keys, kind="stable")[: self._num]
        taken = table.take(pa.array(rows[order])).to_pylist()
        found = [(int(keys[place]), int(names[place]), row) for place, row in zip(order.tolist(), taken, strict=True)]
        self._found = sorted([*self._found, *found], key=lambda entry: entry[:2])[: self._num]

    def rows(self) -> list[tuple[int, dict[str, Any]]]:
        """The chosen rows with their names, in the order of these."""
        return sorted(((name, row) for _, name, row in self._found), key=lambda entry: entry[0])


def _is_one_of(column: pa.Array | pa.ChunkedArray, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.asarray(pa.compute.is_in(column, pa.array(list(names), pa.string())))
    return found.copy()


def _keys(names: U64, seed: int) -> U64:
    """A hash a row: two multiply-and-shift rounds (Steele, Lea, Flood 2014, the constants of SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = names + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found: U64 = mixed ^ (mixed >> np.uint64(31))
    return found
