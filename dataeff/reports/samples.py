"""Documents to look at: what a rule, the dedup, or a reader refused, each with what decided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataeff.arrow import PART_SHIFT
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
    bottom = _Bottom(num)
    wanted = pa.array(list(sources), pa.string())
    for part in finished.parts:
        rows = np.flatnonzero(finished.verdict(part) == number)
        if not len(rows):
            continue
        columns = part.columns().select(["id", "source", "text_bytes", rule]).take(pa.array(rows))
        mine = pa.compute.is_in(columns.column("source"), wanted).to_numpy()
        docs = (np.uint64(part.number) << np.uint64(PART_SHIFT)) + rows.astype(np.uint64)
        bottom.offer(seed, columns.append_column("doc", pa.array(docs)).filter(pa.array(mine)), docs[mine])
    rows_found = bottom.rows()
    texts = finished.texts([row["doc"] for row in rows_found], EXCERPT_CHARACTERS)
    return [
        RuleSample(
            id=row["id"],
            source=row["source"],
            rule=rule,
            value=row[rule],
            bounds=finished.bounds[rule],
            text=texts[row["doc"]],
            text_bytes=row["text_bytes"],
        )
        for row in rows_found
    ]


def duplicates(
    finished: Finished,
    sources: Sequence[str],
    num: int,
    seed: int = 0,
    jaccard: tuple[float, float] = (0.0, 1.0),
) -> list[DuplicateSample]:
    """A seeded choice of what the dedup removed from `sources`, among those with a Jaccard index in [low, high]."""
    bottom = _Bottom(num)
    wanted = pa.array(list(sources), pa.string())
    for batch in batches(finished.directory / REMOVALS):
        measured = batch.column("jaccard").to_numpy()
        mine = pa.compute.is_in(batch.column("removed_source"), wanted).to_numpy(zero_copy_only=False)
        mine &= (measured >= jaccard[0]) & (measured <= jaccard[1])
        chosen = pa.Table.from_batches([batch]).filter(pa.array(mine))
        bottom.offer(seed, chosen, chosen.column("removed_doc").to_numpy())
    rows = bottom.rows()
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
    bottom = _Bottom(num)
    place = 0
    for batch in batches(finished.directory / REJECTED):
        bottom.offer(seed, pa.Table.from_batches([batch]), np.arange(place, place + batch.num_rows, dtype=np.uint64))
        place += batch.num_rows
    return [RejectSample(**row) for row in bottom.rows()]


class _Bottom:
    """The rows with the smallest keys of all that are offered: a uniform choice that needs no second pass."""

    def __init__(self, num: int) -> None:
        self._num = num
        self._found: list[tuple[int, int, dict[str, Any]]] = []

    def offer(self, seed: int, table: pa.Table, names: npt.NDArray[np.uint64]) -> None:
        """Consider rows; `names`, shape (rows,), tell them apart from all others."""
        keys = _keys(names, seed)
        order = np.argsort(keys, kind="stable")[: self._num]
        rows: Iterable[dict[str, Any]] = table.take(pa.array(order)).to_pylist()
        found = [(int(keys[place]), int(names[place]), row) for place, row in zip(order.tolist(), rows, strict=True)]
        self._found = sorted([*self._found, *found], key=lambda entry: entry[:2])[: self._num]

    def rows(self) -> list[dict[str, Any]]:
        """The chosen rows, in their order in the corpus."""
        return [row for _, _, row in sorted(self._found, key=lambda entry: entry[1])]


def _keys(names: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.uint64]:
    """A hash a row: two multiply-and-shift rounds (Steele, Lea, Flood 2014, the constants of SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = names + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found: npt.NDArray[np.uint64] = mixed ^ (mixed >> np.uint64(31))
    return found
