"""Bad and odd input through the whole lane: the right result, or a clear error and nothing half-made."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from dataeff import Dedup, Filter, Pipeline, Read, Shard
from dataeff.engine import Engine
from dataeff.errors import InputError
from dataeff.filters import FineWebQuality, GopherQuality, GopherRepetition
from dataeff.formats import TextParquet
from tests import making


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(threads=2) as running:
        yield running


def kept(out: Path) -> dict[str, str]:
    """Text of the surviving documents by id."""
    found: dict[str, str] = {}
    for path in sorted((out / "shards/text_parquet").glob("*.parquet")):
        table = pq.read_table(path)
        found.update(zip(table.column("id").to_pylist(), table.column("text").to_pylist(), strict=True))
    return found


def dedup_texts(texts: dict[str, str], tmp_path: Path, engine: Engine, **read_options: object) -> dict[str, str]:
    making.write_jsonl(tmp_path / "in.jsonl", [{"id": key, "text": text} for key, text in texts.items()])
    pipeline = Pipeline(Read(str(tmp_path / "in.jsonl"), **read_options), Dedup(), Shard(TextParquet()))  # type: ignore[arg-type]
    making.run_here(pipeline, tmp_path / "out", engine)
    return kept(tmp_path / "out")


def rejected(out: Path) -> list[tuple[str, int]]:
    return [(row["reason"], row["position"]) for row in pq.read_table(out / "rejected.parquet").to_pylist()]


def test_five_short_documents_that_share_no_shingle_are_all_kept(tmp_path, engine):
    texts = [
        "hello short doc",
        "totally different",
        "",
        "他们在北京大学学习中文已经三年了，每天都去图书馆看书。",
        "one two three four five six seven eight nine ten",
    ]
    assert len(dedup_texts({str(number): text for number, text in enumerate(texts)}, tmp_path, engine)) == 5


def test_documents_without_a_word_are_never_duplicates(tmp_path, engine):
    texts = {
        "empty": "",
        "empty too": "",
        "space": " \n\t ",
        "space too": " \n\t ",
        "marks": "!!! ...",
        "marks too": "!!! ...",
    }
    assert dedup_texts(texts, tmp_path, engine) == texts


def test_scripts_without_spaces_are_compared_letter_by_letter(tmp_path, engine):
    chinese = "他们在北京大学学习中文已经三年了，每天都去图书馆看书，周末常常和朋友一起去公园散步聊天。" * 2
    thai = "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม " * 2
    texts = {
        "zh": chinese + "完",
        "zh near": chinese,
        "th": thai + "จบ",
        "th near": thai,
        "other": "今天天气很好，我们去爬山吧，山上的风景非常漂亮。",
    }
    assert set(dedup_texts(texts, tmp_path, engine)) == {"zh", "th", "other"}


def test_composed_and_decomposed_text_is_the_same_text(tmp_path, engine):
    text = "Élève, où étais-tu hier soir après la fête donnée à Besançon chez ma très chère tante Zoë?"
    texts = {"composed": unicodedata.normalize("NFC", text), "decomposed": unicodedata.normalize("NFD", text)}
    assert len(dedup_texts(texts, tmp_path, engine)) == 1


def test_case_is_folded_for_near_duplicates(tmp_path, engine):
    text = "Die Straße war lang und breit und führte weit über den Fluss bis in das nächste große Dorf hinein"
    assert len(dedup_texts({"a": text, "b": text.upper()}, tmp_path, engine)) == 1


def test_nul_bytes_and_odd_newlines(tmp_path, engine):
    texts = {"nul": "one\0two\0three and a few more words to read", "crlf": "first line\r\nsecond line\rthird line"}
    assert dedup_texts(texts, tmp_path, engine) == {**texts, "crlf": "first line\nsecond line\nthird line"}


def test_lone_surrogates_are_rejected_with_their_place_and_the_rest_goes_on(tmp_path, engine):
    lines = [json.dumps({"id": str(number), "text": f"document number {number}"}) for number in range(300)]
    lines[7] = '{"id": "7", "text": "half a \\ud83d pair"}'
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    making.run_here(Pipeline(Read(str(tmp_path / "in.jsonl")), Shard(TextParquet())), tmp_path / "out", engine)
    assert [reason for reason, _ in rejected(tmp_path / "out")] == ["invalid_utf8"]
    assert len(kept(tmp_path / "out")) == 299


def test_invalid_utf8_and_broken_json_are_counted_and_too_many_stop_the_run(tmp_path, engine):
    lines = [json.dumps({"id": str(number), "text": f"document number {number}"}).encode() for number in range(300)]
    lines[3] = b'{"id": "3", "text": "caf\xe9"}'
    lines[4] = b'{"id": "4", "text": '
    lines[5] = b'{"id": "5", "text": null}'
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines))
    content, _ = making.run_here(
        Pipeline(Read(str(tmp_path / "in.jsonl")), Shard(TextParquet())), tmp_path / "out", engine
    )
    assert content["funnel"]["rejected"] == {"broken_json": 1, "invalid_utf8": 1, "missing_text": 1}
    strict = Pipeline(Read(str(tmp_path / "in.jsonl"), max_bad_share=0.001), Shard(TextParquet()))
    with pytest.raises(InputError, match=r"3 of 300 rows .* are bad .*max_bad_share"):
        making.run_here(strict, tmp_path / "strict", engine)
    assert not (tmp_path / "strict" / "manifest.json").exists()


def test_all_duplicates_leave_one_and_no_duplicates_leave_all(tmp_path, engine):
    text = making.rows(1, seed=4)[0]["text"]
    assert len(dedup_texts({str(number): text for number in range(500)}, tmp_path / "same", engine)) == 1
    fresh = {row["id"]: row["text"] for row in making.rows(60, seed=4) if row["kind"] == "fresh"}
    assert dedup_texts(fresh, tmp_path / "fresh", engine) == fresh


def test_a_document_of_fifty_megabytes_and_its_copy(tmp_path, engine):
    big = "\n".join(making.document(random.Random(1), 400) for _ in range(1))
    big = (big + "\n") * (50_000_000 // len(big) + 1)
    assert list(dedup_texts({"a": big, "b": big, "c": "a short one that is nothing like it"}, tmp_path, engine)) == [
        "a",
        "c",
    ]


def test_one_word_a_million_times_and_a_million_copies_of_one_line(tmp_path, engine):
    texts = {"word": "spam " * 1_000_000, "line": "this line again\n" * 1_000_000}
    making.write_jsonl(tmp_path / "in.jsonl", [{"id": key, "text": text} for key, text in texts.items()])
    rules = Filter(GopherRepetition(), GopherQuality(), FineWebQuality())
    content, _ = making.run_here(Pipeline(Read(str(tmp_path / "in.jsonl")), rules, Dedup()), tmp_path / "out", engine)
    assert sum(entry["documents"] for entry in content["funnel"]["dropped"]["in"].values()) == 2


def test_boilerplate_that_thousands_share_does_not_make_them_duplicates(tmp_path, engine):
    rng = random.Random(6)
    boilerplate = making.document(rng, 3)
    texts = {str(number): boilerplate + "\n" + making.document(rng, 9) for number in range(2000)}
    assert len(dedup_texts(texts, tmp_path, engine)) == 2000


def test_an_empty_corpus_is_an_error_and_leaves_no_directory(tmp_path, engine):
    (tmp_path / "in.jsonl").write_text("")
    with pytest.raises(InputError):
        making.run_here(Pipeline(Read(str(tmp_path / "in.jsonl"))), tmp_path / "out", engine)
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="nothing-here"):
        making.run_here(Pipeline(Read(str(tmp_path / "nothing-here*.jsonl"))), tmp_path / "out", engine)
    assert not (tmp_path / "out").exists()


def test_a_missing_text_column_lists_the_columns_there_are(tmp_path, engine):
    making.write_jsonl(tmp_path / "in.jsonl", [{"id": "1", "body": "some words", "url": "x"}])
    with pytest.raises(InputError, match=r"no input file has the text column 'text'; they have .*body.*text_column"):
        making.run_here(Pipeline(Read(str(tmp_path / "in.jsonl"))), tmp_path / "out", engine)


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.zst"])
def test_a_truncated_file_gives_what_is_whole_and_says_where_it_ends(tmp_path, engine, suffix):
    rng = random.Random(2)
    lines = "".join(
        json.dumps({"id": str(number), "text": making.document(rng)}) + "\n" for number in range(400)
    ).encode()
    packed = gzip.compress(lines) if suffix.endswith("gz") else zstandard.compress(lines)
    (tmp_path / f"in{suffix}").write_bytes(packed[: len(packed) * 9 // 10])
    pipeline = Pipeline(Read(str(tmp_path / f"in{suffix}"), batch_bytes=10_000), Shard(TextParquet()))
    content, _ = making.run_here(pipeline, tmp_path / "out", engine)
    assert content["funnel"]["rejected"] == {"truncated_file": 1}
    assert 100 < len(kept(tmp_path / "out")) < 400


def test_a_truncated_parquet_file_among_many_is_named_and_passed_over_only_if_allowed(tmp_path, engine):
    rows = making.rows(20)
    for number in range(4):
        pq.write_table(pa.Table.from_pylist(rows[number * 5 : number * 5 + 5]), tmp_path / f"{number}.parquet")
    damaged = tmp_path / "2.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"1 of 4 input files cannot be read.*2\.parquet"):
        making.run_here(Pipeline(Read(str(tmp_path / "*.parquet"))), tmp_path / "strict", engine)
    lenient = Pipeline(Read(str(tmp_path / "*.parquet"), max_bad_share=0.5), Shard(TextParquet()))
    making.run_here(lenient, tmp_path / "out", engine)
    assert len(kept(tmp_path / "out")) == 15
    assert [reason for reason, _ in rejected(tmp_path / "out")] == ["unreadable_file"]


def test_one_source_only_and_one_document_only(tmp_path, engine):
    assert dedup_texts({"only": "a single document of one source"}, tmp_path, engine) == {
        "only": "a single document of one source"
    }


RECIPE = """
from dataeff import Dedup, Pipeline, Read, Shard
from dataeff.formats import TextParquet

def recipe(inputs: str) -> Pipeline:
    return Pipeline(Read(inputs, part_bytes=60_000, batch_bytes=60_000), Dedup(), Shard(TextParquet()))
"""

WITHOUT_ROOM = """
import errno, sys
from dataeff import manifest
room = int(sys.argv[1])
real = manifest.Sink.write
def write(self, data):
    global room
    room -= memoryview(data).nbytes
    if room < 0:
        raise OSError(errno.ENOSPC, "No space left on device")
    return real(self, data)
manifest.Sink.write = write
sys.argv = ["dataeff", *sys.argv[2:]]
from dataeff.__main__ import main
main()
"""
"""The command line where writing fails after so many bytes: for machines where no file system can be mounted."""


def mounted(folder: Path, size: str) -> bool:
    """Mount a small file system, so that writing to it meets the kernel's own ENOSPC."""
    folder.mkdir()
    return (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True
        ).returncode
        == 0
    )


def test_a_full_disk_is_a_clear_error_and_the_run_goes_on_when_there_is_room(tmp_path, engine):
    making.write_jsonl(tmp_path / "in.jsonl", making.rows(400, seed=9))
    (tmp_path / "recipe.py").write_text(RECIPE)
    command = ["run", "recipe.py", "--set", "inputs=in.jsonl", "--threads", "2", "--out"]
    small = tmp_path / "small"
    if os.geteuid() == 0 and mounted(small, "300k"):
        try:
            out, full = small / "out", [sys.executable, "-m", "dataeff"]
            first = subprocess.run([*full, *command, str(out)], cwd=tmp_path, capture_output=True, text=True)
            left = [path.name for path in out.rglob("*.tmp")]
            subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
            second = subprocess.run([*full, *command, str(out)], cwd=tmp_path, capture_output=True, text=True)
            found = making.all_bytes(out)
        finally:
            subprocess.run(["umount", str(small)], check=True)
    else:
        out, full = tmp_path / "out", [sys.executable, "-c", WITHOUT_ROOM, "300000"]
        first = subprocess.run([*full, *command, str(out)], cwd=tmp_path, capture_output=True, text=True)
        left = [path.name for path in out.rglob("*.tmp")]
        second = subprocess.run(
            [sys.executable, "-m", "dataeff", *command, str(out)], cwd=tmp_path, capture_output=True, text=True
        )
        found = making.all_bytes(out)
    assert first.returncode == 1
    assert "the disk is full" in first.stderr
    assert "Traceback" not in first.stderr
    assert left == []
    assert second.returncode == 0, second.stderr
    subprocess.run(
        [sys.executable, "-m", "dataeff", *command, str(tmp_path / "fresh")],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    assert found == making.all_bytes(tmp_path / "fresh")
