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
