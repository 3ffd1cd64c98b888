"""Dedup: remove exact and near duplicates, each against a kept survivor that proves it.

Candidates share a key (a MinHash band, or the hash of the whole content); keys are sorted through the exchange,
buckets give edges, edges give clusters, and inside a cluster the greedy rule decides in policy order. Text is read
again only for documents that share a key, to compare their shingles exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataeff import exchange, manifest
from dataeff.arrays import mapped_array
from dataeff.arrow import I64, PART_SHIFT, U32, U64
from dataeff.dedup import components
from dataeff.dedup.minhash import MinHash
from dataeff.errors import PlanError
from dataeff.kernel import greedy
from dataeff.kernel.minhash import bands
from dataeff.manifest import FileRecord
from dataeff.stages.documents import StoredPart
from dataeff.stages.sources import check_patterns, rows_of
from dataeff.stages.tasks import Context, Outcome, Task, run_step
from dataeff.stages.verdicts import Verdicts

STEP = "dedup"
_ROWS_PER_RANGE = 1 << 21
_SHINGLES_PER_RANGE = 4 << 20
"""Shingle hashes in memory at once, a thread, but for a larger cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedup:
    """Remove duplicates of documents that passed the filters.

    The policy order is: sources named in `prefer`, first pattern first; then the higher `quality`; then the longer
    text; then the smaller document number. A document is removed if and only if a candidate that comes before it
    in that order, and is kept, is within the threshold.
    """

    minhash: MinHash | None = field(default_factory=MinHash)
    """How near-duplicates are found and judged; None removes exact duplicates only."""
    prefer: tuple[str, ...] = ()
    """Shell-style patterns of sources to keep first."""
    quality: str | None = None
    """A signal, `filter.signal`, of which more is better."""

    def __post_init__(self) -> None:
        check_patterns("Dedup", self.prefer)


def _check_quality(dedup: Dedup, store: list[StoredPart]) -> None:
    known = [name for name in store[0].columns().column_names if "." in name]
    if dedup.quality is not None and dedup.quality not in known:
        raise PlanError(
            f"Dedup(quality={dedup.quality!r}) names no signal; the filters of this recipe measure "
            f"{', '.join(known) or 'none'}"
        )


def decide(
    context: Context, dedup: Dedup, whole: str, store: list[StoredPart], verdicts: Verdicts
) -> tuple[list[Path], int]:
    """Find candidates, clusters, and what the greedy rule says of each member.

    Args:
        context: Where and with what.
        dedup: What a duplicate is.
        whole: Fingerprint of all that determines the result.
        store: The documents.
        verdicts: Only documents that passed are considered.

    Returns:
        Files of an exchange by document, rows (doc, cluster, survivor, shared, own shingles, survivor's shingles),
        a kept member being its own survivor; and the comparisons that the greedy rule's limits left out.

    Raises:
        PlanError: `quality` names no signal.
    """
    _check_quality(dedup, store)

    def step(name: str, suffix: str, work: list[tuple[str, Any]], function: Any) -> tuple[list[Path], list[Outcome]]:
        tasks = [
            Task(name=key, fingerprint=manifest.fingerprint(whole, name, key), arguments=arguments)
            for key, arguments in work
        ]
        outcomes = run_step(context, f"{STEP}/{name}", tasks, function)
        return [context.out / STEP / name / f"{task.name}{suffix}" for task in tasks], outcomes

    pairs = list(zip(store, verdicts.paths, strict=True))
    keys, _ = step("candidates", ".npy", [(part.name, (part, verdict, dedup)) for part, verdict in pairs], _write_keys)
    edges, outcomes = step("edges", ".npy", _over_ranges(keys), _write_edges)
    before: list[Any] = []
    turn = 0
    if len(whole_range := _over_ranges(edges)) == 1:
        edges, outcomes = step("components", ".npy", whole_range, _write_components)
        before = [outcome.facts for outcome in outcomes]
    while before != (before := [outcome.facts for outcome in outcomes]):
        turn += 1
        larger, _ = step(f"large-star-{turn}", ".npy", _over_ranges(edges), _write_large_star)
        edges, outcomes = step(f"small-star-{turn}", ".npy", _over_ranges(larger), _write_small_star)
    if not any(outcome.facts["edges"] for outcome in outcomes):
        return [], 0
    members, _ = step("members", ".arrow", [(part.name, (part, tuple(edges), dedup)) for part in store], _write_members)
    if dedup.minhash:
        spans = exchange.ranges_by_size(members, "shingles", _SHINGLES_PER_RANGE)
    else:
        spans = exchange.ranges(members, _ROWS_PER_RANGE)
    work = [(f"range-{low:016x}", (tuple(members), low, high, dedup)) for low, high in spans]
    decisions, outcomes = step("decisions", ".npy", work, _write_decisions)
    decisions = [path for path, outcome in zip(decisions, outcomes, strict=True) if outcome.files]
    return decisions, sum(outcome.facts["skipped"] for outcome in outcomes)


def _over_ranges(paths: list[Path]) -> list[tuple[str, Any]]:
    spans = exchange.ranges(paths, _ROWS_PER_RANGE)
    return [(f"range-{low:016x}", (tuple(paths), low, high)) for low, high in spans]


def _write_keys(folder: Path, arguments: tuple[StoredPart, Path, Dedup]) -> Outcome:
    """Rows (key, doc): a key a band, and one for the whole content, of each document that passed the filters."""
    part, verdict, dedup = arguments
    columns = part.columns()
    passed = mapped_array(verdict) < 0
    docs = (np.uint64(part.number) << np.uint64(PART_SHIFT)) + np.arange(columns.num_rows, dtype=np.uint64)
    content = columns.column("content_low").to_numpy()
    exact = passed & (content != 0)
    if dedup.minhash:
        shingled = passed & (columns.column("shingles").to_numpy() > 0)
        exact &= shingled
    keys, owners = [content[exact]], [docs[exact]]
    if dedup.minhash:
        found = bands(part.signatures()[shingled], dedup.minhash.bands, dedup.minhash.rows)
        keys.append(found.reshape(-1))
        owners.append(np.repeat(docs[shingled], found.shape[1]))
    records: dict[str, FileRecord] = {}
    exchange.write_rows(folder / f"{part.name}.npy", np.stack([np.concatenate(keys), np.concatenate(owners)]), records)
    return Outcome(files=records)


def _write_edges(folder: Path, arguments: tuple[tuple[Path, ...], int, int]) -> Outcome:
    """Edges, both ways, from each document of a bucket to the smallest of it."""
    paths, low, high = arguments
    key, doc = exchange.read_rows(paths, low, high)
    first = np.append(True, key[1:] != key[:-1]) if len(key) else np.zeros(0, bool)
    starts = np.flatnonzero(first)
    smallest = np.repeat(np.minimum.reduceat(doc, starts) if len(key) else doc, np.diff(np.append(starts, len(key))))
    linked = doc != smallest
    return _commit_edges(folder, low, components.distinct(doc[linked], smallest[linked]))


def _write_components(folder: Path, arguments: tuple[tuple[Path, ...], int, int]) -> Outcome:
    """All rounds at once, where one task sees all edges."""
    paths, low, _ = arguments
    rows = exchange.read_rows(paths)
    return _commit_edges(folder, low, components.converged(rows[:, rows[0] > rows[1]]))


def _write_large_star(folder: Path, arguments: tuple[tuple[Path, ...], int, int]) -> Outcome:
    paths, low, high = arguments
    records: dict[str, FileRecord] = {}
    exchange.write_rows(
        folder / f"range-{low:016x}.npy", components.large_star(exchange.read_rows(paths, low, high)), records
    )
    return Outcome(files=records)


def _write_small_star(folder: Path, arguments: tuple[tuple[Path, ...], int, int]) -> Outcome:
    paths, low, high = arguments
    return _commit_edges(folder, low, components.small_star(exchange.read_rows(paths, low, high)))


def _commit_edges(folder: Path, low: int, edges: U64) -> Outcome:
    """Commit edges both ways; the facts are equal where the edges are, for the test of convergence."""
    records: dict[str, FileRecord] = {}
    exchange.write_rows(folder / f"range-{low:016x}.npy", components.both_ways(edges), records)
    return Outcome(files=records, facts={"edges": edges.shape[1], "digest": manifest.fingerprint(edges.tobytes())})


def _write_members(folder: Path, arguments: tuple[StoredPart, tuple[Path, ...], Dedup]) -> Outcome:
    """The part's documents that share a key with another, by cluster, with all that decides about them."""
    part, edges, dedup = arguments
    base = part.number << PART_SHIFT
    node, neighbour = exchange.read_rows(edges, base, base + (1 << PART_SHIFT))
    docs, first = np.unique(node, return_index=True)
    cluster = np.minimum(node, neighbour)[first]
    rows = (docs - np.uint64(base)).astype(np.int64)
    names = ["source", "text_bytes", "content_low", "content_high", *filter(None, [dedup.quality])]
    columns = part.columns().select(dict.fromkeys(names)).take(pa.array(rows)).combine_chunks()
    made = {
        "key": pa.array(cluster),
        "doc": pa.array(docs),
        **{name: pa.array(values) for name, values in _policy(dedup, columns).items()},
        "content_low": columns.column("content_low"),
        "content_high": columns.column("content_high"),
    }
    if dedup.minhash:
        num_perm = dedup.minhash.num_perm
        signatures = part.signatures()[rows]
        made["signature"] = pa.FixedSizeListArray.from_arrays(pa.array(signatures.reshape(-1)), num_perm)
        made["shingles"] = _shingle_sets(part, rows, dedup.minhash)
    records: dict[str, FileRecord] = {}
    exchange.write_table(folder / f"{part.name}.arrow", pa.table(made), records)
    return Outcome(files=records, facts={"members": len(docs)})


def _policy(dedup: Dedup, columns: pa.Table) -> dict[str, npt.NDArray[Any]]:
    """Sort keys of the policy order, smaller first; the document number comes after them."""
    source = columns.column("source").combine_chunks()
    rank = np.full(columns.num_rows, len(dedup.prefer), np.int64)
    for place in reversed(range(len(dedup.prefer))):
        rank[rows_of(source, dedup.prefer[place : place + 1])] = place
    quality = np.zeros(columns.num_rows)
    if dedup.quality:
        quality = -np.nan_to_num(columns.column(dedup.quality).to_numpy(), nan=-np.inf)
    return {"rank": rank, "quality": quality, "length": -columns.column("text_bytes").to_numpy()}


def _shingle_sets(part: StoredPart, rows: I64, minhash: MinHash) -> pa.Array:
    wanted = np.zeros(sum(part.batch_rows), bool)
    wanted[rows] = True
    pieces = [np.zeros(0, np.uint64)]
    lengths = [np.zeros(0, np.int64)]
    for _, batch in part.text_batches(wanted, text_only=True):
        hashes, offsets = minhash.shingle_sets(batch.column("text"))
        pieces.append(hashes)
        lengths.append(np.diff(offsets))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    return pa.LargeListArray.from_arrays(pa.array(offsets.astype(np.int64)), pa.array(np.concatenate(pieces)))


def _write_decisions(folder: Path, arguments: tuple[tuple[Path, ...], int, int, Dedup]) -> Outcome:
    """Apply the greedy rule to the clusters of one range."""
    paths, low, high, dedup = arguments
    members = exchange.read_unsorted(paths, low, high)
    if members is None:
        return Outcome(facts={"skipped": 0})
    fields = ("doc", "length", "quality", "rank", "key")
    order = np.lexsort([members.column(name).to_numpy() for name in fields])
    cluster, doc, *content_parts = (
        members.column(name).to_numpy()[order] for name in ("key", "doc", "content_low", "content_high")
    )
    starts = np.append(np.flatnonzero(np.append(True, cluster[1:] != cluster[:-1])), len(cluster))
    content = np.stack(content_parts, axis=1)
    sets, bounds, signatures, keys = _signed(members, order, dedup.minhash)
    survivors, shared, skipped = greedy.decide(
        starts.astype(np.int64),
        content,
        _buckets(np.concatenate([content[:, :1], keys], axis=1)),
        signatures,
        sets,
        bounds,
        threshold=dedup.minhash.threshold if dedup.minhash else 1.0,
        containment=dedup.minhash is not None and dedup.minhash.measure == "containment",
    )
    own = np.arange(len(cluster))
    decided = np.where(survivors < 0, own, survivors)
    sizes = bounds[:, 1] - bounds[:, 0]
    rows = np.stack([doc, cluster, doc[decided], *(part.astype(np.uint64) for part in (shared, sizes, sizes[decided]))])
    records: dict[str, FileRecord] = {}
    exchange.write_rows(folder / f"range-{low:016x}.npy", rows, records)
    return Outcome(files=records, facts={"skipped": skipped})


def _signed(members: pa.Table, order: I64, minhash: MinHash | None) -> tuple[U64, I64, U32, U64]:
    """Shingle sets where they lie, and by `order` which are whose, signatures, and band keys."""
    if minhash is None:
        rows = len(order)
        nobody = np.zeros((rows, 0), np.uint32), np.zeros((rows, 0), np.uint64)
        return np.zeros(0, np.uint64), np.zeros((rows, 2), np.int64), *nobody
    lists = members.column("shingles").chunk(0)
    offsets: I64 = lists.offsets.to_numpy()
    bounds = np.stack([offsets[:-1], offsets[1:]], axis=1)[order]
    flat = members.column("signature").chunk(0).flatten().to_numpy()
    signatures: U32 = flat.reshape(-1, minhash.num_perm)[order]
    sets: U64 = lists.values.to_numpy()
    keys = bands(signatures, minhash.bands, minhash.rows)
    keys[bounds[:, 0] == bounds[:, 1]] = 0
    return sets, bounds, signatures, keys


def _buckets(keys: U64) -> I64:
    """Numbers of buckets from keys, a column a band: -1 where the key is 0 or nobody else has it."""
    numbers = np.full(keys.shape, -1, np.int64)
    next_number = 0
    for column in range(keys.shape[1]):
        _, inverse, counts = np.unique(keys[:, column], return_inverse=True, return_counts=True)
        shared = (counts[inverse] > 1) & (keys[:, column] != 0)
        numbers[shared, column] = next_number + inverse[shared]
        next_number += len(counts)
    return numbers
