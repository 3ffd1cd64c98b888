"""Each reader on what its format alone can do, good and bad."""

import gzip
import io
import itertools
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import webdataset
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff import columns, files, json_rows, streams
from dataeff.errors import InputError
from dataeff.inputs import Rows
from dataeff.readers import jsonl
from dataeff.readers.arrow_ipc import ArrowIpc
from dataeff.readers.parquet import Parquet
from dataeff.readers.webdataset_tar import WebdatasetTar, _samples
from tests.oracle import json_lines

TEXT = pa.schema([("text", pa.large_string())])


def read(
    path: Path, schema: pa.Schema | None = None, target: int = 1 << 25, batch: int = 1 << 22
) -> tuple[list[dict[str, Any]], list[int], list[tuple[int, str]]]:
    """Rows, their positions, and position and reason of each reject."""
    parts = parts_of(path, schema, target, batch)
    rows = [row for part in parts for row in part.batch.to_pylist()]
    positions = [int(at) for part in parts for at in part.positions]
    return rows, positions, [(reject.position, reject.reason) for part in parts for reject in part.rejects]


def parts_of(path: Path, schema: pa.Schema | None = None, target: int = 1 << 25, batch: int = 1 << 22) -> list[Rows]:
    (file,) = files.find([str(path)])
    reader = files.reader_for(file, None)
    wanted = files.unify({file.url: reader.schema(file)}) if schema is None else schema
    return [rows for piece in reader.split(file, target) for rows in reader.read(piece, wanted, batch)]


def schema_of(path: Path) -> pa.Schema:
    (file,) = files.find([str(path)])
    schema: pa.Schema = files.reader_for(file, None).schema(file)
    return schema


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# JSON Lines

MANY = pa.schema(
    [
        ("text", pa.large_string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("flag", pa.bool_()),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.float64()))])),
        ("tags", pa.list_(pa.large_string())),
    ]
)
any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-(2**66), 2**66) | st.integers(-5, 5) | st.floats() | any_text
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
right_rows = st.fixed_dictionaries(
    {},
    optional={
        "text": any_text,
        "n": st.integers(-(2**63), 2**63 - 1),
        "x": st.floats() | st.integers(-(2**70), 2**70),
        "flag": st.booleans(),
        "s": st.none() | st.fixed_dictionaries({}, optional={"a": st.integers(-9, 9), "b": st.lists(st.floats())}),
        "tags": st.lists(any_text | st.none(), max_size=3),
        "other": values,
    },
)
odd_rows = st.dictionaries(st.sampled_from([*MANY.names, "other", ""]), values, max_size=4) | values
TOKENS = [
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b" ", b"\t", b"\r", b"\0", b"//", b"'", b"null", b"true"),
    *(b"1", b"-1", b"01", b"1.0", b"1e400", b"-0", b"Inf", b"-Inf", b"NaN", b"-NaN", b"Infinity", b"InfX", b'"Inf"'),
    *(b'"text"', b'"n"', b'"x"', b'"other"', b'"\\ud800"', b'"\\udc00"', b'"\\ud83d\\ude00"', b'"\\u0000"'),
    *(b'"\xff"', b"\xed\xa0\x80", b'"a\x01"', b"\xef\xbb\xbf"),
]


def dumped(value: object, ascii_only: bool, gap: str) -> bytes:
    return json.dumps(value, ensure_ascii=ascii_only, separators=(f",{gap}", f":{gap}")).encode(
        "utf-8", "surrogatepass"
    )


sound = st.builds(dumped, right_rows | right_rows | odd_rows, st.booleans(), st.sampled_from(["", " "]))
lines = st.one_of(
    sound,
    sound,
    sound,
    st.lists(st.sampled_from(TOKENS), max_size=9).map(b"".join),
    st.builds(lambda key, value: b'{"%s":%s}' % (key, value), st.sampled_from([b"n", b"x"]), st.sampled_from(TOKENS)),
    st.builds(lambda one, gap, two: one + gap + two, sound, st.sampled_from([b"", b" ", b"\n"]), sound),
    st.builds(
        lambda line, at, token: line[:at] + token + line[at:], sound, st.integers(0, 99), st.sampled_from(TOKENS)
    ),
    st.builds(lambda line, at: line[:at], sound, st.integers(0, 99)),
)
contents = st.builds(
    lambda mark, inner, newline, last: mark + newline.join(inner) + last,
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(lines, max_size=14),
    st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\n \n"]),
    st.sampled_from([b"", b"\n"]),
)


@settings(deadline=None, max_examples=400)
@given(contents, st.sampled_from([1, 3, 64]))
def test_blocks_give_the_rows_and_rejects_that_lines_give_one_by_one(content, few_lines):
    good, bad = json_lines.rows(content, MANY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "_FEW_LINES", few_lines)
        batch, positions, rejects = jsonl.rows_of(content, 0, "a.jsonl", MANY)
    assert repr(list(zip(positions.tolist(), batch.to_pylist(), strict=True))) == repr(good)
    assert [(reject.position, reject.reason) for reject in rejects] == bad


@settings(deadline=None, max_examples=100)
@given(contents, st.integers(1, 200), st.integers(1, 200))
def test_cuts_of_a_file_change_no_row_and_no_reject(tmp_path_factory, content, target, batch):
    path = written(tmp_path_factory.mktemp("cuts") / "a.jsonl", content)
    good, bad = json_lines.rows(content, MANY)
    rows, positions, rejects = read(path, MANY, target, batch)
    assert repr(list(zip(positions, rows, strict=True))) == repr(good)
    assert rejects == bad


def test_sound_lines_never_take_the_slow_way(tmp_path, monkeypatch):
    rows = [{"text": "é" * number, "n": number, "x": number / 3, "tags": ["a"]} for number in range(500)]
    path = written(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\r\n\n" for row in rows).encode())
    monkeypatch.setattr(jsonl, "_one_by_one", None)
    assert read(path)[0] == rows


def test_few_lines_take_the_slow_way_for_one_bad_line(tmp_path, monkeypatch):
    made = [json.dumps({"text": str(number)}) + "\n" for number in range(10_000)]
    made[7777] = '{"text": broken\n'
    slow: list[int] = []
    one_by_one = jsonl._one_by_one
    monkeypatch.setattr(jsonl, "_one_by_one", lambda *a: (slow.append(len(a[1])), one_by_one(*a))[1])
    rows, _, rejects = read(written(tmp_path / "a.jsonl", "".join(made).encode()))
    assert [row["text"] for row in rows] == [str(number) for number in range(10_000) if number != 7777]
    assert rejects == [(len("".join(made[:7777])), "broken_json")]
    assert sum(slow) <= 64


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (rb'{"text": ', "broken_json"),
        (rb'{"text": "a"} {"text": "b"}', "broken_json"),
        (rb'{"text": "a"', "broken_json"),
        (b'{"text": "a\x01"}', "broken_json"),
        (b'{"text": "a\0"}', "broken_json"),
        (rb'{"text": "caf' + b'\xe9"}', "invalid_utf8"),
        (rb'{"other": "caf' + b'\xe9"}', "invalid_utf8"),
        (b'{"text": "\xed\xa0\xbd\xed\xb8\x80"}', "invalid_utf8"),
        (rb'{"text": "half \ud83d a pair"}', "invalid_utf8"),
        (rb'{"text": "the wrong \ude00\ud83d way round"}', "invalid_utf8"),
        (rb'{"tags": ["\udc00"]}', "invalid_utf8"),
        (rb'{"text": 5}', "wrong_type"),
        (rb'{"text": ["a"]}', "wrong_type"),
        (rb'{"n": 1.0}', "wrong_type"),
        (rb'{"n": true}', "wrong_type"),
        (rb'{"n": 9223372036854775808}', "wrong_type"),
        (b'{"n": 1' + b"0" * 5000 + b"}", "wrong_type"),
        (rb'{"flag": 1}', "wrong_type"),
        (rb'{"s": {"a": "x"}}', "wrong_type"),
        (rb'["text"]', "not_an_object"),
        (rb'"text"', "not_an_object"),
        (rb"null", "not_an_object"),
        (b'\xef\xbb\xbf{"text": "a"}', "broken_json"),
        (b'{"text":' + b"[" * 100_000 + b"}", "broken_json"),
    ],
)
def test_a_bad_line_is_rejected_with_its_place_and_reason_and_its_neighbours_are_kept(tmp_path, line, reason):
    path = written(tmp_path / "a.jsonl", b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n')
    rows, positions, rejects = read(path, MANY)
    assert [row["text"] for row in rows] == ["before", "after"]
    assert positions == [0, 20 + len(line)]
    assert rejects == [(19, reason)]


@pytest.mark.parametrize(
    ("line", "column", "value"),
    [
        (rb'{"text": "\ud83d\ude00"}', "text", "😀"),
        (rb'{"text": "a\u0000b"}', "text", "a\0b"),
        (rb'{"text": "a", "text": "b"}', "text", "b"),
        (rb'{"te\u0078t": "a"}', "text", "a"),
        (rb'  {"text": "a"}  ', "text", "a"),
        (rb'{"other": "\ud83d", "text": "a"}', "text", "a"),
        (b'{"other": ' + b"[" * 100_000 + b"]" * 100_000 + b', "text": "a"}', "text", "a"),
        (b'{"other": 1' + b"0" * 5000 + b', "text": "a", "text": "a"}', "text", "a"),
        (rb'{"n": -9223372036854775808}', "n", -(2**63)),
        (rb'{"x": 1e400}', "x", float("inf")),
        (b'{"x": 1' + b"0" * 5000 + b"}", "x", float("inf")),
        (rb'{"x": -Infinity}', "x", float("-inf")),
        (rb'{"s": {"a": 1, "more": 2}}', "s", {"a": 1, "b": None}),
        (rb'{"s": {"a": 1, "a": 2}}', "s", {"a": 2, "b": None}),
        (rb"{}", "text", None),
    ],
)
def test_an_odd_line_that_has_a_meaning_is_a_row(tmp_path, line, column, value):
    rows, _, rejects = read(written(tmp_path / "a.jsonl", line), MANY)
    assert rejects == []
    assert [row[column] for row in rows] == [value]


def test_a_line_of_fifty_megabytes_is_a_row_of_its_own_whatever_the_cuts(tmp_path):
    big = "word " * 10_000_000
    texts = ["before", big, "after", ""]
    path = written(tmp_path / "a.jsonl", "\n".join(json.dumps({"text": text}) for text in texts).encode())
    parts = parts_of(path, TEXT, 1 << 24, 1 << 20)
    assert [row for part in parts for row in part.batch.column("text").to_pylist()] == texts
    assert [part.batch.num_rows for part in parts if part.batch.nbytes > 1 << 20] == [1]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("last", ["", "\n", '\n{"text": "after"}\n'])
def test_a_line_beyond_all_bounds_is_rejected_without_being_held(tmp_path, monkeypatch, suffix, last):
    monkeypatch.setattr(streams, "MAX_ROW_BYTES", 1000)
    content = ('{"text": "before"}\n' + '{"text": "%s"}' % ("x" * 5000) + last).encode()
    path = written(tmp_path / f"a.jsonl{suffix}", gzip.compress(content) if suffix else content)
    rows, _, rejects = read(path, TEXT, 1 << 20, 300)
    assert [row["text"] for row in rows] == (["before", "after"] if "after" in last else ["before"])
    assert rejects == [(19, "too_long")]


def packed(kind: str, content: bytes) -> bytes:
    return gzip.compress(content) if kind == "gz" else zstandard.compress(content)


CONTENT = "".join(
    json.dumps({"text": f"{number} " + "word " * (number % 50)}) + "\n" for number in range(3000)
).encode()
TEXTS = [json.loads(line)["text"] for line in CONTENT.splitlines()]


@pytest.mark.parametrize("kind", ["gz", "zst"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_packed_file_cut_short_gives_its_whole_lines_and_says_so(tmp_path, kind, share):
    whole = packed(kind, CONTENT[:50_000]) + packed(kind, CONTENT[50_000:])
    path = written(tmp_path / f"a.jsonl.{kind}", whole[: int(len(whole) * share)])
    rows, _, rejects = read(path, TEXT, 1 << 25, 5000)
    assert [row["text"] for row in rows] == TEXTS[: len(rows)]
    assert share < 0.5 or len(rows) > 100
    assert [reason for _, reason in rejects] == ["truncated_file"]


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_what_stands_between_and_after_members_is_judged_as_the_format_says(tmp_path, kind):
    skippable = struct.pack("<II", 0x184D2A50, 4) + b"skip" if kind == "zst" else b""
    padding = b"\0" * 700 if kind == "gz" else skippable
    halves = [packed(kind, CONTENT[:50_000]), packed(kind, CONTENT[50_000:])]
    fine = written(tmp_path / f"a.jsonl.{kind}", skippable + halves[0] + skippable + halves[1] + padding)
    rows, _, rejects = read(fine, TEXT)
    assert ([row["text"] for row in rows], rejects) == (TEXTS, [])
    garbage = written(tmp_path / f"b.jsonl.{kind}", halves[0] + halves[1] + b"garbage at the end")
    rows, _, rejects = read(garbage, TEXT)
    assert [row["text"] for row in rows] == TEXTS
    assert [reason for _, reason in rejects] == ["damaged_file"]


def test_a_wrong_checksum_is_damage_after_all_rows(tmp_path):
    whole = bytearray(gzip.compress(CONTENT))
    whole[-8] ^= 1
    rows, _, rejects = read(written(tmp_path / "a.jsonl.gz", bytes(whole)), TEXT)
    assert [row["text"] for row in rows] == TEXTS
    assert [reason for _, reason in rejects] == ["damaged_file"]


def test_what_unpacks_to_very_much_is_unpacked_a_little_at_a_time():
    content = b"\n" * (64 << 20)
    for kind, pieces in (("gz", streams._gunzip), ("zst", streams._unzstd)):
        sizes = [len(piece) for piece in pieces(io.BytesIO(packed(kind, content)))]
        assert sum(sizes) == len(content)
        assert kind == "zst" or max(sizes) <= 1 << 18


def test_a_file_that_is_not_packed_as_its_ending_says_is_a_clear_error(tmp_path):
    for suffix in (".gz", ".zst"):
        path = written(tmp_path / f"a.jsonl{suffix}", CONTENT)
        with pytest.raises(InputError, match=r"a\.jsonl\.\w+ cannot be unpacked.*rename it"):
            schema_of(path)


def test_a_file_without_any_json_object_in_its_first_megabyte_is_a_clear_error(tmp_path):
    pretty = json.dumps([{"text": "a"}, {"text": "b"}], indent=1).encode()
    with pytest.raises(InputError, match=r"a\.json has no line with a JSON object.*one object a line"):
        schema_of(written(tmp_path / "a.json", pretty))


def test_an_empty_file_has_no_slice_and_no_column(tmp_path):
    path = written(tmp_path / "a.jsonl", b"")
    assert schema_of(path) == pa.schema([])
    assert parts_of(path) == []


def inferred(*rows: object) -> dict[str, pa.DataType]:
    schema = json_rows.infer([row for row in rows if isinstance(row, dict)])
    return dict(zip(schema.names, schema.types, strict=True))


def test_a_column_has_the_type_that_most_of_its_values_have():
    text = pa.large_string()
    assert inferred({"a": 5}, {"a": "x"}, {"a": "y"}, {"a": None}) == {"a": text}
    assert inferred({"a": 1}, {"a": 2.5}, {"b": 1 << 63}, {"c": -1}, {"c": 1 << 63}) == {
        "a": pa.float64(),
        "b": pa.uint64(),
        "c": pa.int64(),
    }
    assert inferred({"a": [{"x": 1}, {"y": ["z"]}], "b": [], "c": None, "d": True}) == {
        "a": pa.list_(pa.struct([("x", pa.int64()), ("y", pa.list_(text))])),
        "b": pa.list_(pa.null()),
        "c": pa.null(),
        "d": pa.bool_(),
    }
    assert inferred({"when": "2024-01-01T00:00:00Z", "\ud800": 1}) == {"when": text}


def test_values_nested_without_end_have_no_column_of_their_own():
    deep: Any = "x"
    for _ in range(500):
        deep = {"a": deep}
    assert str(inferred({"a": deep})["a"]).count("struct") <= json_rows.MAX_DEPTH


def test_types_come_from_the_middle_and_the_end_too_and_not_from_broken_lines(tmp_path):
    filler = json.dumps({"text": "x" * 1000, "score": 1}) + "\n"
    body = filler * 3000 + json.dumps({"text": "x", "score": 0.5, "late": ["a"]}) + "\n{broken\n"
    assert schema_of(written(tmp_path / "a.jsonl", body.encode())) == pa.schema(
        [("text", pa.large_string()), ("score", pa.float64()), ("late", pa.list_(pa.large_string()))]
    )


def test_a_first_line_longer_than_the_sample_still_gives_the_columns(tmp_path):
    path = written(tmp_path / "a.jsonl", json.dumps({"text": "x" * 3_000_000, "n": 1}).encode())
    assert schema_of(path).names == ["text", "n"]


def test_wider_types_wanted_by_other_files_are_made_from_json(tmp_path):
    path = written(tmp_path / "a.jsonl", b'{"a": 1, "b": 2, "c": [1], "d": null, "e": "x"}\n{"a": 300}\n')
    schema = pa.schema(
        [
            ("a", pa.int8()),
            ("b", pa.float32()),
            ("c", pa.large_list(pa.int16())),
            ("d", pa.timestamp("us")),
            ("e", pa.string()),
        ]
    )
    rows, _, rejects = read(path, schema)
    assert rows == [{"a": 1, "b": 2.0, "c": [1], "d": None, "e": "x"}]
    assert rejects == [(48, "wrong_type")]


@pytest.mark.corpora
@pytest.mark.parametrize("ascii_only", [True, False])
def test_real_text_comes_back_as_it_was(corpora, tmp_path, ascii_only):
    for name in ("xquad", "udhr2", "shakespeare_milton"):
        rows = pq.read_table(corpora / f"{name}.parquet").slice(0, 2000).to_pylist()
        content = "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows)
        path = written(tmp_path / f"{name}.jsonl", content.encode())
        found, _, rejects = read(path, None, 1 << 20, 1 << 18)
        assert rejects == []
        assert found == rows


# Parquet


def parquet(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def broken_text(*values: bytes) -> pa.Array:
    """A string array that nobody checked."""
    offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )


def test_rows_with_text_that_is_not_utf8_are_rejected_wherever_it_stands(tmp_path):
    flat = broken_text(b"a", b"\xff", b"c", b"d", b"e")
    nested = pa.ListArray.from_arrays([0, 1, 2, 3, 4, 5], broken_text(b"a", b"b", b"\xc3", b"d", b"e"))
    inside = pa.StructArray.from_arrays([broken_text(b"a", b"b", b"c", b"\xed\xa0\x80", b"e")], ["x"])
    path = parquet(tmp_path / "a.parquet", pa.table({"text": flat, "tags": nested, "s": inside}))
    rows, positions, rejects = read(path)
    assert [row["text"] for row in rows] == ["a", "e"]
    assert [row["tags"] for row in rows] == [["a"], ["e"]]
    assert positions == [0, 4]
    assert rejects == [(1, "invalid_utf8"), (2, "invalid_utf8"), (3, "invalid_utf8")]


def test_bytes_asked_for_as_text_are_text_where_they_are_utf8(tmp_path):
    path = parquet(tmp_path / "a.parquet", pa.table({"text": pa.array([b"a", b"\xff", None, b"\xc3\xa9"])}))
    rows, _, rejects = read(path, TEXT)
    assert [row["text"] for row in rows] == ["a", None, "é"]
    assert rejects == [(1, "invalid_utf8")]


def test_values_that_the_unified_type_cannot_hold_are_rejected_row_by_row(tmp_path):
    path = parquet(tmp_path / "a.parquet", pa.table({"n": [1.0, 1.5, 3.0], "x": [2**53 + 1, 5, 6]}))
    rows, _, rejects = read(path, pa.schema([("n", pa.int64()), ("x", pa.float64())]))
    assert rows == [{"n": 3, "x": 6.0}]
    assert rejects == [(0, "wrong_type"), (1, "wrong_type")]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_every_kind_of_text_column_becomes_large_string(tmp_path, kind):
    texts = ["a", None, "漢字", "a", ""] * 300
    array = pa.array(texts).dictionary_encode() if pa.types.is_dictionary(kind) else pa.array(texts).cast(kind)
    path = parquet(tmp_path / "a.parquet", pa.table({"text": array}), row_group_size=400)
    assert schema_of(path).field("text").type == kind
    parts = parts_of(path, None, 1, 500)
    assert [text for part in parts for text in part.batch.column("text").to_pylist()] == texts
    assert all(part.batch.schema == TEXT for part in parts)


def test_a_dictionary_that_unfolds_to_a_hundredfold_stays_within_the_batch(tmp_path):
    text = "x" * 50_000
    path = parquet(tmp_path / "a.parquet", pa.table({"text": [text] * 2000, "n": range(2000)}))
    assert path.stat().st_size < 1_000_000
    sizes = [part.batch.num_rows for part in parts_of(path, None, 1 << 25, 1 << 20)]
    assert sum(sizes) == 2000
    assert max(sizes) == (1 << 20) // 50_008


@pytest.mark.parametrize("checksums", [True, False])
def test_a_damaged_row_group_gives_its_rows_before_the_damage_and_the_next_ones(tmp_path, checksums):
    texts = [f"{number} " + "word " * 40 for number in range(9000)]
    table = pa.table({"text": texts})
    path = parquet(
        tmp_path / "a.parquet",
        table,
        row_group_size=3000,
        compression="zstd",
        data_page_size=20_000,
        use_dictionary=False,
        write_page_checksum=checksums,
    )
    content = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    middle = column.data_page_offset + column.total_compressed_size // 2
    content[middle : middle + 200] = b"\xaa" * 200
    path.write_bytes(content)
    rows, positions, rejects = read(path)
    assert [row["text"] for row in rows] == [texts[at] for at in positions]
    assert set(range(3000)) | set(range(6000, 9000)) <= set(positions)
    assert len(rejects) == 1
    assert rejects[0] == (len(positions) - 3000, "damaged_row_group")
    assert 3000 < rejects[0][0] < 6000


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_parquet_file_is_named_before_anything_is_read(tmp_path, share):
    whole = parquet(tmp_path / "a.parquet", pa.table({"text": ["a"] * 100})).read_bytes()
    written(tmp_path / "a.parquet", whole[: int(len(whole) * share)])
    (file,) = files.find([str(tmp_path / "a.parquet")])
    for ask in (lambda: Parquet().split(file, 1), lambda: Parquet().schema(file)):
        with pytest.raises(InputError, match=r"a\.parquet is not a whole Parquet file.*footer"):
            ask()


def test_row_groups_are_joined_up_to_the_target_and_never_cut(tmp_path):
    path = parquet(tmp_path / "a.parquet", pa.table({"n": range(1000)}), row_group_size=100)
    (file,) = files.find([str(path)])
    size = pq.ParquetFile(path).metadata.row_group(0).total_byte_size
    slices = Parquet().split(file, 3 * size)
    assert slices[0].stop == 3
    assert [piece.start for piece in slices[1:]] == [piece.stop for piece in slices[:-1]]
    assert slices[-1].stop == 10
    assert len(Parquet().split(file, 1)) == 10
    (empty,) = files.find([str(parquet(tmp_path / "b.parquet", pa.table({"n": []})))])
    assert sum(piece.num_bytes for piece in Parquet().split(empty, 1)) == 0


# Arrow IPC


def ipc(path: Path, table: pa.Table, kind: str, rows: int = 100, **options: Any) -> Path:
    new = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with new(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


NUMBERED = pa.table({"text": [f"row {number}" for number in range(1000)], "n": range(1000)})


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_slices_of_record_batches_know_the_numbers_of_their_rows(tmp_path, kind, compression):
    path = ipc(tmp_path / "a.arrow", NUMBERED, kind, compression=compression)
    (file,) = files.find([str(path)])
    slices = ArrowIpc().split(file, 1)
    assert len(slices) == 10
    for number in (7, 0, 9):
        (rows,) = ArrowIpc().read(slices[number], NUMBERED.schema, 1 << 20)
        assert rows.positions.tolist() == rows.batch.column("n").to_pylist()
        assert rows.positions[0] == number * 100


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_dictionaries_that_change_from_batch_to_batch_are_followed(tmp_path, kind):
    chunks = [pa.array([f"{chunk}{index}" for index in range(3)] * 5).dictionary_encode() for chunk in "abc"]
    if kind == "file":
        chunks = pa.chunked_array(chunks).unify_dictionaries().chunks
    table = pa.table({"text": pa.chunked_array(chunks)})
    rows, positions, rejects = read(ipc(tmp_path / "a.arrow", table, kind), None, 1)
    assert [row["text"] for row in rows] == table.column("text").to_pylist()
    assert positions == list(range(45))
    assert rejects == []


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_file_without_its_footer_gives_its_whole_batches(tmp_path, compression):
    whole = ipc(tmp_path / "a.arrow", NUMBERED, "file", compression=compression).read_bytes()
    for length, most in ((len(whole) - 3, 1000), (len(whole) // 2, 600)):
        rows, _, rejects = read(written(tmp_path / "a.arrow", whole[:length]), None, 1)
        assert [row["n"] for row in rows] == list(range(len(rows)))
        assert len(rows) == most or 300 <= len(rows) <= most
        assert len(rows) % 100 == 0
        assert rejects == [(len(rows), "truncated_file")]


@pytest.mark.parametrize("kind", ["file", "stream"])
def test_a_record_batch_with_a_damaged_body_is_one_reject_and_the_next_are_read(tmp_path, kind):
    path = ipc(tmp_path / "a.arrow", NUMBERED, kind, compression="zstd")
    content = path.read_bytes()
    frame = struct.pack("<I", zstandard.MAGIC_NUMBER)
    at = -1
    for _ in range(10):
        at = content.index(frame, at + 1)
    path.write_bytes(content[:at] + b"\xaa" * 12 + content[at + 12 :])
    rows, positions, rejects = read(path, NUMBERED.schema)
    assert len(rows) == 900
    assert [row["n"] for row in rows] == positions
    assert [reason for _, reason in rejects] == ["damaged_batch"]
    assert rejects[0][0] not in positions


def test_offsets_that_lead_out_of_a_record_batch_are_damage_and_not_a_crash(tmp_path):
    path = ipc(tmp_path / "a.arrow", pa.table({"text": ["aaaa", "bbbb", "cccc"]}), "file")
    content = path.read_bytes().replace(struct.pack("<4i", 0, 4, 8, 12), struct.pack("<4i", 0, 4, 1 << 30, 12))
    rows, _, rejects = read(written(path, content))
    assert rows == []
    assert {reason for _, reason in rejects} == {"damaged_batch"}
    assert len(rejects) == 3


def test_columns_of_views_and_nested_lists_survive(tmp_path):
    table = pa.table(
        {
            "text": pa.array(["a", "a longer text than twelve bytes", None], pa.string_view()),
            "lists": pa.array([["x"], [], None], pa.list_view(pa.string())),
            "nested": pa.array([[["a"], []], [], None], pa.list_(pa.list_(pa.dictionary(pa.int8(), pa.string())))),
            "runs": pa.array(["r", "r", "s"], pa.run_end_encoded(pa.int32(), pa.string())),
        }
    )
    rows, _, rejects = read(ipc(tmp_path / "a.arrows", table, "stream"))
    assert rejects == []
    assert rows == table.to_pylist()


def test_one_huge_record_batch_is_cut_without_a_copy_of_its_text(tmp_path):
    table = pa.table({"text": pa.array(["x" * 1000] * 5000, pa.large_string())})
    parts = parts_of(ipc(tmp_path / "a.arrow", table, "file", rows=5000), None, 1 << 25, 10_000)
    assert {part.batch.num_rows for part in parts} == {10}
    base = {part.batch.column("text").buffers()[2].address for part in parts}
    assert len(base) == 1


def test_other_files_with_that_ending_are_named_with_a_remedy(tmp_path):
    with pytest.raises(InputError, match=r"a\.feather is Feather version 1; it must be version 2"):
        schema_of(written(tmp_path / "a.feather", b"FEA1" + b"\0" * 50))
    with pytest.raises(InputError, match=r"b\.arrow is not Arrow IPC"):
        schema_of(written(tmp_path / "b.arrow", b"no arrow at all, but long enough to look at" * 9))
    with pytest.raises(InputError, match=r"c\.arrow is empty"):
        schema_of(written(tmp_path / "c.arrow", b""))


# Plain text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", ""),
        (b" \r\n\t", " \r\n\t"),
        (b"\xef\xbb\xbfmark", "mark"),
        ("nul \0 漢字 ภาษาไทย e\u0301".encode(), "nul \0 漢字 ภาษาไทย e\u0301"),
    ],
)
def test_a_text_file_is_one_document_as_it_stands(tmp_path, content, text):
    path = written(tmp_path / "a.md", content)
    assert read(path) == ([{"text": text, "path": str(path)}], [0], [])


@pytest.mark.parametrize("content", [b"caf\xe9", "utf-16".encode("utf-16"), b"\xed\xa0\x80"])
def test_a_text_file_that_is_not_utf8_is_a_reject(tmp_path, content):
    assert read(written(tmp_path / "a.txt", content)) == ([], [], [(0, "invalid_utf8")])


def test_a_text_file_beyond_all_bounds_is_a_reject(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MAX_ROW_BYTES", 100)
    assert read(written(tmp_path / "a.txt", b"x" * 101)) == ([], [], [(0, "too_long")])


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_packed_text_file_cut_short_is_a_reject(tmp_path, kind):
    whole = packed(kind, b"some text " * 1000)
    assert read(written(tmp_path / f"a.txt.{kind}", whole[:-5])) == ([], [], [(0, "truncated_file")])


# WebDataset tar


def tar(path: Path, members: list[tuple[str, bytes]], **options: Any) -> Path:
    with tarfile.open(path, "w", **options) as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


ODD_MEMBERS = [
    ("__meta__/info.json", b"{}"),
    ("README", b"no ending"),
    ("a/one.json", b'{"n": 1, "text": "from json"}'),
    ("a/one.txt", b"first"),
    ("b/one.TXT", b"second"),
    ("b/one.cls.json", b"not read"),
    ("b/one.png", b"\xff" * 5000),
    ("c.d/two.words.text", b"not the text"),
    ("c.d/two.text", b"third"),
    ("./three.text", b"second to txt"),
    ("./three.txt", b"fourth"),
    ("four.json", b'{"n": 4, "text": "fifth", "key": "hidden"}'),
    ("four", b"no ending, and no end of the sample"),
    ("four.jpg", b""),
    ("long/" + "n" * 150 + "/" + "e" * 120 + ".txt", b"sixth"),
    ("only.jpg", b"x"),
    ("é/ü.txt", b"seventh"),
]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_samples_are_those_that_webdataset_finds(tmp_path, form):
    path = tar(tmp_path / "a.tar", ODD_MEMBERS, format=form)
    rows, positions, rejects = read(path)
    theirs = list(webdataset.WebDataset(str(path), shardshuffle=False))
    assert [row["key"] for row in rows] == [sample["__key__"] for sample in theirs]
    for row, sample in zip(rows, theirs, strict=True):
        fields = json.loads(sample.get("json", b"{}"))
        text = sample.get("txt", sample.get("text"))
        assert row["text"] == (text.decode() if text is not None else fields.get("text"))
        assert row["n"] == fields.get("n")
    assert positions == list(range(len(rows)))
    assert rejects == []
    assert [row["text"] for row in rows] == ["first", "second", "third", "fourth", "fifth", "sixth", None, "seventh"]


def test_folders_links_and_members_of_other_kinds_are_no_samples(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind in (("dir.txt", tarfile.DIRTYPE), ("link.txt", tarfile.SYMTYPE), ("pipe.txt", tarfile.FIFOTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type = kind
            archive.addfile(entry)
        entry = tarfile.TarInfo("a.txt")
        entry.size = 1
        archive.addfile(entry, io.BytesIO(b"a"))
    assert [row["key"] for row in read(tmp_path / "a.tar")[0]] == ["a"]


def test_a_bad_sample_is_a_reject_and_its_neighbours_are_kept(tmp_path):
    members = [
        ("0.txt", b"good"),
        ("1.txt", b"\xff"),
        ("2.json", b"{"),
        ("3.json", b"[]"),
        ("4.txt", b"a"),
        ("4.txt", b"b"),
        ("5.json", b'{"n": "x"}'),
        ("6.json", b'{"n": 6}'),
        ("7.json", b'{"n": 7}'),
    ]
    rows, positions, rejects = read(tar(tmp_path / "a.tar", members))
    assert positions == [0, 6, 7]
    assert [row["n"] for row in rows] == [None, 6, 7]
    assert rejects == [
        (1, "invalid_utf8"),
        (2, "broken_json"),
        (3, "not_an_object"),
        (4, "duplicate_member"),
        (5, "wrong_type"),
    ]


SIMPLE = [(f"{number:03}.{ending}", b"text" * 200) for number in range(50) for ending in ("txt", "jpg")]


@pytest.mark.parametrize("mode", ["", "gz"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.77])
def test_a_tar_cut_short_gives_its_whole_samples_and_says_so(tmp_path, mode, share):
    whole = tar(tmp_path / "a.tar", SIMPLE).read_bytes()
    cut = gzip.compress(whole, 0) if mode else whole
    rows, _, rejects = read(written(tmp_path / f"b.tar{mode and '.gz'}", cut[: int(len(cut) * share)]), None, 1, 1000)
    assert 5 < len(rows) < 45
    assert [row["key"] for row in rows] == [f"{number:03}" for number in range(len(rows))]
    assert rejects == [(len(rows), "truncated_file")]


def test_a_tar_cut_between_two_members_is_no_whole_tar(tmp_path):
    whole = tar(tmp_path / "a.tar", SIMPLE).read_bytes()
    rows, _, rejects = read(written(tmp_path / "a.tar", whole[: 20 * (512 + 1024)]))
    assert len(rows) == 9
    assert rejects == [(9, "truncated_file")]


def test_a_damaged_header_is_not_taken_for_the_end(tmp_path):
    content = bytearray(tar(tmp_path / "a.tar", SIMPLE).read_bytes())
    content[20 * (512 + 1024) + 150] ^= 0x55
    rows, _, rejects = read(written(tmp_path / "a.tar", bytes(content)))
    assert len(rows) == 9
    assert rejects == [(9, "damaged_file")]


def test_a_file_that_is_no_tar_is_named_before_anything_is_read(tmp_path):
    path = written(tmp_path / "a.tar", b"no tar at all " * 100)
    (file,) = files.find([str(path)])
    with pytest.raises(InputError, match=r"a\.tar is not a tar file of samples"):
        WebdatasetTar().split(file, 1)


def test_members_that_are_not_wanted_are_passed_over_unread(tmp_path):
    path = tar(tmp_path / "a.tar", [("0.jpg", b"x" * 50_000_000), ("0.txt", b"text")])
    (file,) = files.find([str(path)])
    with streams.opened(file, {}) as source:
        asked: list[int] = []

        class Counting:
            def read(self, size: int) -> bytes:
                asked.append(size)
                return source.read(size)

            seek, tell = source.seek, source.tell

        assert [sample.members for sample in _samples(Counting())] == [{"txt": b"text"}]  # type: ignore[arg-type]
    assert sum(asked) < 10_000


# What they share


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=60))
def test_bad_rows_are_found_by_halving(bad):
    found = columns.bad_rows(len(bad), lambda start, stop: not any(bad[start:stop]))
    assert found == [number for number, is_bad in enumerate(bad) if is_bad]


@settings(deadline=None)
@given(st.lists(st.lists(st.text(max_size=20), max_size=8), max_size=8), st.integers(1, 60))
def test_batches_are_joined_and_cut_to_size_and_keep_every_row(steps, size):
    batches = [pa.record_batch({"text": pa.array(step, pa.string())}) for step in steps]
    made = [batch.column("text").to_pylist() for batch in columns.batched(batches, size)]
    assert [text for batch in made for text in batch] == [text for step in steps for text in step]
    assert all(batch for batch in made)
    lengths = [[len(text.encode()) for text in batch] for batch in made]
    assert all(len(batch) == 1 or sum(batch) <= size for batch in lengths)
    assert all(sum(one) + two[0] > size for one, two in itertools.pairwise(lengths))


def test_bytes_of_rows_in_a_dictionary_as_large_as_its_indices_allow():
    words = pa.array(["é" * length for length in range(128)])
    coded = pa.DictionaryArray.from_arrays(pa.array([127, None, 2], pa.int8()), words)
    numbers = pa.DictionaryArray.from_arrays(pa.array([0, 0, None], pa.uint8()), pa.array([7], pa.int64()))
    assert columns.row_bytes(pa.record_batch({"a": coded, "b": numbers})).tolist() == [262, 8, 4]


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=3000), st.lists(st.integers(1, 700), max_size=12), st.sampled_from(["gz", "zst"]))
def test_an_unpacked_file_reads_like_the_plain_one(content, sizes, kind):
    halves = len(content) // 2
    source = streams.Unpacked(io.BytesIO(packed(kind, content[:halves]) + packed(kind, content[halves:])), f"a.{kind}")
    plain = io.BytesIO(content)
    for number, size in enumerate(sizes):
        if number % 3 == 2:
            target = min(len(content), plain.tell() + size)
            assert source.seek(target) == plain.seek(target)
        assert source.read(size) == plain.read(size)
        assert source.tell() == plain.tell()
    assert streams.read_all(source) == plain.read()


def test_the_integer_minus_zero_is_read_alike_in_good_and_bad_company(tmp_path):
    good = b'{"x": 1.5}\n{"x": -0}\n'
    found = []
    for name, content in (("good", good), ("bad", good + b"{\n")):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(content)
        file = files.find([str(path)])[0]
        reader = jsonl.Jsonl()
        schema = reader.schema(file)
        rows = [
            row
            for piece in reader.split(file, 1 << 20)
            for rows in reader.read(piece, schema, 1 << 20)
            for row in rows.batch.column("x").to_pylist()
        ]
        found.append([str(value) for value in rows])
    assert found == [["1.5", "-0.0"], ["1.5", "-0.0"]]
