"""The kernels that look at text letter by letter, against their slow twins."""

from __future__ import annotations

import itertools
import random
import unicodedata
from pathlib import Path

import datasketch
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.arrow import text_views
from dataeff.dedup.bands import detection_probability, optimal
from dataeff.errors import PlanError
from dataeff.kernel import minhash
from dataeff.kernel.content import content_hashes
from dataeff.kernel.newlines import normalise_newlines
from dataeff.kernel.shingles import shingle_sets, sketch
from dataeff.kernel.words import PIECE, normal_form
from tests.oracle import shingles as oracle

ODD = [
    "",
    " \t\n",
    "plain words in a row, and some more of them",
    "Straße STRASSE ﬁn ŉa İstanbul ΐ",
    "他们在北京大学学习中文 and English 混合_text",
    "มนุษย์ทั้งหลายเกิดมามีอิสระ",
    "ພາສາລາວ ភាសាខ្មែរ မြန်မာဘာသာ",
    "Cafe\u0301 déjà vu A\u030a \u212b q\u0307\u0323",
    "한국어 \u1112\u1161\u11ab",
    "ａｂｃ full width ①",
    "ﾃｷｽﾄ を半角ｶﾅで \U0001b002 〲",
    "nul\0bytes\0here",
    "x" * 8 + " " + "y" * 64 + " " + "z" * 65,
    "_under_score_ 12_3",
    "\u0301 a mark first",
    "👩‍👩‍👧 emoji \U0010ffff \ufffd",
    "word " * 3000,
]
alphabet = st.one_of(
    st.characters(codec="utf-8"),
    st.sampled_from("ab AB_1 .,\n\r\t\0éÉßİﬁ\u0301\u0323\u3000漢字かな한글ไทย\u0e31лЛ" + "\u1161\u11a8\u0130\u1e9e"),
)
texts = st.lists(st.one_of(st.text(alphabet, max_size=60), st.sampled_from(ODD)), max_size=6)


def views(rows):
    return text_views(pa.array(rows, pa.large_string()))


@given(rows=texts, unit=st.sampled_from(["word", "char"]), n=st.integers(1, 6), form=st.sampled_from(["NFC", "NFKC"]))
@settings(deadline=None, max_examples=300)
def test_shingle_sets_are_equal_exactly_where_the_shingles_are(rows, unit, n, form):
    hashes, offsets = shingle_sets(*views(rows), unit=unit, n=n, form=form)
    for row, text in enumerate(rows):
        mine = set(hashes[offsets[row] : offsets[row + 1]].tolist())
        expected = set(oracle.shingles(text, unit, n, form))
        assert len(mine) == offsets[row + 1] - offsets[row] == len(expected)
        for other in range(row):
            theirs = set(hashes[offsets[other] : offsets[other + 1]].tolist())
            assert len(mine & theirs) == len(expected & set(oracle.shingles(rows[other], unit, n, form)))


@pytest.mark.parametrize("shift", [0, 1, 2, 3, 5, 40])
def test_a_row_of_many_pieces_has_the_shingles_that_it_has_in_small(shift):
    between = "他们ไทยที่ мир\u0301 und Straße, " + "z" * 70 + " ŉ\u0323 x_1 e\u0301\u0302 \U00020000\u3099ﾃ "
    text = "a" * shift + between * (3 * PIECE // len(between.encode()) + 1)
    shingles = list(dict.fromkeys(oracle.shingles(text, "word", 3, "NFC")))
    rows = [unicodedata.normalize("NFC", text), *map(" ".join, shingles)]
    hashes, offsets = shingle_sets(*views(rows), n=3, form=None)
    assert np.array_equal(hashes[: offsets[1]], np.sort(hashes[offsets[1] :]))
    assert offsets[1] == len(shingles)


def test_one_word_of_many_pieces_is_one_shingle():
    rows = ["x" * 1_000_000, "x" * 1_000_000 + " ", " " * PIECE + "x" * 1_000_000 + "\n" * PIECE, "x" * 999_999]
    hashes, offsets = shingle_sets(*views(rows))
    assert offsets.tolist() == [0, 1, 2, 3, 4]
    assert hashes[0] == hashes[1] == hashes[2] != hashes[3]
    rows = ["e" + "\u0301" * 200_000, "字" + "\u0301" * 200_000 + "字", "字" + "\u0301" * 200_000]
    hashes, offsets = shingle_sets(*views(rows), n=1, form=None)
    assert offsets.tolist() == [0, 1, 3, 4]
    assert hashes[3] in hashes[1:3]


def test_a_row_of_bytes_that_only_continue_characters_ends():
    data = np.full(3 * PIECE, 0x80, np.uint8)
    data.flags.writeable = False
    offsets = np.array([0, len(data)])
    offsets.flags.writeable = False
    assert shingle_sets(data, offsets, form=None)[1].tolist() == [0, 0]


@given(rows=texts, unit=st.sampled_from(["word", "char"]), n=st.integers(1, 6))
@settings(deadline=None, max_examples=100)
def test_a_sketch_is_the_datasketch_signature_of_the_same_shingles(rows, unit, n):
    a, b = minhash.permutations(16, 1)
    signatures, counts = sketch(*views(rows), unit=unit, n=n, a=a, b=b)
    hashes, offsets = shingle_sets(*views(rows), unit=unit, n=n)
    for row, text in enumerate(rows):
        assert counts[row] == len(oracle.shingles(text, unit, n, "NFC"))
        theirs = datasketch.MinHash(num_perm=16, hashfunc=lambda value: value)
        theirs.update_batch([int(value) >> 32 for value in hashes[offsets[row] : offsets[row + 1]]])
        assert signatures[row].tolist() == theirs.hashvalues.tolist()


def test_permutations_and_signatures_are_those_of_datasketch():
    rng = np.random.default_rng(0)
    for num_perm, seed in ((112, 1), (128, 7), (126, 3), (1, 1)):
        a, b = minhash.permutations(num_perm, seed)
        hashes = rng.integers(0, 1 << 32, 5000, dtype=np.uint32)
        offsets = np.array([0, 0, 1, 1700, 5000])
        signatures = minhash.signatures(hashes, offsets, a, b)
        for row in range(4):
            theirs = datasketch.MinHash(num_perm=num_perm, seed=seed, hashfunc=int)
            theirs.update_batch(hashes[offsets[row] : offsets[row + 1]].tolist())
            assert signatures[row].tolist() == theirs.hashvalues.tolist()


@given(rows=texts)
@settings(deadline=None, max_examples=200)
def test_content_hashes_are_equal_exactly_where_contents_are(rows):
    contents = [" ".join(unicodedata.normalize("NFC", text).split()) for text in rows]
    hashes = [tuple(pair) for pair in content_hashes(*normal_form(*views(rows), "NFC")).tolist()]
    for row, content in enumerate(contents):
        assert (hashes[row] == (0, 0)) == (content == "")
        for other in range(row):
            assert (hashes[row] == hashes[other]) == (content == contents[other])


@pytest.mark.parametrize("space", [" ", "\n", "\x85", "\u00a0", "\u1680", "\u2009", "\u2028", "\u3000", " \u3000\t"])
def test_white_space_is_one_space_wherever_it_stands(space):
    for before in (*range(56, 73), 200):
        rows = ["é" * before + gap + "b" for gap in (space, " ", "")] + [space + "é" * before + space]
        hashes = content_hashes(*views([*rows, "é" * before])).tolist()
        assert hashes[0] == hashes[1] != hashes[2]
        assert hashes[3] == hashes[4]


def test_contents_that_differ_in_zeros_or_in_where_words_end_differ():
    rows = [
        "",
        "\0",
        "\0\0",
        "a",
        "a\0",
        "a\0\0",
        "abcdefgh",
        "abcdefgh\0",
        "abcdefg h",
        "ab c",
        "a bc",
        "a b c",
        "abc",
    ]
    assert len(np.unique(content_hashes(*views(rows)), axis=0)) == len(rows)


@given(rows=texts, form=st.sampled_from(["NFC", "NFKC"]))
@settings(deadline=None, max_examples=200)
def test_normal_form_is_that_of_unicodedata(rows, form):
    data, offsets = normal_form(*views(rows), form)
    made = [bytes(data[offsets[row] : offsets[row + 1]]).decode() for row in range(len(rows))]
    assert made == [unicodedata.normalize(form, text) for text in rows]


def test_no_sequence_of_composing_characters_passes_for_normal_when_it_is_not():
    known = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")]
    plain = [text for text in known if unicodedata.is_normalized("NFC", text)]
    composed = [unicodedata.decomposition(text).split() for text in known]
    pairs = [parts for parts in composed if len(parts) == 2 and not parts[0].startswith("<")]
    pools = [
        [chr(int(first, 16)) for first, _ in pairs] + ["ᄀ", "가", "각", "x"],
        [chr(int(second, 16)) for _, second in pairs] + ["\u1161", "\u11a8"],
        [text for text in known if unicodedata.combining(text)],
        [text for text in known if unicodedata.decomposition(text)],
        plain,
    ]
    rng = random.Random(5)
    rows = ["".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 5))) for _ in range(40_000)]
    for form in ("NFC", "NFKC"):
        data, offsets = normal_form(*views(rows), form)
        bounds = itertools.pairwise(offsets.tolist())
        made = [bytes(data[start:stop]).decode() for start, stop in bounds]
        assert made == [unicodedata.normalize(form, text) for text in rows]


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_passages_far_apart_and_near_are_normalised_alike(form):
    rows = [
        "",
        *("क\u093c" + "x" * apart + "e\u0301 가\u11a8" + "字" * apart + "ﬁ" for apart in range(70)),
        "e\u0301" * 40,
    ]
    data, offsets = normal_form(*views(rows), form)
    made = [bytes(data[start:stop]).decode() for start, stop in itertools.pairwise(offsets.tolist())]
    assert made == [unicodedata.normalize(form, text) for text in rows]
    some, bounds = normal_form(*text_views(pa.array(rows, pa.large_string()).slice(30, 20)), form)
    assert bytes(some[bounds[0] : bounds[-1]]).decode() == "".join(made[30:50])


def test_normal_text_whose_marks_compose_with_nothing_is_not_copied():
    rows = ["बड़ा पेड़", "বাংলায় লেখা", "தமிழ் மொழி", "ไม่มีที่สิ้นสุด", "déjà vu, 다시", "العَرَبِيَّة"]
    data, offsets = views([unicodedata.normalize("NFC", text) for text in rows])
    assert normal_form(data, offsets, "NFC") == (data, offsets)


@given(rows=st.lists(st.text(st.sampled_from("a\r\né"), max_size=12), max_size=6))
@settings(deadline=None)
def test_newlines_become_line_feeds(rows):
    data, offsets, changed = normalise_newlines(*views(rows))
    made = [bytes(data[offsets[row] : offsets[row + 1]]).decode() for row in range(len(rows))]
    assert made == [text.replace("\r\n", "\n").replace("\r", "\n") for text in rows]
    assert changed.tolist() == ["\r" in text for text in rows]


def test_a_slice_of_an_array_gives_what_the_rows_alone_give():
    whole = pa.array(ODD, pa.large_string())
    a, b = minhash.permutations(16, 1)
    everything, _ = sketch(*text_views(whole), a=a, b=b)
    some, _ = sketch(*text_views(whole.slice(3, 5)), a=a, b=b)
    assert np.array_equal(some, everything[3:8])
    assert np.array_equal(content_hashes(*text_views(whole.slice(2, 3))), content_hashes(*text_views(whole))[2:5])


def test_bytes_that_are_not_utf8_are_read_within_bounds():
    rng = np.random.default_rng(1)
    a, b = minhash.permutations(16, 1)
    for size in (1, 2, 3, 7, 8, 9, 200):
        for _ in range(50):
            data = rng.integers(0, 256, size, dtype=np.uint8)
            data.flags.writeable = False
            offsets = np.array([0, size // 2, size])
            offsets.flags.writeable = False
            signatures, counts = sketch(data, offsets, form=None, a=a, b=b)
            assert (counts >= 0).all()
            assert ((signatures != minhash.EMPTY).any(axis=1) == (counts > 0)).all()
            assert content_hashes(data, offsets).shape == (2, 2)


def test_band_keys_are_equal_exactly_where_bands_are():
    rng = np.random.default_rng(2)
    signatures = rng.integers(0, 2, (200, 12)).astype(np.uint32)
    keys = minhash.bands(signatures, 4, 3)
    by_key: dict[int, tuple[int, ...]] = {}
    for row in range(200):
        for band in range(4):
            content = (band, *signatures[row, band * 3 : band * 3 + 3].tolist())
            assert by_key.setdefault(int(keys[row, band]), content) == content
    assert len(by_key) == len(set(by_key.values()))


def test_arguments_that_would_read_out_of_bounds_are_refused():
    a, b = minhash.permutations(16, 1)
    for n in (0, 65):
        with pytest.raises(PlanError, match="1 to 64"):
            sketch(*views(["some words"]), n=n, a=a, b=b)
        with pytest.raises(PlanError, match="1 to 64"):
            shingle_sets(*views(["some words"]), n=n)
    for shape in ((17, 1), (3, 6), (0, 4)):
        with pytest.raises(PlanError, match="16 values"):
            minhash.bands(np.zeros((2, 16), np.uint32), *shape)


def test_bands_follow_datasketch_and_the_s_curve():
    published = {(0.5, 128): (25, 5), (0.7, 128): (14, 9), (0.8, 128): (9, 13), (0.7, 256): (25, 10)}
    assert {key: optimal(*key) for key in published} == published
    assert detection_probability(0.8, 14, 8) == pytest.approx(0.92355, abs=1e-5)
    assert detection_probability(0.0, 14, 8) == 0
    assert detection_probability(1.0, 14, 8) == 1
    with pytest.raises(PlanError):
        optimal(1.5, 128)


@pytest.mark.corpora
def test_real_text_in_every_script_has_the_shingles_of_the_slow_twin(corpora: Path):
    rows = pq.read_table(corpora / "udhr2.parquet", columns=["text"]).column("text").to_pylist()[::4]
    rows += pq.read_table(corpora / "xquad.parquet", columns=["text"]).column("text").to_pylist()[::40]
    hashes, offsets = shingle_sets(*views(rows), n=5)
    for row, text in enumerate(rows):
        assert offsets[row + 1] - offsets[row] == len(set(oracle.shingles(text, "word", 5, "NFC")))
    assert len(set(hashes.tolist())) == len(
        {shingle for text in rows for shingle in oracle.shingles(text, "word", 5, "NFC")}
    )
