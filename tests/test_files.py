"""Which files a pattern names, which reader takes them, and how their columns become one schema."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest

from dataeff import files
from dataeff.errors import InputError, PlanError
from dataeff.files import find, reader_for, remote_url, unify
from dataeff.inputs import InputFile
from dataeff.readers.jsonl import Jsonl
from dataeff.readers.plain_text import PlainText


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.jsonl", "a.parquet", "deep/er/c.JSONL.GZ", ".hidden.jsonl", ".git/d.jsonl", "notes.xyz", "_e.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return tmp_path


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    for name in ("b.jsonl", "a.parquet", "deep/er/c.jsonl.gz", ".hidden.jsonl", ".git/d.jsonl", "notes.xyz"):
        system.pipe(f"/found/{name}", b"x")
    yield system
    system.rm("/found", recursive=True)


def names(found: list[InputFile], below: object) -> list[str]:
    return [file.url.removeprefix(f"{below}/") for file in found]


def test_a_folder_gives_known_endings_at_any_depth_sorted_and_no_hidden_file(folder):
    assert names(find([str(folder)]), folder) == ["_e.txt", "a.parquet", "b.jsonl", "deep/er/c.JSONL.GZ"]


def test_patterns_that_overlap_give_each_file_once(folder, monkeypatch):
    monkeypatch.chdir(folder)
    found = find([str(folder), "b.jsonl", "*.jsonl", f"file://{folder}/b.jsonl", "deep/../b.jsonl"])
    assert names(found, folder) == ["_e.txt", "a.parquet", "b.jsonl", "deep/er/c.JSONL.GZ"]


def test_a_glob_takes_any_ending_at_any_depth_and_searches_the_folders_it_matches(folder):
    assert names(find([f"{folder}/*s.xyz"]), folder) == ["notes.xyz"]
    assert names(find([f"{folder}/**/*.jsonl"]), folder) == ["b.jsonl"]
    assert names(find([f"{folder}/d*"]), folder) == ["deep/er/c.JSONL.GZ"]


def test_a_hidden_file_is_taken_where_it_is_named(folder):
    assert names(find([f"{folder}/.hidden.jsonl", f"{folder}/.git"]), folder) == [".git/d.jsonl", ".hidden.jsonl"]


def test_a_name_that_looks_like_a_glob_is_itself_first(tmp_path):
    for name in ("part[1].jsonl", "part1.jsonl"):
        (tmp_path / name).write_text("x")
    assert names(find([f"{tmp_path}/part[1].jsonl"]), tmp_path) == ["part[1].jsonl"]


def test_links_keep_their_own_names_and_a_loop_ends(tmp_path):
    (tmp_path / "blob").write_text("x")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").symlink_to(tmp_path / "blob")
    (tmp_path / "data" / "again").symlink_to(tmp_path / "data")
    found = names(find([str(tmp_path / "data")]), tmp_path)
    assert found[0] == "data/a.jsonl"
    assert len(found) <= 2


def test_the_version_of_a_local_file_is_its_size_and_time(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("x")
    os.utime(path, ns=(5, 7))
    (first,) = find([str(path)])
    assert (first.num_bytes, first.version) == (1, "1-7")
    os.utime(path, ns=(5, 8))
    assert find([str(path)])[0].version != first.version


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("memory://found", ["a.parquet", "b.jsonl", "deep/er/c.jsonl.gz"]),
        ("memory://found/", ["a.parquet", "b.jsonl", "deep/er/c.jsonl.gz"]),
        ("memory://found/*.jsonl", ["b.jsonl"]),
        ("memory://found/**/*.gz", ["deep/er/c.jsonl.gz"]),
        ("memory://found/d*", ["deep/er/c.jsonl.gz"]),
        ("memory://found/notes.xyz", ["notes.xyz"]),
        ("memory:///found/b.jsonl", ["b.jsonl"]),
        ("memory://found/.git", [".git/d.jsonl"]),
    ],
)
def test_a_remote_url_is_looked_up_like_a_local_path(memory, pattern, expected):
    found = find([pattern])
    assert names(found, "memory:///found") == expected
    assert all(fsspec.open(file.url, "rb").open().read() == b"x" for file in found)


def test_a_remote_file_written_anew_has_another_version(memory):
    before = find(["memory://found/b.jsonl"])
    assert find(["memory://found/b.jsonl"]) == before
    memory.pipe("/found/b.jsonl", b"y")
    assert find(["memory://found/b.jsonl"]) != before


@pytest.mark.parametrize("pattern", ["gone.jsonl", "gone/*.jsonl", "memory://gone/a.jsonl", "memory://gone/*.jsonl"])
def test_a_pattern_that_names_nothing_is_an_error_that_names_it(pattern, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        find([pattern])
    assert pattern in str(raised.value)
    assert "folder" in str(raised.value)


def test_a_folder_without_a_known_file_lists_the_endings_there_are(tmp_path):
    (tmp_path / "notes.xyz").write_text("x")
    with pytest.raises(InputError, match=r"nothing matches .*\.jsonl\.zst.*\.parquet"):
        find([str(tmp_path)])


def test_a_link_to_nothing_and_an_unknown_protocol_are_errors(tmp_path):
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match="cannot be looked at"):
        find([str(tmp_path)])
    with pytest.raises(InputError, match="nosuch://bucket"):
        find(["nosuch://bucket/a.jsonl"])


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder in which the process has no more rights than anyone; skips where rights cannot be given up."""
    if os.geteuid() != 0:
        made = Path(tempfile.mkdtemp())
        yield made
    else:
        made = Path(tempfile.mkdtemp(dir="/var/tmp"))
        made.chmod(0o777)
        os.seteuid(65534)
        try:
            yield made
        finally:
            os.seteuid(0)
    shutil.rmtree(made)


def test_a_file_that_may_not_be_read_is_found_but_named_when_it_is_split(unprivileged):
    for name in ("a.jsonl", "b.jsonl", "c.parquet", "d.arrow", "e.txt", "f.tar"):
        (unprivileged / name).write_text("{}")
        (unprivileged / name).chmod(0 if name != "b.jsonl" else 0o644)
    for file in find([str(unprivileged)]):
        if file.url.endswith("b.jsonl"):
            assert len(reader_for(file, None).split(file, 10)) == 1
        else:
            with pytest.raises(InputError, match=f"{Path(file.url).name} may not be read"):
                reader_for(file, None).split(file, 10)


def test_a_folder_that_may_not_be_entered_is_named(unprivileged):
    (unprivileged / "closed").mkdir(mode=0)
    with pytest.raises(InputError, match="closed"):
        find([str(unprivileged)])


def a_file(url: str) -> InputFile:
    return InputFile(url=url, num_bytes=1, version="1")


def test_the_longest_ending_picks_the_reader_whatever_its_case():
    assert reader_for(a_file("/x/a.txt.gz"), None) == PlainText()
    assert reader_for(a_file("/x/a.JSONL.Gz"), None) == Jsonl()
    assert reader_for(a_file("s3://bucket/a.json"), None, {"anon": True}).storage_options == {"anon": True}


def test_a_name_overrides_the_ending():
    assert reader_for(a_file("/x/a.log"), "plain_text") == PlainText()
    with pytest.raises(PlanError, match="no reader is called 'jsonll'; there is jsonl"):
        reader_for(a_file("/x/a.log"), "jsonll")


def test_an_unknown_ending_names_the_file_and_the_ones_there_are():
    with pytest.raises(InputError, match=r"/x/a\.log; it must be one of .*\.jsonl.*Read\(reader=\.\.\.\)"):
        reader_for(a_file("/x/a.log"), None)


def test_two_readers_of_one_ending_are_an_error_that_names_both(monkeypatch):
    monkeypatch.setattr(files, "_suffixes", lambda: {".jsonl": ["jsonl", "other"]})
    with pytest.raises(InputError, match="jsonl and other both take"):
        reader_for(a_file("/x/a.jsonl"), None)


@pytest.mark.parametrize(
    ("pattern", "path", "has_host", "url"),
    [
        ("s3://bucket/*.jsonl", "bucket/a.jsonl", False, "s3://bucket/a.jsonl"),
        ("hdfs://name:9000/data/*.jsonl", "/data/a.jsonl", True, "hdfs://name:9000/data/a.jsonl"),
        ("https://host/a.jsonl", "https://host/a.jsonl", False, "https://host/a.jsonl"),
        ("zip://*.txt::s3://bucket/b.zip", "a.txt", False, "zip://a.txt::s3://bucket/b.zip"),
        ("simplecache::s3://bucket/*.gz", "bucket/a.gz", False, "simplecache::s3://bucket/a.gz"),
    ],
)
def test_a_listed_path_becomes_a_url_of_the_pattern_s_kind(pattern, path, has_host, url):
    assert remote_url(pattern, path, has_host=has_host) == url


def test_files_inside_an_archive_are_found_and_read(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("in/a.txt", "first")
        archive.writestr("in/b.txt", "second")
    found = find([f"zip://in/*.txt::file://{tmp_path}/b.zip"])
    texts = [
        rows.batch.column("text")[0].as_py()
        for file in found
        for piece in PlainText().split(file, 1)
        for rows in PlainText().read(piece, PlainText().schema(file), 1)
    ]
    assert texts == ["first", "second"]


def schema_of(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


def test_columns_widen_and_keep_the_order_in_which_they_appear():
    made = unify(
        {
            "a": schema_of(text=pa.string(), n=pa.int32(), none=pa.null(), s=pa.struct([("x", pa.int64())])),
            "b": schema_of(more=pa.bool_(), n=pa.float32(), none=pa.list_(pa.null()), text=pa.large_string()),
            "c": schema_of(none=pa.list_(pa.string()), s=pa.struct([("y", pa.string()), ("x", pa.float64())])),
        }
    )
    assert made.equals(
        schema_of(
            text=pa.large_string(),
            n=pa.float64(),
            none=pa.list_(pa.large_string()),
            s=pa.struct([("x", pa.float64()), ("y", pa.large_string())]),
            more=pa.bool_(),
        )
    )


def test_dictionaries_views_and_extensions_become_what_is_underneath():
    kinds = [
        (pa.dictionary(pa.int8(), pa.string()), pa.large_string()),
        (pa.string_view(), pa.large_string()),
        (pa.binary_view(), pa.large_binary()),
        (pa.list_view(pa.string_view()), pa.list_(pa.large_string())),
        (pa.large_list(pa.dictionary(pa.int32(), pa.int64())), pa.large_list(pa.int64())),
        (pa.run_end_encoded(pa.int32(), pa.string()), pa.large_string()),
        (pa.uuid(), pa.binary(16)),
        (pa.map_(pa.string(), pa.string()), pa.map_(pa.large_string(), pa.large_string())),
    ]
    for kind, underneath in kinds:
        assert unify({"a": schema_of(x=kind)}).field("x").type == underneath


def test_metadata_and_not_null_do_not_survive():
    field = pa.field("x", pa.int64(), nullable=False, metadata={"a": "b"})
    made = unify({"a": pa.schema([field], metadata={"huge": "x"})})
    assert made.equals(schema_of(x=pa.int64()), check_metadata=True)


def test_types_that_nothing_holds_both_of_name_the_column_the_types_and_the_files():
    none, number, text = schema_of(id=pa.null()), schema_of(id=pa.int64()), schema_of(id=pa.string())
    with pytest.raises(InputError, match=r"'id' is int64 in /b\.jsonl and large_string in /c\.parquet"):
        unify({"/a.jsonl": none, "/b.jsonl": number, "/c.parquet": text})


def test_a_column_that_stands_twice_is_an_error():
    with pytest.raises(InputError, match=r"/a\.parquet has the column 'x' more than once"):
        unify({"/a.parquet": pa.schema([("x", pa.int64()), ("x", pa.string())])})


def test_no_files_give_no_columns():
    assert unify({}) == pa.schema([])
