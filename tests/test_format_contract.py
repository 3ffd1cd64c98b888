"""What every format in the registry must do, those of others included."""

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataeff import registry
from dataeff.manifest import fingerprint
from tests import shards

NAMES = registry.names("formats")
TEXTS = ["", " ", "one\x00two", "CR\r\nLF", "漢字かな", "ภาษาไทย", "e\u0301", "\U0001f600", "word " * 50, ""]
OPTIONS = {
    "arrow_tokens": {"sequence_length": 8, "shard_tokens": 1 << 10},
    "text_parquet": {"row_group_bytes": 200},
}


def make(name):
    return registry.member("formats", name)(**OPTIONS.get(name, {}))


@pytest.fixture(params=NAMES)
def form(request):
    return make(request.param)


def documents(form, texts=TEXTS, **columns):
    """The documents as the format wants them: text, or their bytes as tokens."""
    if form.content == "text":
        return shards.text_batch(texts, **columns)
    return shards.token_batch([[*text.encode(), shards.END] for text in texts], **columns)


def test_a_format_is_a_frozen_definition_that_a_manifest_can_hold(form):
    assert dataclasses.is_dataclass(form)
    assert type(form).__dataclass_params__.frozen
    assert registry.name_of(form) in NAMES
    assert len(registry.meaning(type(form))) > 20
    assert fingerprint(form) == fingerprint(dataclasses.replace(form))
    assert form.suffix.startswith(".")
    assert form.grouping in ("source", "mixed", "part")
    assert form.content in ("tokens", "text", "either")


def test_there_is_always_a_shard_and_more_supply_never_needs_fewer(form):
    counts = [form.num_shards(supply) for supply in (0, 1, 1 << 10, (1 << 10) + 1, 1 << 30, 1 << 45)]
    assert counts[0] == counts[1] == 1
    assert counts == sorted(counts)


def test_what_was_written_is_counted_and_holds(form, tmp_path):
    data, summary = shards.written(form, [documents(form)])
    assert summary.documents == len(TEXTS)
    assert summary.tokens == (0 if form.content == "text" else sum(len(text.encode()) + 1 for text in TEXTS))
    assert summary.padding_tokens >= 0
    assert shards.problems(form, data, tmp_path) == []


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(places=st.lists(st.integers(0, 100), max_size=8))
def test_the_bytes_do_not_depend_on_how_batches_were_cut(name, places):
    form = make(name)
    extras = {"rank": pa.array(range(len(TEXTS))), "tags": pa.array([["a"] * (n % 3) for n in range(len(TEXTS))])}
    batch = documents(form, **extras)
    whole = shards.written(form, [batch])
    assert shards.written(form, shards.cut(batch, places)) == whole
    copies = (pa.RecordBatch.from_pylist(piece.to_pylist(), batch.schema) for piece in shards.cut(batch, places))
    assert shards.written(form, copies) == whole


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_no_documents_make_a_whole_shard_that_holds_none(form, tmp_path, batches):
    data, summary = shards.written(form, [documents(form, [])] * batches)
    assert dataclasses.astuple(summary) == (0, 0, 0, 0)
    assert shards.problems(form, data, tmp_path) == []


def test_a_document_may_be_longer_than_a_shard(form, tmp_path):
    data, summary = shards.written(form, [documents(form, ["x" * 100_000, "y"])])
    assert summary.documents == 2
    assert shards.problems(form, data, tmp_path) == []


def test_columns_of_the_input_may_be_of_many_types(form, tmp_path):
    rows = len(TEXTS)
    columns = {
        "when": pa.array([None, *range(1, rows)], pa.timestamp("ns", "Asia/Tokyo")),
        "score": pa.array([float("nan"), float("inf"), -float("inf"), None, *([0.5] * (rows - 4))]),
        "raw": pa.array([b"\xff\x00", None, *([b""] * (rows - 2))], pa.binary()),
        "label": pa.array(["a", None, *(["b"] * (rows - 2))]).dictionary_encode(),
        "meta": pa.array([{"url": "u", "at": 5, "tags": ["x"]}, None] * (rows // 2)),
        "nothing": pa.nulls(rows),
        "dotted.name": pa.array(range(rows), pa.uint8()),
        "": pa.array([True, None] * (rows // 2)),
        "漢/\x01": pa.array([[[1], None], None] * (rows // 2)),
    }
    data, summary = shards.written(form, [documents(form, **columns)])
    assert summary.documents == rows
    assert shards.problems(form, data, tmp_path) == []
    assert shards.written(form, shards.cut(documents(form, **columns), [2, 5])) == (data, summary)


@pytest.mark.parametrize("identifier", ["", "../../etc/passwd", "a.b.c", "ü/漢\x00\n", "x" * 1_000_000])
def test_ids_may_be_anything(form, tmp_path, identifier):
    batch = documents(form, ["text"])
    batch = batch.set_column(1, "id", pa.array([identifier]))
    data, _ = shards.written(form, [batch])
    assert shards.problems(form, data, tmp_path) == []


def test_every_flip_of_a_single_bit_is_found(form, tmp_path):
    data, _ = shards.written(form, [documents(form, ["ab", "c", ""])])
    path = tmp_path / f"shard{form.suffix}"
    path.write_bytes(data)
    missed = []
    with path.open("r+b", buffering=0) as file:
        for place, byte in enumerate(data):
            for bit in range(8):
                file.seek(place)
                file.write(bytes([byte ^ 1 << bit]))
                if not form.verify(path):
                    missed.append((place, bit))
            file.seek(place)
            file.write(bytes([byte]))
    assert missed == []
    assert form.verify(path) == []


def test_every_truncation_and_anything_behind_the_end_is_found(form, tmp_path):
    data, _ = shards.written(form, [documents(form)])
    for length in range(0, len(data), max(1, len(data) // 300)):
        assert shards.problems(form, data[:length], tmp_path) != [], length
    for more in (b"\x00", b"\x00" * 512, data):
        assert shards.problems(form, data + more, tmp_path) != []


def test_files_of_something_else_and_missing_ones_are_named_as_such(form, tmp_path):
    for data in (b"", b"x", b"PAR1", b"ARROW1", bytes(1024), bytes(10_240), b"not a shard at all " * 1000):
        [problem] = shards.problems(form, data, tmp_path)
        assert "run the recipe again" in problem
    assert len(form.verify(tmp_path / "absent")) == 1
