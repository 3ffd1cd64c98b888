"""What every reader in the registry must do, those of others included.

A reader that `MAKERS` has no entry for is held to all that needs no file of its format.
"""

import dataclasses
import gzip
import io
import itertools
import json
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from dataeff import files, registry
from dataeff.errors import InputError
from dataeff.inputs import InputFile, Rows

NAMES = registry.names("readers")
ROWS = [
    {"id": f"row-{number}", "text": f"{number}: naïve café, 漢字 \0 and more\r\n" * (number % 7), "rank": number}
    for number in range(60)
]


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=row["rank"] % 2 == 0) + "\n" for row in rows).encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=7)
    return sink.getvalue()


def arrow(rows: list[dict[str, Any]], new: Callable[..., Any], compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    table = pa.Table.from_pylist(rows)
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=7)
    return sink.getvalue()


def tar(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for row in rows:
            fields = {name: value for name, value in row.items() if name != "text"}
            for ending, content in (("json", json.dumps(fields)), ("txt", row["text"]), ("jpg", "not text")):
                member = tarfile.TarInfo(f"samples/{row['id']}.{ending}")
                member.size = len(content.encode())
                archive.addfile(member, io.BytesIO(content.encode()))
    return sink.getvalue()


MAKERS: dict[str, list[tuple[str, bytes]]] = {
    "arrow_ipc": [
        ("a.arrow", arrow(ROWS, pa.ipc.new_file)),
        ("a.feather", arrow(ROWS, pa.ipc.new_file, "lz4")),
        ("a.arrows", arrow(ROWS, pa.ipc.new_stream)),
        ("b.arrows", arrow(ROWS, pa.ipc.new_stream, "zstd")),
    ],
    "jsonl": [
        ("a.jsonl", jsonl(ROWS)),
        ("a.ndjson", jsonl(ROWS).removesuffix(b"\n").replace(b"\n", b"\r\n")),
        ("a.jsonl.gz", gzip.compress(jsonl(ROWS[:30])) + gzip.compress(jsonl(ROWS[30:]))),
        ("a.json.zst", zstandard.compress(jsonl(ROWS[:30])) + zstandard.compress(jsonl(ROWS[30:]))),
    ],
    "parquet": [("a.parquet", parquet(ROWS))],
    "plain_text": [("a.txt", ROWS[5]["text"].encode()), ("a.txt.gz", gzip.compress(ROWS[5]["text"].encode()))],
    "webdataset_tar": [("a.tar", tar(ROWS)), ("a.tar.gz", gzip.compress(tar(ROWS)))],
}
CASES = [(reader, name, content) for reader in NAMES for name, content in MAKERS.get(reader, [])]
LABELS = [f"{reader}-{name}" for reader, name, _ in CASES]
each_file = pytest.mark.parametrize(("reader", "name", "content"), CASES, ids=LABELS)
each_reader = pytest.mark.parametrize("reader", NAMES)


def found(url: object) -> tuple[InputFile, Any]:
    (file,) = files.find([str(url)])
    return file, files.reader_for(file, None)


def read(url: object, schema: pa.Schema | None = None, target: int = 1 << 25, batch: int = 1 << 22) -> list[Rows]:
    file, reader = found(url)
    wanted = files.unify({file.url: reader.schema(file)}) if schema is None else schema
    return [rows for piece in reader.split(file, target) for rows in reader.read(piece, wanted, batch)]


def read_or_named(path: Path, schema: pa.Schema) -> list[Rows] | None:
    """What is read, or None where an InputError names the file."""
    try:
        return read(path, schema)
    except InputError as error:
        if str(path) not in str(error):
            raise
        return None


def table(parts: list[Rows], schema: pa.Schema | None = None) -> pa.Table:
    return pa.Table.from_batches([rows.batch for rows in parts], schema).combine_chunks()


def rejects(parts: list[Rows]) -> list[Any]:
    return [reject for rows in parts for reject in rows.rejects]


def expected(reader: str) -> list[str]:
    return [row["text"] for row in (ROWS[5:6] if reader == "plain_text" else ROWS)]


@each_reader
def test_a_reader_is_a_frozen_definition_whose_endings_are_its_own(reader):
    cls = registry.member("readers", reader)
    assert cls.__dataclass_params__.frozen
    assert next(iter(dataclasses.fields(cls))).name == "storage_options"
    assert len(registry.meaning(cls)) > 20
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in cls.suffixes)
    others = {suffix for name in NAMES if name != reader for suffix in registry.member("readers", name).suffixes}
    assert not others & set(cls.suffixes)
    assert pickle.loads(pickle.dumps(cls())) == cls() == cls(storage_options={"token": "secret"})


@each_file
def test_all_rows_are_read_once_in_order_with_their_places(tmp_path, reader, name, content):
    (tmp_path / name).write_bytes(content)
    parts = read(tmp_path / name)
    assert table(parts).column("text").to_pylist() == expected(reader)
    assert rejects(parts) == []
    positions = np.concatenate([rows.positions for rows in parts]).tolist()
    assert positions == sorted(set(positions))
    assert all(len(rows.positions) == rows.batch.num_rows for rows in parts)


@each_file
def test_rows_and_places_do_not_depend_on_slices_or_batches(tmp_path, reader, name, content):
    (tmp_path / name).write_bytes(content)
    whole = read(tmp_path / name)
    for target, batch in itertools.product((1, 50, 1000), (1, 300)):
        parts = read(tmp_path / name, None, target, batch)
        assert table(parts).equals(table(whole))
        assert [at for rows in parts for at in rows.positions] == [at for rows in whole for at in rows.positions]


@each_file
def test_slices_are_in_order_have_a_size_and_survive_the_wire(tmp_path, reader, name, content):
    (tmp_path / name).write_bytes(content)
    file, found_reader = found(tmp_path / name)
    slices = found_reader.split(file, 1000)
    assert slices
    assert all(piece.file == file and piece.num_bytes >= 0 for piece in slices)
    assert [piece.start for piece in slices] == sorted({piece.start for piece in slices})
    assert pickle.loads(pickle.dumps(slices)) == slices


@each_file
def test_a_batch_is_no_larger_than_asked_unless_it_is_one_row(tmp_path, reader, name, content):
    (tmp_path / name).write_bytes(content)
    for rows in read(tmp_path / name, None, 1 << 25, 700):
        text_bytes = sum(len(text.encode()) for text in rows.batch.column("text").to_pylist())
        assert rows.batch.num_rows <= 1 or text_bytes <= 700


@each_file
def test_batches_have_exactly_the_schema_asked_for_and_absent_columns_are_null(tmp_path, reader, name, content):
    (tmp_path / name).write_bytes(content)
    schema = pa.schema([("absent", pa.list_(pa.int64())), ("text", pa.large_string()), ("nothing", pa.null())])
    parts = read(tmp_path / name, schema)
    assert all(rows.batch.schema == schema for rows in parts)
    made = table(parts)
    assert made.column("text").to_pylist() == expected(reader)
    assert made.column("absent").null_count == len(made)


@each_file
def test_no_column_asked_for_gives_rows_all_the_same(tmp_path, reader, name, content):
    (tmp_path / name).write_bytes(content)
    parts = read(tmp_path / name, pa.schema([]))
    assert sum(len(rows.positions) for rows in parts) == len(expected(reader))


@each_file
def test_a_remote_file_reads_like_a_local_one(tmp_path, reader, name, content):
    (tmp_path / name).write_bytes(content)
    url = f"memory://contract/{name}"
    fsspec.filesystem("memory").pipe(url, content)
    schema = pa.schema([("text", pa.large_string()), ("rank", pa.int64())])
    local, remote = read(tmp_path / name, schema), read(url, schema)
    assert table(local).equals(table(remote))
    assert [at for rows in local for at in rows.positions] == [at for rows in remote for at in rows.positions]


@each_file
def test_a_file_cut_anywhere_gives_whole_rows_and_one_reject_or_a_clear_error(tmp_path, reader, name, content):
    whole = expected(reader)
    schema = pa.schema([("text", pa.large_string())])
    for length in sorted({1, 5, 9, *range(0, len(content), max(1, len(content) // 23)), len(content) - 1}):
        (tmp_path / name).write_bytes(content[:length])
        parts = read_or_named(tmp_path / name, schema)
        if parts is None:
            continue
        texts = table(parts, schema).column("text").to_pylist()
        problems = rejects(parts)
        assert len(problems) <= 1
        if reader == "plain_text":
            assert problems or whole[0].startswith(texts[0])
            continue
        assert texts == whole[: len(texts)]
        assert problems or texts == whole or length == 0 or content[length - 1 : length] == b"\n"


@each_file
def test_flipped_bytes_never_crash_and_nothing_but_an_input_error_comes_out(tmp_path, reader, name, content):
    rng = np.random.default_rng(5)
    schema = pa.schema([("text", pa.large_string()), ("rank", pa.int64())])
    for _ in range(40):
        damaged = bytearray(content)
        for at in rng.integers(0, len(content), 3):
            damaged[at] = rng.integers(0, 256)
        (tmp_path / name).write_bytes(damaged)
        parts = read_or_named(tmp_path / name, schema)
        if parts is None:
            continue
        for rows in parts:
            rows.batch.validate(full=True)
            assert rows.batch.schema == schema
        assert all(reject.reason.replace("_", "").isalnum() and reject.detail for reject in rejects(parts))


@each_reader
@pytest.mark.parametrize(
    "content", [b"\0" * 3000, b"\xff\xfe" * 999, bytes(range(256)) * 20], ids=["nul", "bom", "all"]
)
def test_a_file_of_another_kind_is_a_clear_error_or_all_rejects(tmp_path, reader, content):
    cls = registry.member("readers", reader)
    for suffix in cls.suffixes:
        path = tmp_path / f"x{suffix}"
        path.write_bytes(content)
        schema = pa.schema([("text", pa.large_string())])
        parts = read_or_named(path, schema)
        if parts is None:
            continue
        text = table(parts, schema).column("text")
        assert all(rows.batch.num_rows == 0 for rows in parts) or text[0].as_py() == content.decode()


@each_reader
def test_a_file_that_went_away_is_named(tmp_path, reader):
    path = tmp_path / f"gone{registry.member('readers', reader).suffixes[0]}"
    path.write_bytes(b"x")
    file = files.find([str(path)])[0]
    path.unlink()
    with pytest.raises(InputError, match=f"{path.name} is not there"):
        registry.member("readers", reader)().split(file, 1000)
