from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff import exchange

keys = st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 5)), max_size=40)


@given(files=st.lists(keys, min_size=1, max_size=4), rows_per_range=st.integers(1, 50))
@settings(deadline=None)
def test_ranges_hold_every_row_once_in_order_of_key_then_file(files, rows_per_range):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        expected = []
        for number, entries in enumerate(files):
            rows = np.array([entries, range(len(entries)), [number] * len(entries)], np.uint64).reshape(3, -1)
            paths.append(Path(folder) / f"{number}.npy")
            exchange.write_rows(paths[-1], rows)
            expected += [tuple(row) for row in rows.T.tolist()]
        expected.sort(key=lambda row: (row[0], row[2], row[1]))
        spans = exchange.ranges(paths, rows_per_range)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(spans))
        found = [tuple(row) for low, high in spans for row in exchange.read_rows(paths, low, high).T.tolist()]
        assert found == expected


@given(files=st.lists(keys, min_size=1, max_size=4), num=st.integers(1, 5))
@settings(deadline=None)
def test_a_table_comes_back_in_order_of_key_whatever_the_ranges(files, num):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        expected = []
        for number, entries in enumerate(files):
            texts = [f"{number}:{place}" for place in range(len(entries))]
            paths.append(Path(folder) / f"{number}.arrow")
            exchange.write_table(
                paths[-1],
                pa.table({"key": pa.array(entries, pa.uint64()), "text": pa.array(texts, pa.large_string())}),
            )
            expected += list(zip(entries, texts, strict=True))
        expected.sort(key=lambda row: row[0])
        found = [
            (row["key"], row["text"])
            for low, high in exchange.even_ranges(num)
            for batch in exchange.read_table(paths, low, high, batch_rows=7)
            for row in batch.to_pylist()
        ]
        assert found == expected


@given(files=st.lists(keys, min_size=1, max_size=4), values_per_range=st.integers(1, 60))
@settings(deadline=None)
def test_ranges_by_size_hold_every_row_once_and_part_no_key(files, values_per_range):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, entries in enumerate(files):
            lists = pa.array([[1] * (int(key) % 7) for key in entries], pa.large_list(pa.uint64()))
            paths.append(Path(folder) / f"{number}.arrow")
            exchange.write_table(paths[-1], pa.table({"key": pa.array(entries, pa.uint64()), "values": lists}))
        spans = exchange.ranges_by_size(paths, "values", values_per_range)
        found = [exchange.read_unsorted(paths, low, high) for low, high in spans]
        got = sorted(key for table in found if table is not None for key in table.column("key").to_pylist())
        assert got == sorted(key for entries in files for key in entries)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(spans))


def test_many_rows_of_few_keys_keep_their_order(tmp_path):
    rng = np.random.default_rng(0)
    for num_keys in (1, 3, 1000):
        rows = np.stack([rng.integers(2**64 - num_keys, 2**64, 20_000, np.uint64), np.arange(20_000, dtype=np.uint64)])
        exchange.write_rows(tmp_path / "rows.npy", rows)
        expected = rows[:, np.argsort(rows[0], kind="stable")]
        assert np.array_equal(exchange.read_rows([tmp_path / "rows.npy"]), expected)
