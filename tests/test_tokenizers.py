"""Each tokenizer against its oracle, on hostile text, and on real text."""

import base64
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from dataeff import pieces, tokenizer_json
from dataeff.cuts import CUT_BYTES
from dataeff.errors import FormatError, InputError, PlanError
from dataeff.tokenizers import Pretrained, Tiktoken, TrainedBpe, Utf8Bytes, token_dtype
from tests.oracle.tokens import bpe_tokens, byte_chars, byte_tokens

SHARED = Path(__file__).resolve().parents[2] / "shared"
SAMPLE = ["the cat sat on the mat, and the dog didn't.\n" * 9, "déjà vu 漢字 ภาษาไทย 2024 2025 foo_bar();\n" * 9]
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=8)
ENGLISH = st.lists(
    st.sampled_from([*" \n.,'", "the", "cat", "didn't", "  ", "12", "é", "漢", "<|endoftext|>"]), max_size=30
)


def split(encoded):
    ids, offsets = encoded
    return [ids[low:high].tolist() for low, high in itertools.pairwise(offsets)]


def array(*texts):
    return pa.array(texts, pa.large_string())


@pytest.fixture(scope="module")
def prepared():
    return TrainedBpe(vocab_size=500).prepare(SAMPLE)


@pytest.fixture(scope="module")
def bpe(prepared):
    return TrainedBpe(vocab_size=500).load(prepared)


@pytest.fixture
def gpt2():
    path = SHARED / "tokenizers" / "gpt2.json"
    if not path.is_file():
        pytest.skip("the shared tokenizer is not beside the checkout")
    return path


@pytest.fixture
def corpora_sample():
    """A megabyte or so of many scripts and of code, cut short a document."""
    found = []
    for name in ("cpython_stdlib", "gesetze", "stacks", "udhr2", "ubuntu_irc", "xquad"):
        path = SHARED / "corpora" / f"{name}.parquet"
        if not path.is_file():
            pytest.skip("the shared corpora are not beside the checkout")
        texts = pq.read_table(path, columns=["text"]).column("text")
        found += [texts[row].as_py()[:4000] for row in range(0, len(texts), len(texts) // 40 + 1)]
    return found


@given(TEXTS)
def test_bytes_are_ids(texts):
    assert split(Utf8Bytes().load(b"").encode(array(*texts))) == byte_tokens(texts)


def test_a_document_of_50_megabytes_is_its_bytes():
    ids, offsets = Utf8Bytes().load(b"").encode(array("a" * 50_000_000, "b"))
    assert offsets.tolist() == [0, 50_000_001, 50_000_003]
    assert (ids[:50_000_000] == 97).all()
    assert ids[50_000_000:].tolist() == [256, 98, 256]


def test_bytes_refuse_a_tokenizer_file_of_another_tokenizer(prepared):
    with pytest.raises(FormatError, match="another tokenizer made it"):
        Utf8Bytes().load(prepared)


@given(ENGLISH.map("".join) | st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_trained_bpe_is_merging_the_first_learnt_pair(prepared, bpe, text):
    assert split(bpe.encode(array(text))) == [[*bpe_tokens(prepared, text), 0]]


def test_trained_bpe_learns_words_and_keeps_a_valid_tokenizer_file(prepared, bpe):
    tokenizer = tokenizers.Tokenizer.from_str(prepared.decode())
    assert tokenizer.token_to_id("<|endoftext|>") == bpe.end_of_document == 0
    assert 257 < bpe.vocab_size <= 500
    (row,) = split(bpe.encode(array("the cat sat")))
    assert len(row) == 4
    assert tokenizer.decode(row) == "the cat sat"


def test_training_does_not_depend_on_the_number_of_threads_or_on_hash_seeds(prepared):
    program = (
        "import sys; from tests.test_tokenizers import SAMPLE; from dataeff.tokenizers import TrainedBpe; "
        "sys.stdout.buffer.write(TrainedBpe(vocab_size=500).prepare(SAMPLE))"
    )
    for setting in ({"RAYON_NUM_THREADS": "1"}, {"RAYON_NUM_THREADS": "7", "PYTHONHASHSEED": "99"}):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **setting},
            capture_output=True,
            check=True,
            cwd=Path(__file__).parents[1],
        )
        assert run.stdout == prepared


def test_training_on_a_huge_document_is_training_on_its_pieces():
    huge = "".join(SAMPLE) * (CUT_BYTES // 400)
    assert len(list(pieces.pieces_of(huge))) > 1
    assert TrainedBpe(vocab_size=300).prepare([huge]) == TrainedBpe(vocab_size=300).prepare(
        [huge[: len(huge) // 2], huge[len(huge) // 2 :]]
    )


def test_training_on_nothing_gives_the_bytes():
    encoder = TrainedBpe().load(TrainedBpe().prepare([]))
    assert encoder.vocab_size == 257
    assert split(encoder.encode(array("é"))) == [[*bpe_tokens(TrainedBpe().prepare([]), "é"), 0]]


@pytest.mark.parametrize(
    "options",
    [{"vocab_size": 256}, {"vocab_size": 1 << 21}, {"min_frequency": 0}, {"sample_bytes": 0}, {"end_of_document": "a"}],
    ids=str,
)
def test_training_options_out_of_range_are_refused_at_birth(options):
    with pytest.raises(PlanError, match=f"TrainedBpe.{next(iter(options))} is"):
        TrainedBpe(**options)


def test_an_end_of_document_that_is_a_word_of_the_corpus_is_refused():
    with pytest.raises(PlanError, match="choose an end_of_document that is no word"):
        TrainedBpe(end_of_document="the").prepare(["the the the the the"])


def saved(tmp_path, tokenizer):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return Pretrained(source=str(path))


def loaded(tokenizer):
    return tokenizer.load(tokenizer.prepare([]))


def words(*vocabulary):
    tokenizer = tokenizers.Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(("[UNK]", *vocabulary))}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def test_an_end_of_document_that_the_vocabulary_lacks_gets_a_new_id(tmp_path):
    encoder = loaded(saved(tmp_path, words("a", "b")))
    assert (encoder.vocab_size, encoder.end_of_document) == (4, 3)
    assert split(encoder.encode(array("a b c", "<|endoftext|>"))) == [[1, 2, 0, 3], [0, 3]]


def test_an_end_of_document_that_text_can_spell_is_refused(tmp_path):
    with pytest.raises(PlanError, match="could not mark the end of a document: name another"):
        saved(tmp_path, words("a", "<|endoftext|>")).prepare([])


def test_text_that_turns_into_the_end_of_document_unforeseen_stops_with_its_row():
    def encode(strings):
        return np.array([ord(string[0]) for string in strings], np.uint32), np.ones(len(strings), np.int64)

    with pytest.raises(InputError, match="row 2 of a batch"):
        pieces.encode_rows(array("a", "b", "c"), encode, end_of_document=ord("c"), cut=False)


def test_special_tokens_in_text_are_text_even_where_the_file_does_not_call_them_special(tmp_path, prepared):
    config = json.loads(prepared)
    assert [token["content"] for token in config["added_tokens"]] == ["<|endoftext|>"]
    config["added_tokens"][0]["special"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(config))
    encoder = loaded(Pretrained(source=str(tmp_path)))
    text = "a<|endoftext|>b"
    assert split(encoder.encode(array(text))) == [[*bpe_tokens(prepared, text), 0]]


def test_truncation_padding_and_templates_of_a_file_are_off(tmp_path, prepared, bpe):
    tokenizer = tokenizers.Tokenizer.from_str(prepared.decode())
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=64)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    texts = array("the cat sat on the mat", "the")
    assert split(loaded(saved(tmp_path, tokenizer)).encode(texts)) == split(bpe.encode(texts))


def test_dropout_of_a_file_is_off(tmp_path, prepared, bpe):
    config = json.loads(prepared)
    config["model"]["dropout"] = 0.5
    (tmp_path / "tokenizer.json").write_text(json.dumps(config))
    texts = array(*SAMPLE)
    assert split(loaded(Pretrained(source=str(tmp_path))).encode(texts)) == split(bpe.encode(texts))


def test_a_missing_file_is_named_and_no_hub_is_asked(tmp_path):
    with pytest.raises(PlanError, match=r"there is no file .*nowhere\.json: give the path of a tokenizer\.json"):
        Pretrained(source=str(tmp_path / "nowhere.json")).prepare([])


def test_a_hub_that_cannot_be_reached_is_said_with_the_next_step(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(PlanError, match=r"hub did not give a tokenizer called 'dataeff/absent'.*give that path"):
        Pretrained(source="dataeff/absent").prepare([])


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"model": {"type": "BPE"}}'])
def test_a_file_that_is_not_a_tokenizer_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(PlanError, match="not a tokenizer file"):
        Pretrained(source=str(tmp_path / "tokenizer.json")).prepare([])


def test_no_string_above_the_piece_size_reaches_the_tokenizer(bpe, monkeypatch):
    sizes = []

    def encode(strings):
        sizes.append([len(string.encode()) for string in strings])
        return bpe._encode(strings)

    text = "".join(SAMPLE) * 10_000
    assert len(text.encode()) > 8_000_000
    ids, offsets = pieces.encode_rows(array("a", text, "", "b"), encode, end_of_document=0, cut=True)
    assert max(map(max, sizes)) < 1.1 * CUT_BYTES
    assert max(map(sum, sizes)) < 1.1 * pieces.BATCH_BYTES
    assert np.count_nonzero(ids == 0) == 4
    assert np.array_equal(ids[offsets[1] : offsets[2] - 1], np.tile(bpe_tokens_of(bpe, "".join(SAMPLE)), 10_000))


def bpe_tokens_of(encoder, text):
    return encoder.encode(array(text))[0][:-1]


def test_text_that_is_not_utf8_is_refused(bpe):
    broken = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(np.array([0, 3])), pa.py_buffer(b"\xed\xa0\x80")]
    )
    with pytest.raises(InputError, match="not valid UTF-8"):
        bpe.encode(broken)


def test_the_narrowest_type_holds_every_id():
    assert token_dtype(257) == token_dtype(1 << 16) == np.uint16
    assert token_dtype((1 << 16) + 1) == token_dtype(1 << 32) == np.uint32
    for size in (0, -1, (1 << 32) + 1):
        with pytest.raises(PlanError, match="1 to 2"):
            token_dtype(size)


def test_tiktoken_without_its_data_says_where_it_looked_and_fetches_nothing(tmp_path, monkeypatch):
    pytest.importorskip("tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    with pytest.raises(PlanError, match=f"cl100k_base is not on this machine: {tmp_path}.* nothing is downloaded"):
        Tiktoken(encoding="cl100k_base").prepare([])
    with pytest.raises(PlanError, match=r"knows no encoding 'cl100k'; it knows .*cl100k_base"):
        Tiktoken(encoding="cl100k").prepare([])


def test_damaged_tiktoken_data_is_named_and_left_alone(tmp_path, monkeypatch):
    pytest.importorskip("tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    path = tmp_path / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
    path.write_bytes(b"not ranks")
    with pytest.raises(PlanError, match=f"{path} is damaged"):
        Tiktoken(encoding="cl100k_base").prepare([])
    assert path.read_bytes() == b"not ranks"


def test_a_missing_tiktoken_is_said_with_the_next_step(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(PlanError, match="pip install tiktoken"):
        Tiktoken().prepare([])


def test_a_damaged_tiktoken_file_is_refused():
    with pytest.raises(FormatError, match="damaged"):
        Tiktoken().load(b"{}")


def test_an_accelerator_that_gives_other_ids_is_not_used(prepared, monkeypatch):
    def wrong(config):
        return lambda strings: (np.zeros(len(strings), np.uint32), np.ones(len(strings), np.int64))

    monkeypatch.setattr(tokenizer_json, "_fast", wrong)
    monkeypatch.setattr(tokenizer_json, "version", lambda name: "0")
    assert tokenizer_json.encoder(prepared, "<|endoftext|>").engine.startswith("tokenizers ")


def test_an_accelerator_that_fails_is_not_used(prepared, monkeypatch):
    def failing(config):
        def encode(strings):
            raise ValueError("no")

        return encode

    monkeypatch.setattr(tokenizer_json, "_fast", failing)
    assert tokenizer_json.encoder(prepared, "<|endoftext|>").engine.startswith("tokenizers ")


def test_an_accelerator_that_gives_equal_ids_is_used(prepared, bpe, monkeypatch):
    slow = tokenizer_json._with_tokenizers(tokenizer_json._slow(json.loads(prepared)))
    monkeypatch.setattr(tokenizer_json, "_fast", lambda config: slow)
    monkeypatch.setattr(tokenizer_json, "version", lambda name: "0")
    assert tokenizer_json.encoder(prepared, "<|endoftext|>").engine == "fastokens 0"


@pytest.mark.corpora
def test_gpt2_on_real_text_is_what_the_library_says_a_document_at_a_time(gpt2, corpora_sample):
    encoder = loaded(Pretrained(source=str(gpt2)))
    assert (encoder.vocab_size, encoder.end_of_document) == (50257, 50256)
    truth = tokenizers.Tokenizer.from_file(str(gpt2))
    truth.encode_special_tokens = True
    wanted = [[*truth.encode(text, add_special_tokens=False).ids, 50256] for text in corpora_sample]
    assert split(encoder.encode(array(*corpora_sample))) == wanted


@pytest.mark.corpora
def test_bpe_trained_on_real_text_is_merging_the_first_learnt_pair(corpora_sample):
    tokenizer = TrainedBpe(vocab_size=2000)
    prepared = tokenizer.prepare(corpora_sample)
    chosen = [text[:300] for text in corpora_sample]
    wanted = [[*bpe_tokens(prepared, text), 0] for text in chosen]
    assert split(tokenizer.load(prepared).encode(array(*chosen))) == wanted


@pytest.mark.corpora
@pytest.mark.skipif(importlib.util.find_spec("fastokens") is None, reason="fastokens is not installed")
def test_fastokens_gives_the_ids_of_tokenizers_on_real_text(gpt2, corpora_sample):
    config = json.loads(gpt2.read_bytes())
    slow, fast = tokenizer_json._with_tokenizers(tokenizer_json._slow(config)), tokenizer_json._fast(config)
    assert all(
        np.array_equal(one, other) for one, other in zip(slow(corpora_sample), fast(corpora_sample), strict=True)
    )


@pytest.mark.corpora
def test_gpt2_through_tiktoken_gives_the_same_ids(gpt2, corpora_sample):
    public = pytest.importorskip("tiktoken_ext.openai_public")
    byte_of = {char: byte for byte, char in byte_chars().items()}
    vocabulary = json.loads(gpt2.read_bytes())["model"]["vocab"]
    ranks = {bytes(byte_of[c] for c in token): rank for token, rank in vocabulary.items() if token != "<|endoftext|>"}
    kept = {
        "encoding": "gpt2",
        "pattern": public.r50k_pat_str,
        "special_tokens": {"<|endoftext|>": 50256},
        "ranks": [[base64.b64encode(token).decode(), rank] for token, rank in ranks.items()],
    }
    texts = array(*corpora_sample, "\n".join(corpora_sample))
    assert len(texts[-1].as_py().encode()) > 2 * CUT_BYTES
    found = Tiktoken(encoding="gpt2").load(json.dumps(kept).encode()).encode(texts)
    wanted = loaded(Pretrained(source=str(gpt2))).encode(texts)
    assert all(np.array_equal(one, other) for one, other in zip(found, wanted, strict=True))
