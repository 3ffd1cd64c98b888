"""What each format promises beyond the contract: layout, readers of others, and errors that say what to do."""

import base64
import dataclasses
import gc
import io
import json
import math
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.checksums import BLOCK_BYTES
from dataeff.errors import FormatError, PlanError
from dataeff.formats import ArrowTokens, TextParquet, WebdatasetTar, arrow_tokens, text_parquet, webdataset_tar
from dataeff.formats.arrow_tokens import ALIGNMENT_BYTES, open_shard, read_shard
from tests import shards
from tests.oracle import packed
from tests.shards import END

DOCUMENTS = st.lists(st.lists(st.integers(0, 255), max_size=30), max_size=12)


def token_shard(documents, length=8, **changes):
    form = ArrowTokens(sequence_length=length, shard_tokens=1 << 10)
    data, summary = shards.written(form, [shards.token_batch(documents)], **changes)
    return read_shard(pa.py_buffer(data), "here"), summary


def big_shard(folder):
    """A shard of 2.4 MiB of tokens: three blocks, the last one short."""
    documents = np.random.default_rng(0).integers(0, 256, (600, 2048))
    data, _ = shards.written(ArrowTokens(), [shards.token_batch(documents.tolist())])
    path = folder / "web-00000.arrow"
    path.write_bytes(data)
    return path, documents


# Arrow token rows


@settings(max_examples=200, deadline=None)
@given(documents=DOCUMENTS, length=st.integers(1, 20))
def test_rows_hold_the_documents_end_to_end(documents, length):
    shard, summary = token_shard(documents, length)
    rows, _ = packed.rows(documents, length, END)
    assert shard.tokens.tolist() == rows
    assert summary == shard.summary
    assert summary.rows == len(rows)
    assert summary.documents == len(documents)
    assert summary.tokens == sum(map(len, documents))
    assert summary.padding_tokens == len(rows) * length - summary.tokens


@settings(max_examples=200, deadline=None)
@given(documents=DOCUMENTS, length=st.integers(1, 20))
def test_every_token_is_traced_to_its_document_and_its_place_there(documents, length):
    shard, _ = token_shard(documents, length)
    _, wanted = packed.rows(documents, length, END)
    for row, places in enumerate(wanted):
        found = [None] * length
        for span in shard.spans(row):
            assert span.start < span.stop
            for position in range(span.start, span.stop):
                found[position] = (span.doc, span.skipped + position - span.start)
        assert found == places


def test_plain_pyarrow_reads_rows_boundaries_and_metadata():
    documents = [[1, 2, END], [], [*range(9), END], [END]]
    data, _ = shards.written(ArrowTokens(sequence_length=8, shard_tokens=8), [shards.token_batch(documents)])
    table = pa.ipc.open_file(data).read_all()
    assert table.schema.field("tokens").type == pa.list_(pa.field("item", pa.uint16(), nullable=False), 8)
    assert table.to_pylist() == [
        {
            "tokens": [1, 2, END, 0, 1, 2, 3, 4],
            "documents": [{"start": 0, "doc": 0}, {"start": 3, "doc": 2}],
            "continued": 0,
        },
        {
            "tokens": [5, 6, 7, 8, END, END, END, END],
            "documents": [{"start": 0, "doc": 2}, {"start": 5, "doc": 3}],
            "continued": 5,
        },
    ]
    metadata = json.loads(table.schema.metadata[b"dataeff"])
    assert metadata.pop("block_crc32c")
    assert metadata == {
        "format": "arrow_tokens",
        "version": 1,
        "shard": "web-00000",
        "source": "web",
        "fingerprint": "0123456789abcdef" * 2,
        "sequence_length": 8,
        "vocab_size": 257,
        "end_of_document": END,
        "rows": 2,
        "documents": 4,
        "tokens": 14,
        "padding_tokens": 2,
        "block_bytes": BLOCK_BYTES,
    }


@pytest.mark.parametrize(("vocab_size", "dtype"), [(257, np.uint16), (65536, np.uint16), (65537, np.uint32)])
def test_ids_are_as_wide_as_the_vocabulary_needs(vocab_size, dtype):
    shard, _ = token_shard([[0, vocab_size - 1]], vocab_size=vocab_size, end_of_document=vocab_size - 1)
    assert shard.tokens.dtype == dtype
    assert shard.tokens[0].tolist() == [0, *([vocab_size - 1] * 7)]


@settings(deadline=None)
@given(source=st.text(max_size=40), name=st.text(max_size=200), documents=st.integers(0, 3))
def test_token_data_starts_on_a_page_whatever_the_metadata_holds(source, name, documents):
    form = ArrowTokens(sequence_length=4, shard_tokens=4)
    batch = shards.token_batch([[71, 72, 73, 74]] * documents)
    batch = batch.set_column(2, "source", pa.array([source] * documents, pa.string()))
    data, _ = shards.written(form, [batch], source=source, name=name)
    shard = read_shard(pa.py_buffer(data), "here")
    assert (shard.source, shard.name, len(shard.tokens)) == (source, name, documents)
    if documents:
        assert data.find(shard.tokens.tobytes()) % ALIGNMENT_BYTES == 0


def test_an_opened_shard_is_a_read_only_map_that_lives_as_long_as_its_arrays(tmp_path):
    path, documents = big_shard(tmp_path)
    before = pa.total_allocated_bytes()
    shard = open_shard(path)
    tokens = shard.tokens
    assert pa.total_allocated_bytes() - before < 100_000
    assert not tokens.flags.writeable
    assert not tokens.flags.owndata
    assert tokens.ctypes.data % ALIGNMENT_BYTES == 0
    del shard
    gc.collect()
    path.unlink()
    assert np.array_equal(tokens, documents)


@pytest.mark.parametrize("block", [0, 1, 2])
def test_a_damaged_block_is_named_and_the_others_are_still_good(tmp_path, block):
    path, _ = big_shard(tmp_path)
    data = bytearray(path.read_bytes())
    start = open_shard(path).tokens.tobytes()[:100]
    data[bytes(data).find(start) + block * BLOCK_BYTES + 4097] ^= 4
    path.write_bytes(data)
    shard = open_shard(path)
    assert shard.num_blocks == 3
    first = block * 256
    rows = f"rows {first} to {min(first + 255, 599)}"
    for check in (lambda: shard.check_block(block), shard.check_all):
        with pytest.raises(
            FormatError, match=f"web-00000.arrow: block {block} of 3 \\({rows}\\).*run the recipe again"
        ):
            check()
    for other in {0, 1, 2} - {block}:
        shard.check_block(other)
    [problem] = ArrowTokens().verify(path)
    assert problem.startswith(f"block {block} of 3")


def test_a_shard_of_another_version_is_refused_by_number(tmp_path, monkeypatch):
    path = tmp_path / "shard.arrow"
    for number, pattern in ((2, "version 2 .* reads version 1"), (0, "version 0 .* reads version 1")):
        with monkeypatch.context() as patch:
            patch.setattr(arrow_tokens, "VERSION", number)
            path.write_bytes(shards.written(ArrowTokens(), [shards.token_batch([[1, END]])])[0])
        with pytest.raises(FormatError, match=pattern):
            open_shard(path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tokens": 13}, "13 tokens and 2 of padding, but 2 rows of 8 are 16"),
        ({"documents": 2}, "counts 2 documents, but 3 start"),
        ({"tokens": 6, "padding_tokens": 10}, "10 padding tokens; a row has 8"),
        ({"tokens": 10, "padding_tokens": 6}, "padding of its last row is not the end-of-document token"),
    ],
)
def test_counts_that_contradict_the_rows_are_told(monkeypatch, tmp_path, changes, sentence):
    shard, summary = token_shard([[1, 2, END], [], [*range(9), END], [END]])
    wrong = dataclasses.replace(shard, summary=dataclasses.replace(summary, **changes))
    monkeypatch.setattr(arrow_tokens, "open_shard", lambda path: wrong)
    assert any(sentence in problem for problem in ArrowTokens().verify(tmp_path))


def test_boundaries_that_do_not_rise_are_told(monkeypatch, tmp_path):
    shard, _ = token_shard([[1, END], [2, END], [3, END]])
    for starts in ([0, 4, 2], [1, 2, 4], [0, 2, 2]):
        wrong = dataclasses.replace(shard, starts=np.array(starts, np.uint32))
        monkeypatch.setattr(arrow_tokens, "open_shard", lambda path, wrong=wrong: wrong)
        assert any("rising order" in problem for problem in ArrowTokens().verify(tmp_path))


def test_one_source_a_shard_or_a_clear_refusal():
    form = ArrowTokens()
    batch = shards.token_batch([[1, END], [2, END]])
    assert read_shard(pa.py_buffer(shards.written(form, [batch], source=None)[0]), "here").source == "web"
    two = batch.set_column(2, "source", pa.array(["web", "books"]))
    for batches, source in (([two], "web"), ([two], None), ([batch, two.slice(1)], None), ([batch], "books")):
        with pytest.raises(PlanError, match="one source a shard: use webdataset_tar"):
            shards.written(form, batches, source=source)


def test_tokens_of_another_vocabulary_are_refused():
    for form in (ArrowTokens(), WebdatasetTar()):
        with pytest.raises(FormatError, match="token 257 is outside the vocabulary of 257"):
            shards.written(form, [shards.token_batch([[1], [257]])])


def test_documents_without_tokens_cannot_make_token_rows():
    with pytest.raises(PlanError, match="put a Tokenize stage before Shard"):
        shards.written(ArrowTokens(), [shards.text_batch(["text"])])
    null = shards.token_batch([[1], [2]]).set_column(3, "tokens", pa.array([[1], None], pa.large_list(pa.uint16())))
    with pytest.raises(PlanError, match="tokens are null"):
        shards.written(ArrowTokens(), [null])


def test_a_token_shard_is_in_memory_once_while_it_is_written(tmp_path):
    tokens = np.arange(1 << 21) % 200

    def batches():
        for number in range(8):
            offsets = np.array([0, len(tokens)], np.int64)
            lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(tokens.astype(np.uint16)))
            yield shards.token_batch([[1]], first=number).set_column(3, "tokens", lists)
            assert pa.total_allocated_bytes() - before < 8 << 20

    before = pa.total_allocated_bytes()
    path = tmp_path / "shard.arrow"
    with path.open("wb") as sink:
        summary = ArrowTokens(shard_tokens=1 << 12).write(sink, batches(), shards.context())
    assert summary.tokens == 1 << 24
    assert ArrowTokens().verify(path) == []
    assert np.array_equal(open_shard(path).tokens.reshape(8, -1), np.tile(tokens, (8, 1)))


def test_a_row_may_hold_as_many_documents_as_tokens():
    shard, summary = token_shard([[END]] * 10_000 + [[]] * 10_000, length=1024)
    assert (summary.rows, summary.documents, summary.tokens) == (10, 20_000, 10_000)
    assert shard.row_offsets.tolist() == [*range(0, 10_000, 1024), 10_000]
    assert shard.docs.tolist() == list(range(10_000))
    assert shard.starts.tolist() == [number % 1024 for number in range(10_000)]
    assert not shard.continued.any()


def test_a_name_that_holds_a_seal_is_refused_with_the_remedy():
    source = "dataeff-seal-crc32c:01234567"
    batch = shards.token_batch([[1]]).set_column(2, "source", pa.array([source]))
    with pytest.raises(PlanError, match="rename the source"):
        shards.written(ArrowTokens(), [batch], source=source)


@pytest.mark.corpora
def test_real_text_comes_back_from_token_rows(corpora, tmp_path):
    texts = pq.read_table(corpora / "xquad.parquet").column("text").to_pylist()
    batch = shards.token_batch([[*text.encode(), END] for text in texts])
    path = tmp_path / "shard.arrow"
    path.write_bytes(shards.written(ArrowTokens(sequence_length=512), shards.cut(batch, range(0, 2000, 97)))[0])
    shard = open_shard(path)
    shard.check_all()
    found = [bytearray() for _ in texts]
    for row, tokens in enumerate(shard.tokens):
        for span in shard.spans(row):
            assert span.skipped == len(found[span.doc])
            found[span.doc] += tokens[span.start : span.stop].astype(np.uint8).tobytes()
    assert [bytes(data[:-1]).decode() for data in found] == texts


# WebDataset tar


def webdataset_samples(data, folder):
    webdataset = pytest.importorskip("webdataset")
    path = folder / "shard.tar"
    path.write_bytes(data)
    return list(webdataset.WebDataset(str(path), shardshuffle=False).decode())


def test_webdataset_decodes_text_and_attributes_in_order(tmp_path):
    texts = ["first", "", "NUL\x00", "漢字\r\n", "x" * 600]
    data, _ = shards.written(WebdatasetTar(), [shards.text_batch(texts, rank=pa.array(range(5)))], name="0.0/1")
    samples = webdataset_samples(data, tmp_path)
    assert [sample["txt"] for sample in samples] == texts
    assert [sample["__key__"] for sample in samples] == [f"0-0-1-00000000{number}" for number in range(5)]
    assert [sample["json"] for sample in samples] == [
        {"id": f"id-{number}", "source": "web", "doc": number, "rank": number} for number in range(5)
    ]


@pytest.mark.parametrize(("vocab_size", "dtype"), [(257, np.uint16), (100_000, np.uint32)])
def test_webdataset_decodes_tokens(tmp_path, vocab_size, dtype):
    documents = [[1, 2, END], [], [END]]
    batch = shards.token_batch(documents)
    data, summary = shards.written(WebdatasetTar(), shards.cut(batch, [1]), vocab_size=vocab_size)
    samples = webdataset_samples(data, tmp_path)
    assert [sample["tokens.npy"].tolist() for sample in samples] == documents
    assert {sample["tokens.npy"].dtype for sample in samples} == {np.dtype(dtype)}
    assert summary.tokens == 4


def test_members_are_what_tarfile_writes_itself():
    data, _ = shards.written(WebdatasetTar(), [shards.text_batch(["a", "b" * 10_000])])
    rewritten = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as old,
        tarfile.open(fileobj=rewritten, mode="w", format=tarfile.USTAR_FORMAT) as new,
    ):
        for member in old:
            plain = tarfile.TarInfo(member.name)
            plain.size = member.size
            new.addfile(plain, old.extractfile(member))
    assert rewritten.getvalue().rstrip(b"\0") == data.rstrip(b"\0")
    assert data.endswith(bytes(1024))


def test_attributes_that_json_lacks_become_text(tmp_path):
    nested = pa.struct([("raw", pa.binary()), ("at", pa.list_(pa.timestamp("ns")))])
    columns = {
        "score": pa.array([float("nan"), float("inf"), -float("inf"), 0.5]),
        "half": pa.array(np.array([1.5, 2, 3, 4], np.float16)),
        "zoned": pa.array([1_700_000_000_123_456, None, 0, 0], pa.timestamp("us", "+02:00")),
        "naive": pa.array([1, None, 0, 0], pa.timestamp("ns")),
        "day": pa.array([1, None, 0, 0], pa.date32()),
        "took": pa.array([1_500, None, 0, 0], pa.duration("ms")),
        "price": pa.array([150, None, 0, 0], pa.int64()).cast(pa.decimal128(21, 2)),
        "raw": pa.array([b"\xff\x00", None, b"", b""], pa.binary()),
        "label": pa.array(["a", None, "", "b"]).dictionary_encode(),
        "pairs": pa.array([[("k", 1), ("k", 2)], None, [], []], pa.map_(pa.string(), pa.int64())),
        "meta": pa.array([{"raw": b"\x01", "at": [1, None]}, None, {"raw": None, "at": None}, None], nested),
        "large": pa.array([2**64 - 1, None, 0, 0], pa.uint64()),
        "scores": pa.array([[1.0, float("nan")], None, [], []]),
    }
    data, _ = shards.written(WebdatasetTar(), [shards.text_batch(["t"] * 4, **columns)])
    first, second, third, _ = (sample["json"] for sample in webdataset_samples(data, tmp_path))
    assert {name: first[name] for name in columns} == {
        "score": "NaN",
        "half": 1.5,
        "zoned": "2023-11-14 22:13:20.123456Z",
        "naive": "1970-01-01 00:00:00.000000001",
        "day": "1970-01-02",
        "took": 1500,
        "price": "150.00",
        "raw": base64.b64encode(b"\xff\x00").decode(),
        "label": "a",
        "pairs": [["k", 1], ["k", 2]],
        "meta": {"raw": "AQ==", "at": ["1970-01-01 00:00:00.000000001", None]},
        "large": 2**64 - 1,
        "scores": [1.0, "NaN"],
    }
    assert second["score"] == "Infinity"
    assert third["score"] == "-Infinity"
    assert {second[name] for name in columns if name not in ("score", "half")} == {None}
    assert math.isinf(float(second["score"]))


def test_json_members_are_strict(tmp_path):
    data, _ = shards.written(WebdatasetTar(), [shards.text_batch(["t"], score=pa.array([float("nan")]))])

    def refuse(name):
        raise AssertionError(name)

    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        content = archive.extractfile("web-00000-000000000.json").read()
    assert json.loads(content, parse_constant=refuse)["score"] == "NaN"


# Text Parquet


def test_columns_stand_in_order_and_extras_keep_their_types(tmp_path):
    columns = {
        "rank": pa.array([1, 2]),
        "label": pa.array(["a", "b"]).dictionary_encode(),
        "tags": pa.array([["x"], None]),
    }
    data, _ = shards.written(TextParquet(), [shards.text_batch(["NUL\x00", ""], **columns)])
    table = pq.read_table(io.BytesIO(data))
    assert table.schema.names == ["id", "text", "source", "doc", "rank", "label", "tags"]
    assert table.schema.field("label").type == pa.string()
    assert table.schema.field("tags").type == pa.list_(pa.string())
    assert table.to_pylist() == [
        {"id": "id-0", "text": "NUL\x00", "source": "web", "doc": 0, "rank": 1, "label": "a", "tags": ["x"]},
        {"id": "id-1", "text": "", "source": "web", "doc": 1, "rank": 2, "label": "b", "tags": None},
    ]


def test_an_empty_shard_has_the_columns_that_empty_batches_name():
    data, _ = shards.written(TextParquet(), [shards.text_batch([], rank=pa.array([], pa.int64()))])
    assert pq.read_schema(io.BytesIO(data)).names == ["id", "text", "source", "doc", "rank"]
    data, _ = shards.written(TextParquet(), [])
    assert pq.read_schema(io.BytesIO(data)).names == ["id", "text", "source", "doc"]


def test_a_row_group_ends_with_the_row_that_fills_it():
    texts = ["x" * 100] * 10 + ["y" * 5_000] + ["z"] * 10
    data, _ = shards.written(TextParquet(row_group_bytes=1_000), [shards.text_batch(texts)])
    file = pq.ParquetFile(io.BytesIO(data))
    groups = [file.read_row_group(number).column("text").to_pylist() for number in range(file.num_row_groups)]
    assert [text for group in groups for text in group] == texts
    sizes = [[len(text) + len("id-00") + len("web") + 8 for text in group] for group in groups]
    assert all(sum(group[:-1]) < 1_000 <= sum(group) + len(group) for group in sizes[:-1])
    assert len(groups) == 3


def test_bytes_of_every_kind_of_column_count_towards_a_row_group():
    rows = 20
    heavy = {
        "binary": pa.array([b"x" * 500] * rows),
        "list": pa.array([["x" * 250] * 2] * rows),
        "struct": pa.array([{"a": "x" * 500}] * rows),
        "map": pa.array([[("k", "x" * 500)]] * rows, pa.map_(pa.string(), pa.string())),
        "fixed": pa.array([[1.0] * 64] * rows, pa.list_(pa.float64(), 64)),
        "floats": pa.array([[1.0] * 64] * rows),
    }
    for name, column in heavy.items():
        data, _ = shards.written(TextParquet(row_group_bytes=5_000), [shards.text_batch([""] * rows, **{name: column})])
        assert pq.ParquetFile(io.BytesIO(data)).num_row_groups == 2, name


def test_memory_is_bounded_by_the_row_group(tmp_path):
    def batches():
        for number in range(60):
            yield shards.text_batch([f"{number} " + "x" * 1_000_000], first=number)
            assert pa.total_allocated_bytes() - before < 24 << 20

    before = pa.total_allocated_bytes()
    path = tmp_path / "shard.parquet"
    with path.open("wb") as sink:
        TextParquet(row_group_bytes=4 << 20).write(sink, batches(), shards.context())
    assert TextParquet().verify(path) == []


def test_any_reader_can_check_the_pages(tmp_path):
    data, _ = shards.written(
        TextParquet(compression="none", level=None), [shards.text_batch(["some text of some length"])]
    )
    damaged = data.replace(b"some text of", b"some test of")
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        pq.read_table(io.BytesIO(damaged), page_checksum_verification=True)
    [problem] = shards.problems(TextParquet(), damaged, tmp_path)
    assert problem.startswith("block 0 of 1")


@pytest.mark.parametrize("compression", text_parquet.COMPRESSIONS)
def test_every_codec_comes_back(compression, tmp_path):
    form = TextParquet(compression=compression, level=None)
    data, _ = shards.written(form, [shards.text_batch(["text " * 100])])
    assert pq.read_table(io.BytesIO(data)).column("text").to_pylist() == ["text " * 100]
    assert shards.problems(form, data, tmp_path) == []


def test_a_type_that_parquet_lacks_is_named():
    union = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
    with pytest.raises(PlanError, match=r"Parquet cannot hold.*odd"):
        shards.written(TextParquet(), [shards.text_batch(["t"], odd=union)])


def test_datasets_reads_the_shards(tmp_path):
    datasets = pytest.importorskip("datasets")
    texts = ["one", "", "漢字"]
    path = tmp_path / "shard.parquet"
    path.write_bytes(shards.written(TextParquet(), [shards.text_batch(texts, rank=pa.array([1, 2, 3]))])[0])
    loaded = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["text"][:] == texts
    assert loaded.column_names == ["id", "text", "source", "doc", "rank"]
    path = tmp_path / "shard.tar"
    path.write_bytes(shards.written(WebdatasetTar(), [shards.text_batch(texts)])[0])
    streamed = datasets.load_dataset("webdataset", data_files=str(path), split="train", streaming=True)
    assert [sample["txt"] for sample in streamed] == texts
    path = tmp_path / "shard.arrow"
    form = ArrowTokens(sequence_length=4, shard_tokens=4)
    path.write_bytes(shards.written(form, [shards.token_batch([[1, 2, END], [3, 4, END]])])[0])
    loaded = datasets.load_dataset("arrow", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["tokens"][:] == [[1, 2, END, 3], [4, END, END, END]]


# All of them


@pytest.mark.parametrize("form", [TextParquet(row_group_bytes=1), WebdatasetTar(), ArrowTokens()])
def test_an_error_of_the_input_or_the_disk_passes_through_unchanged(form):
    make = shards.text_batch if form.content == "text" else shards.token_batch
    documents = ["text"] if form.content == "text" else [[1]]

    def batches():
        yield make(documents)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        form.write(io.BytesIO(), batches(), shards.context())

    class Full(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        form.write(Full(), [make(documents)], shards.context())
    gc.collect()


@pytest.mark.parametrize(
    ("form", "module", "member"), [(TextParquet(), text_parquet, "footer"), (WebdatasetTar(), webdataset_tar, "member")]
)
def test_counts_that_contradict_the_documents_are_told(form, module, member, monkeypatch, tmp_path):
    dumps = json.dumps
    with monkeypatch.context() as patch:
        patch.setattr(
            module.json,
            "dumps",
            lambda value, **options: dumps({**value, "documents": 7} if "format" in value else value),
        )
        data, _ = shards.written(form, [shards.text_batch(["a", "b"])])
    [problem] = shards.problems(form, data, tmp_path)
    assert "counts 7 documents, but it holds 2" in problem
    assert member in problem


@pytest.mark.parametrize("form", [TextParquet(compression="none", level=None), WebdatasetTar()])
def test_damage_in_a_long_shard_is_named_by_block(form, tmp_path):
    data, _ = shards.written(form, [shards.text_batch(["x" * 1_000_000] * 3)])
    damaged = bytearray(data)
    damaged[5] ^= 1
    damaged[2 * BLOCK_BYTES + 7] ^= 128
    found = shards.problems(form, bytes(damaged), tmp_path)
    assert [problem.partition(" has the CRC-32C")[0] for problem in found] == [
        "block 0 of 3 (from byte 0)",
        f"block 2 of 3 (from byte {2 * BLOCK_BYTES})",
    ]
    assert shards.problems(form, data, tmp_path) == []


@pytest.mark.corpora
@pytest.mark.parametrize("corpus", ["gsm8k", "udhr2", "python_doc"])
def test_real_text_comes_back_from_parquet_and_tar(corpora, tmp_path, corpus):
    table = pq.read_table(corpora / f"{corpus}.parquet").slice(0, 2_000)
    table = table.append_column("doc", pa.array(range(table.num_rows), pa.uint64()))
    for form in (TextParquet(row_group_bytes=1 << 20), WebdatasetTar()):
        data, summary = shards.written(form, table.to_batches(max_chunksize=300), source=None)
        assert summary.documents == table.num_rows
        assert shards.problems(form, data, tmp_path) == []
        if form.suffix == ".tar":
            samples = webdataset_samples(data, tmp_path)
            found = [{**sample["json"], "text": sample["txt"]} for sample in samples]
        else:
            found = pq.read_table(io.BytesIO(data)).to_pylist()
        assert found == table.to_pylist()


@pytest.mark.parametrize("module", [text_parquet, webdataset_tar])
def test_other_versions_are_told(module, monkeypatch, tmp_path):
    form = {text_parquet: TextParquet, webdataset_tar: WebdatasetTar}[module]()
    with monkeypatch.context() as patch:
        patch.setattr(module, "VERSION", 2)
        data, _ = shards.written(form, [shards.text_batch(["a"])])
    [problem] = shards.problems(form, data, tmp_path)
    assert "version 2 of the format; this dataeff checks 1" in problem


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ArrowTokens(sequence_length=0), "ArrowTokens.sequence_length is 0"),
        (lambda: ArrowTokens(shard_tokens=100), "ArrowTokens.shard_tokens is 100"),
        (lambda: WebdatasetTar(shard_bytes=0), "WebdatasetTar.shard_bytes is 0"),
        (lambda: TextParquet(compression="zip"), "one of zstd, gzip"),
        (lambda: TextParquet(level=100), "TextParquet.level is 100"),
        (lambda: TextParquet(compression="lz4", level=1), "lz4 has no levels"),
        (lambda: TextParquet(row_group_bytes=0), "TextParquet.row_group_bytes is 0"),
    ],
)
def test_options_are_checked_at_birth(make, message):
    with pytest.raises(PlanError, match=message):
        make()
