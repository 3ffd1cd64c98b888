"""The only all-to-all: sorted files on one side, one key range across all of them on the other.

Each producer writes one file sorted by a uint64 key; each consumer reads one range of keys from every file by
binary search. Fixed-width rows are `.npy` matrices of shape (columns, rows), the first column the key. Rows that
carry text or tokens are Arrow IPC files with a uint64 column `key`, memory-mapped. Rows with equal keys come in
the order of the files given, then in file order, so the result does not depend on who wrote when.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from dataeff.arrays import mapped_array
from dataeff.arrow import I64, U64
from dataeff.manifest import FileRecord, committed

_SAMPLES = 4096
END = 1 << 64
"""One past the largest key."""


def write_rows(path: Path, rows: U64, records: dict[str, FileRecord] | None = None) -> None:
    """Sort rows by key, stably, and commit them.

    Args:
        path: Ends in `.npy`.
        rows: Shape (columns, rows); `rows[0]` is the key.
        records: Where to note the file.
    """
    with committed(path, records) as sink:
        np.lib.format.write_array(sink, rows.take(_order(rows[0]), axis=1), allow_pickle=False)


def read_rows(paths: Sequence[Path], low: int = 0, high: int = END) -> U64:
    """Rows with `low <= key < high` of all files, sorted by key. Shape (columns, rows)."""
    pieces = []
    for path in paths:
        rows = mapped_array(path)
        start, stop = _span(rows[0], low, high)
        pieces.append(np.array(rows[:, start:stop]))
    if not pieces:
        return np.zeros((1, 0), np.uint64)
    merged = np.concatenate(pieces, axis=1)
    return merged.take(_order(merged[0]), axis=1)


def ranges(paths: Sequence[Path], rows_per_range: int) -> list[tuple[int, int]]:
    """Cut all keys into ranges of about `rows_per_range` rows; rows of one key are never parted.

    Cuts come from a sample of each file's keys, so that no file is read whole.
    """
    total = 0
    samples = []
    for path in paths:
        keys = _keys(path)
        total += len(keys)
        samples.append(np.asarray(keys[:: max(1, rows_per_range // 256)]))
    if total == 0:
        return []
    sample = np.sort(np.concatenate(samples))
    wanted = -(-total // rows_per_range)
    cuts = np.unique(sample[np.arange(1, wanted) * len(sample) // wanted])
    edges = [0, *(int(cut) for cut in cuts if cut > 0), END]
    return list(itertools.pairwise(edges))


def ranges_by_size(paths: Sequence[Path], column: str, values_per_range: int) -> list[tuple[int, int]]:
    """Cut all keys into ranges that hold about so many list values; rows of one key are never parted.

    Args:
        paths: Tables, as `write_table` leaves them.
        column: A large_list column, whose values make a row large or small.
        values_per_range: List values a range.
    """
    keys, sizes = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)]
    for path in paths:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        if table.num_rows:
            starts = np.arange(0, table.num_rows, max(1, table.num_rows // _SAMPLES))
            offsets = table.column(column).chunk(0).offsets.to_numpy()
            keys.append(table.column("key").chunk(0).to_numpy()[starts])
            sizes.append(np.diff(np.append(offsets[starts], offsets[-1])))
    every, size = np.concatenate(keys), np.concatenate(sizes)
    if not len(every):
        return []
    order = _order(every)
    full = np.cumsum(size[order]) // values_per_range
    cuts = np.unique(every[order][1:][np.diff(full) > 0])
    edges = [0, *(int(cut) for cut in cuts if cut > 0), END]
    return list(itertools.pairwise(edges))


def even_ranges(num: int, low: int = 0, high: int = END) -> list[tuple[int, int]]:
    """Cut the keys in [low, high) into `num` ranges of equal width: for keys that are hashes."""
    edges = [low + (high - low) * index // num for index in range(num + 1)]
    return list(itertools.pairwise(edges))


def write_table(path: Path, table: pa.Table, records: dict[str, FileRecord] | None = None) -> None:
    """Sort a table by its uint64 column `key`, stably, and commit it as uncompressed Arrow IPC."""
    order = _order(table.column("key").to_numpy())
    ordered = table.combine_chunks().take(pa.array(order))
    with committed(path, records) as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(ordered.combine_chunks())


def read_table(paths: Sequence[Path], low: int, high: int, batch_rows: int = 1024) -> Iterator[pa.RecordBatch]:
    """Rows with `low <= key < high` of all files, in order of key, some rows at a time.

    The rows of the range are in memory once, and those of one batch once more.
    """
    merged = read_unsorted(paths, low, high)
    if merged is None:
        return
    order = _order(merged.column("key").to_numpy())
    for start in range(0, len(order), batch_rows):
        rows = merged.take(pa.array(order[start : start + batch_rows])).combine_chunks()
        yield from rows.to_batches()


def read_unsorted(paths: Sequence[Path], low: int, high: int) -> pa.Table | None:
    """Rows with `low <= key < high` of all files, file by file, in one chunk; None where there are none."""
    pieces = []
    for path in paths:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        if table.num_rows:
            start, stop = _span(table.column("key").chunk(0).to_numpy(), low, high)
            pieces.append(table.slice(start, stop - start))
    filled = [piece for piece in pieces if piece.num_rows]
    return pa.concat_tables(filled).combine_chunks() if filled else None


def _order(keys: U64) -> I64:
    """What `np.argsort(keys, kind="stable")` gives, in half the time: by vectors NumPy sorts unstably only."""
    order = np.argsort(keys)
    ordered = keys[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    if not new.all():
        rank = np.cumsum(new) * len(keys)
        order = np.sort(rank + order) - rank
    return order


def _keys(path: Path) -> U64:
    if path.suffix == ".npy":
        first: U64 = mapped_array(path)[0]
        return first
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    keys: U64 = table.column("key").chunk(0).to_numpy() if table.num_rows else np.zeros(0, np.uint64)
    return keys


def _span(keys: U64, low: int, high: int) -> tuple[int, int]:
    start = 0 if low == 0 else int(np.searchsorted(keys, np.uint64(low)))
    stop = len(keys) if high >= END else int(np.searchsorted(keys, np.uint64(high)))
    return start, stop
