"""Cuts in huge documents: where they may be, and that no id changes."""

import itertools
import json

import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from dataeff.cuts import PROVED_PATTERNS, cuts, provable

PARTS = (
    *("word", "Word", "wORD", " ", "  ", "\n", "\n\n", "\r\n", "\t", ",", ".", "...", "!", "/", "'", "'s", "'LL", "_"),
    *(
        "1",
        "234",
        "é",
        "e\u0301",
        "\u0301",
        "ß",
        "İ",
        "ǅ",
        "字",
        "漢字",
        "。",
        "、",
        "，",
        "かな",
        "ไทย",
        "ำ",
        "한글",
        "\u1112\u1161",
    ),
    *(
        "\u00a0",
        "\u2028",
        "\x00",
        "\x85",
        "½",
        "Ⅷ",
        "👨‍👩‍👧",
        "\u0958",
        "\ufe70",
        "𐐷",
        "𠮷",
        "\ufeff",
        "<|endoftext|>",
        "-=",
        " ,",
    ),
)
TEXTS = st.lists(st.sampled_from(PARTS), max_size=60).map("".join)


def trained(pre_tokenizer, texts, normalizer=None):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    tokenizer.train_from_iterator(texts, trainer=trainer)
    return tokenizer


def splitting_by(pattern):
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


@pytest.fixture(scope="module")
def proved():
    """One trained tokenizer for each expression that cuts are proved for, and the two ways to say GPT-2's."""
    texts = ["".join(pair) * 3 for pair in itertools.product(PARTS, PARTS)]
    made = [trained(splitting_by(pattern), texts) for pattern in sorted(PROVED_PATTERNS)]
    made.append(trained(pre_tokenizers.ByteLevel(add_prefix_space=False), texts))
    made.append(trained(splitting_by(min(PROVED_PATTERNS)), texts, tokenizers.normalizers.NFC()))
    return made


def pieces(text, piece_bytes):
    data = np.frombuffer(text.encode(), np.uint8)
    bounds = [0, *cuts(data, piece_bytes).tolist(), len(data)]
    return [data[low:high].tobytes().decode() for low, high in itertools.pairwise(bounds)]


def ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


@given(text=TEXTS, piece_bytes=st.integers(1, 24))
@example(text="a\u0301 b\u0301\n", piece_bytes=1)
@example(text="don't, 'll be.\n\nX/Y 12 a", piece_bytes=2)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pieces_have_the_ids_of_the_whole(proved, text, piece_bytes):
    parts = pieces(text, piece_bytes)
    assert "".join(parts) == text
    for tokenizer in proved:
        assert list(itertools.chain.from_iterable(ids(tokenizer, part) for part in parts)) == ids(tokenizer, text)


def test_every_expression_of_the_proof_is_recognised_in_a_tokenizer_file(proved):
    assert [provable(json.loads(tokenizer.to_str())) for tokenizer in proved] == [True] * len(proved)


def test_text_without_a_safe_place_stays_whole():
    for text in ("a" * 5000, "1 2 3. " * 1000, "\n" * 5000, "!? " * 1000, "e\u0301 " * 1000, ""):
        assert len(cuts(np.frombuffer(text.encode(), np.uint8), 100)) == 0


@pytest.mark.parametrize(
    "text", ["word " * 400_000, "漢字仮名、交じり文。" * 100_000, "one\n" * 500_000, "x" * 10**6 + " y"]
)
def test_cuts_leave_pieces_of_about_the_size_asked_for_where_there_are_places(text):
    data = np.frombuffer(text.encode(), np.uint8)
    sizes = np.diff([0, *cuts(data).tolist(), len(data)])
    assert (sizes > 0).all()
    assert sizes.max() <= (len(data) if text[0] == "x" else (1 << 18) + (1 << 12))


def with_config(**changes):
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return {**json.loads(tokenizer.to_str()), **changes}


def added(content, **flags):
    plain = {"id": 1, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {**plain, "content": content, **flags}


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"type": "Unigram"}},
        {"model": {"type": "WordPiece"}},
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": {"type": "Prepend", "prepend": "_"}},
        {"pre_tokenizer": None},
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "_"}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True}},
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}},
        {"added_tokens": [added("two words. here")]},
        {"added_tokens": [added("ok", rstrip=True)]},
        {"added_tokens": [added("ünsafe")]},
    ],
    ids=str,
)
def test_a_tokenizer_without_the_proof_is_left_to_take_documents_whole(changes):
    assert provable(with_config())
    assert not provable(with_config(**changes))


def test_added_tokens_that_no_cut_can_touch_keep_the_proof():
    tokens = [added("<|endoftext|>", special=True, lstrip=True), added("    "), added("<tool>")]
    assert provable(with_config(added_tokens=tokens))
