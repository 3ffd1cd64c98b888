"""What every tokenizer in the registry must do, those of others included."""

import base64
import dataclasses
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from dataeff import registry
from dataeff.manifest import fingerprint
from dataeff.tokenizers import TrainedBpe, token_dtype

NAMES = registry.names("tokenizers")
SAMPLE = ["The quick brown fox jumps over the lazy dog.\n" * 20, "naïve café, 漢字仮名交じり文。 ภาษาไทย 12345\n" * 20]
HOSTILE = [
    "",
    " ",
    " \n\t\r\n  ",
    "one",
    "漢字仮名交じり文。中文，没有空格！",
    "ภาษาไทยไม่มีช่องว่าง",
    "cafe\u0301 café \u0301\u0301",
    "NUL\x00inside\x00",
    "CR LF\r\nline\r\n",
    "<|endoftext|>",
    "before <|endoftext|> after<|endoftext|><|endoftext|>\n<|im_start|></s>[SEP]",
    "👨‍👩‍👧‍👦 \ufeff\uffff\U0010ffff",
    "x" * 100_000,
    "word " * 100_000,
    "",
]


@pytest.fixture
def options(tmp_path, monkeypatch):
    """Options of the tokenizers that cannot do without; a new member with defaults needs no entry."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(TrainedBpe(vocab_size=400).prepare(SAMPLE))
    plug_in_tiny_tiktoken(tmp_path, monkeypatch)
    return {"pretrained": {"source": str(path)}, "tiktoken": {"encoding": "tiny"}, "trained_bpe": {"vocab_size": 400}}


def plug_in_tiny_tiktoken(folder, monkeypatch):
    """Give tiktoken a plugin encoding, whose ranks are a local file of 256 bytes and two merges."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"th", b"the"]
    lines = [base64.b64encode(token) + b" " + str(rank).encode() for rank, token in enumerate(tokens)]
    (folder / "tiny.tiktoken").write_bytes(b"\n".join(lines))

    load = pytest.importorskip("tiktoken.load")

    def tiny():
        return {
            "name": "tiny",
            "pat_str": r" ?\p{L}+|\s+|[^\s\p{L}]+",
            "mergeable_ranks": load.load_tiktoken_bpe(str(folder / "tiny.tiktoken")),
            "special_tokens": {"<|endoftext|>": 260},
        }

    registry_module = pytest.importorskip("tiktoken.registry")
    registry_module.list_encoding_names()
    monkeypatch.setitem(registry_module.ENCODING_CONSTRUCTORS, "tiny", tiny)


@pytest.fixture(params=NAMES)
def tokenizer(request, options):
    return registry.member("tokenizers", request.param)(**options.get(request.param, {}))


@pytest.fixture
def encoder(tokenizer):
    return tokenizer.load(tokenizer.prepare(iter(SAMPLE)))


def rows(encoder, texts):
    ids, offsets = encoder.encode(pa.array(texts, pa.large_string()))
    assert ids.dtype == np.uint32
    assert offsets.dtype == np.int64
    assert offsets[0] == 0
    assert offsets[-1] == len(ids)
    return [ids[low:high].tolist() for low, high in itertools.pairwise(offsets)]


def test_every_row_ends_once_and_its_text_never_does(encoder):
    assert 0 <= encoder.end_of_document < encoder.vocab_size
    found = rows(encoder, HOSTILE)
    assert len(found) == len(HOSTILE)
    for row, text in zip(found, HOSTILE, strict=True):
        assert row[-1] == encoder.end_of_document
        assert encoder.end_of_document not in row[:-1]
        assert max(row) < encoder.vocab_size
        assert (len(row) == 1) == (text == "")


def test_ids_do_not_depend_on_how_rows_are_batched_or_sliced(encoder):
    whole = rows(encoder, HOSTILE)
    assert [row for text in HOSTILE for row in rows(encoder, [text])] == whole
    ids, offsets = encoder.encode(pa.array(HOSTILE, pa.large_string()).slice(3, 5))
    assert [ids[low:high].tolist() for low, high in itertools.pairwise(offsets)] == whole[3:8]


def test_no_rows_give_no_ids(encoder):
    assert rows(encoder, []) == []


def test_many_empty_rows_are_as_many_documents(encoder):
    assert rows(encoder, [""] * 20_000) == [[encoder.end_of_document]] * 20_000


def test_the_same_sample_gives_the_same_bytes_and_the_same_bytes_the_same_ids(tokenizer):
    prepared = tokenizer.prepare(iter(SAMPLE))
    assert tokenizer.prepare(iter(SAMPLE)) == prepared
    assert rows(tokenizer.load(prepared), HOSTILE) == rows(tokenizer.load(prepared), HOSTILE)


def test_several_threads_may_share_an_encoder(encoder):
    whole = rows(encoder, HOSTILE)
    with ThreadPoolExecutor(4) as pool:
        assert all(found == whole for found in pool.map(lambda _: rows(encoder, HOSTILE), range(8)))


def test_ids_survive_the_narrow_type(encoder):
    ids, _ = encoder.encode(pa.array(HOSTILE, pa.large_string()))
    assert np.array_equal(ids.astype(token_dtype(encoder.vocab_size)), ids)


def test_a_tokenizer_is_a_frozen_definition_that_a_manifest_can_hold(tokenizer):
    assert dataclasses.is_dataclass(tokenizer)
    assert type(tokenizer).__dataclass_params__.frozen
    assert registry.name_of(tokenizer) in NAMES
    assert len(registry.meaning(type(tokenizer))) > 20
    assert fingerprint(tokenizer) == fingerprint(dataclasses.replace(tokenizer))
