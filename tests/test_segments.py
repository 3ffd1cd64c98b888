"""Words, lines and paragraphs against plain Python."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.kernel import characters, lines, segment
from dataeff.kernel.tallies import tally_words
from dataeff.segments import Segments
from tests.oracle import quality
from tests.oracle.texts import HOSTILE, texts


def segments_of(*rows: str) -> Segments:
    return Segments(pa.array(rows, pa.large_string()))


def words_of(segments: Segments, split: str) -> list[list[str]]:
    """Words of each row as text."""
    words = segments.words(split)  # type: ignore[arg-type]
    cuts = [words.text[start:stop].tobytes().decode() for start, stop in itertools.pairwise(words.starts)]
    return [cuts[start:stop] for start, stop in itertools.pairwise(words.rows)]


def check_rows(rows: list[str]) -> None:
    """Compare all that is found in some rows with plain Python."""
    segments = segments_of(*rows)
    assert segments.chars_per_row.tolist() == [len(row) for row in rows]
    for split in ("whitespace", "regex"):
        expected = [quality.split(row, split) for row in rows]
        assert words_of(segments, split) == expected
        words = segments.words(split)  # type: ignore[arg-type]
        flat = [word for row in expected for word in row]
        assert np.diff(words.chars).tolist() == [len(word) for word in flat]
        assert [bool(kind & segment.HAS_LETTER) for kind in words.kinds] == [any(map(str.isalpha, w)) for w in flat]
        assert [bool(kind & segment.HAS_CONTENT) for kind in words.kinds] == [
            any(character not in quality.PUNCTUATION for character in word) for word in flat
        ]
        assert len(set(words.hashes.tolist())) == len(set(flat))
    found = segments.lines
    flat_lines = [line for row in rows for line in row.split("\n")]
    assert np.diff(found.rows).tolist() == [row.count("\n") + 1 for row in rows]
    assert found.chars.tolist() == [len(line) for line in flat_lines]
    assert [bool(kind & lines.BLANK) for kind in found.kinds] == [not line.strip() for line in flat_lines]
    assert len(set(found.hashes.tolist())) == len(set(flat_lines))


@settings(deadline=None, max_examples=300)
@given(st.lists(texts, max_size=4))
def test_words_and_lines_are_those_of_plain_python(rows):
    check_rows(rows)


def test_hostile_texts_have_the_words_and_lines_of_plain_python():
    check_rows(list(HOSTILE.values()))


@settings(deadline=None, max_examples=150)
@given(texts)
def test_paragraphs_and_line_forms_are_those_of_plain_python(text):
    segments = segments_of("before it", text, "after it")
    paragraphs = re.split(r"\n{2,}", text.strip())
    found = lines.repeated_paragraphs(segments.data, segments.offsets, segments.lines)
    repeats = (found.total[1], found.duplicates[1], found.duplicate_chars[1])
    assert repeats == (len(paragraphs), *quality.find_duplicates(paragraphs))
    split = re.split(r"\n+", text)
    found = lines.repeated_lines(segments.lines)
    repeats = (found.total[1], found.duplicates[1], found.duplicate_chars[1])
    assert repeats == (len(split), *quality.find_duplicates(split))
    odd = segments.words().odd_breaks
    assert odd.tolist() == segments.words("regex").odd_breaks.tolist()
    forms = lines.count_line_forms(segments.data, segments.lines, odd)
    assert forms[0][1] == len(text.splitlines())


def test_a_space_that_straddles_a_block_of_64_bytes_is_one_space():
    rows = ["x" * before + "\u3000" + "y" * 70 + "\u00a0z" for before in range(58, 66)]
    assert words_of(segments_of(*rows), "whitespace") == [row.split() for row in rows]


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 62, 63, 64, 65, 66, 127, 128, 129, 192, 193])
def test_words_that_end_at_or_by_a_blocks_end_are_those_of_plain_python(length):
    ends = ["", ".", '."', ".)x", "…", "é", "。", "’", "!?", "$."]
    words = [character * length + end for character in ("a", "7", "-", "é", "字") for end in ends]
    gaps = ["\n", " ", "\u2028", "\n\n", "\u3000 "]
    text = "".join(word + gaps[number % len(gaps)] for number, word in enumerate(words))
    check_rows([text, text[:-1], *words, *(f"{'b' * (length % 7)} {word} c" for word in words)])


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.sampled_from(["a", "b.", "...", "-", "--", "?!", "c。d", "“e.”"]), min_size=60, max_size=200),
    st.lists(st.sampled_from([" ", " ", " ", "\n"]), min_size=200, max_size=200),
)
def test_sentences_are_those_of_plain_python_however_many_words_are_between_their_ends(words, gaps):
    text = "".join(word + gap for word, gap in zip(words, gaps, strict=False))
    found = segments_of("before. It", text, "after").words().sentences
    assert found.tolist() == [2, sum(map(quality.count_sentences, text.splitlines())), 1]


def test_more_words_than_were_made_room_for_are_found():
    rows = ["a " * 5000, "", "b. \n" * 3000 + "c"]
    check_rows(rows)
    assert segments_of(*rows).words().sentences.tolist() == [1, 0, 3001]


@settings(deadline=None, max_examples=100)
@given(st.lists(texts, max_size=4), st.lists(texts, max_size=20))
def test_tallies_of_words_are_those_of_plain_python(rows, more):
    segments = segments_of(*rows)
    split = [row.split() for row in rows]
    given_words = sorted({word for text in [*rows[:1], *more] for word in text.split()})
    tally = tally_words(segments.words(), segment.word_hashes(given_words))
    content = [[word for word in words if any(c not in quality.PUNCTUATION for c in word)] for words in split]
    assert tally.content.tolist() == list(map(len, content))
    assert tally.content_chars.tolist() == [sum(map(len, words)) for words in content]
    assert tally.letters.tolist() == [sum(any(map(str.isalpha, word)) for word in words) for words in split]
    assert tally.stop_words.tolist() == [len({*words} & {*given_words}) for words in split]


def test_every_white_space_splits_words_and_its_neighbours_do_not():
    spaces = [code for code in range(0x3100) if chr(code).isspace()]
    codes = sorted({code + step for code in spaces for step in (-64, -1, 0, 1, 64) if code + step >= 0})
    rows = [f"{'x' * shift}{chr(code)}y" for code in codes for shift in (1, 5, 62)]
    assert words_of(segments_of(*rows), "whitespace") == [row.split() for row in rows]


def test_a_slice_of_an_array_is_read_from_its_own_place():
    rows = pa.array(["zero", "one two.", "three", "four"], pa.large_string())
    sliced = Segments(rows.slice(1, 2))
    assert words_of(sliced, "whitespace") == [["one", "two."], ["three"]]
    assert sliced.lines.chars.tolist() == [8, 5]


def test_no_rows_have_no_words_and_no_lines():
    segments = segments_of()
    assert len(segments.words().kinds) == len(segments.lines.kinds) == len(segments.chars_per_row) == 0


def test_bytes_that_are_not_utf8_have_words_and_do_no_harm():
    data = b"caf\xe9 \xff\xfe \xe2\x80 tail\xf0\x9f"
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    broken = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)])
    segments = Segments(broken)
    assert segments.words_per_row().tolist() == [4]
    assert len(segments.lines.kinds) == 1


def test_every_code_point_has_the_flags_that_python_gives_it():
    table = characters.characters()
    flags = table.flags.reshape(-1, 256)[table.block].reshape(-1)
    for code, flag in enumerate(flags.tolist()):
        character = chr(code)
        assert bool(flag & characters.SPACE) == character.isspace(), hex(code)
        assert bool(flag & characters.LETTER) == character.isalpha(), hex(code)
        assert bool(flag & characters.WORD) == (character.isalnum() or character == "_"), hex(code)
        assert bool(flag & characters.BREAK) == (len(f"a{character}b".splitlines()) == 2), hex(code)


def test_the_marks_are_as_many_as_datatrove_has():
    assert (len(quality.TERMINAL), len(quality.PUNCTUATION)) == (159, 281)


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["xquad", "udhr2", "linux_doc"])
def test_real_text_in_many_scripts_has_the_words_and_lines_of_plain_python(corpora, name):
    text = pq.read_table(corpora / f"{name}.parquet", columns=["text"]).column("text").to_pylist()
    check_rows([row[:5000] for row in text[:: max(1, len(text) // 60)]])
