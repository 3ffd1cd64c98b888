"""Duplicates in numbers: the largest clusters, their sizes, and which source repeats which."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from dataeff.arrow import U64
from dataeff.errors import FormatError

REMOVALS = "removals.parquet"
CLUSTERS = "clusters.parquet"
BATCH_ROWS = 1 << 17
_ROWS_IN_MEMORY = 1 << 23
SIZES = ((2, 2), (3, 5), (6, 10), (11, 100), (101, 1000), (1001, None))
"""Classes of cluster sizes, both ends included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Documents linked by candidate keys, directly or through others."""

    cluster: int
    """Number of its smallest document."""
    size: int
    kept: int
    """Documents of it that are in the corpus: more than one where not all are near each other."""
    sources: tuple[tuple[str, int], ...]
    """Documents by source, the most frequent first."""
    survivor: int
    """Number of the smallest document of it that was kept."""
    survivor_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What the cluster table says."""

    num_clusters: int
    by_size: tuple[tuple[str, int], ...]
    """Clusters by class of size."""
    largest: tuple[Cluster, ...]


def cluster_facts(directory: Path, num_largest: int) -> ClusterFacts:
    """Count clusters, and look at the largest, in bounded memory.

    Cluster numbers are counted in as many passes over their column as it takes for one pass to hold no more than
    a few million of them.
    """
    path = directory / CLUSTERS
    rows = num_rows(path)
    passes = max(1, -(-rows // _ROWS_IN_MEMORY))
    sizes: Counter[int] = Counter()
    largest: list[tuple[int, int]] = []
    for turn in range(passes):
        numbers, counts = _counted(path, turn, passes)
        for size, times in zip(*np.unique(counts, return_counts=True), strict=True):
            sizes[int(size)] += int(times)
        top = np.lexsort((numbers, -counts))[:num_largest]
        found = [(-int(counts[place]), int(numbers[place])) for place in top]
        largest = heapq.nsmallest(num_largest, [*largest, *found])
    return ClusterFacts(
        num_clusters=sum(sizes.values()),
        by_size=tuple((_class_name(low, high), _within(sizes, low, high)) for low, high in SIZES),
        largest=_described(path, [number for _, number in largest]),
    )


def overlap(directory: Path) -> dict[tuple[str, str], int]:
    """Documents removed, by (their source, the source of the survivor that decided)."""
    counts: Counter[tuple[str, str]] = Counter()
    for batch in batches(directory / REMOVALS, ["removed_source", "survivor_source"]):
        pairs = pa.Table.from_batches([batch]).group_by(batch.schema.names).aggregate([([], "count_all")])
        for row in pairs.to_pylist():
            counts[row["removed_source"], row["survivor_source"]] += row["count_all"]
    return dict(sorted(counts.items()))


def batches(path: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Record batches of a Parquet table of ours, a bounded number of rows at a time."""
    try:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False)
    except (OSError, pa.ArrowInvalid) as error:
        raise FormatError(f"{path} cannot be read ({error}); run the recipe again with the same --out") from error


def num_rows(path: Path) -> int:
    """Rows of a Parquet table of ours."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid) as error:
        raise FormatError(f"{path} cannot be read ({error}); run the recipe again with the same --out") from error


def _counted(path: Path, turn: int, passes: int) -> tuple[U64, npt.NDArray[np.int64]]:
    """Cluster numbers that this pass is about, and their sizes."""
    numbers: U64 = np.zeros(0, np.uint64)
    counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
    for batch in batches(path, ["cluster"]):
        mine = batch.column(0).to_numpy()
        if passes > 1:
            mine = mine[mine % np.uint64(passes) == turn]
        found, times = np.unique(mine, return_counts=True)
        numbers, places = np.unique(np.concatenate([numbers, found]), return_inverse=True)
        summed = np.zeros(len(numbers), np.int64)
        np.add.at(summed, places, np.concatenate([counts, times]))
        counts = summed
    return numbers, counts


def _described(path: Path, wanted: list[int]) -> tuple[Cluster, ...]:
    sources: dict[int, Counter[str]] = {number: Counter() for number in wanted}
    kept: Counter[int] = Counter()
    survivor: dict[int, tuple[int, str]] = {}
    chosen = pa.array(wanted, pa.uint64())
    for batch in batches(path):
        mine = batch.filter(pa.compute.is_in(batch.column("cluster"), chosen))
        for row in _rows(mine):
            sources[row["cluster"]][row["source"]] += 1
            if row["kept"]:
                kept[row["cluster"]] += 1
                own = (row["doc"], row["id"])
                survivor[row["cluster"]] = min(own, survivor.get(row["cluster"], own))
    return tuple(
        Cluster(
            cluster=number,
            size=sources[number].total(),
            kept=kept[number],
            sources=tuple(sorted(sources[number].items(), key=lambda entry: (-entry[1], entry[0]))),
            survivor=survivor[number][0],
            survivor_id=survivor[number][1],
        )
        for number in wanted
    )


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    for start in range(0, batch.num_rows, 4096):
        yield from batch.slice(start, 4096).to_pylist()


def _within(sizes: Counter[int], low: int, high: int | None) -> int:
    return sum(times for size, times in sizes.items() if low <= size and (high is None or size <= high))


def _class_name(low: int, high: int | None) -> str:
    if high is None:
        return f"{low:,} or more"
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
