"""Repeated and frequent n-grams against plain Python, where their kernels take another way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.kernel.repetition import duplicate_ngrams, top_ngrams
from dataeff.kernel.segment import find_words
from tests.oracle import quality

LONGEST_TOP = 4
SHORTEST, LONGEST = 5, 10


def check(*rows: list[str]) -> None:
    """Compare rows of words, looked at together, with plain Python's."""
    raw = [" ".join(row).encode() for row in rows]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in raw])]).astype(np.int64)
    words = find_words(np.frombuffer(b"".join(raw) or b"\0", np.uint8), offsets, regex=False)
    top, duplicate = top_ngrams(words, LONGEST_TOP), duplicate_ngrams(words, SHORTEST, LONGEST)
    for number, row in enumerate(rows):
        assert top[number].tolist() == [quality.top_ngram(row, n) for n in range(2, LONGEST_TOP + 1)]
        assert duplicate[number].tolist() == [quality.duplicate_ngrams(row, n) for n in range(SHORTEST, LONGEST + 1)]


LENGTHS = st.sampled_from([1, 1, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 33])
WORDS = st.builds(lambda letter, length: letter * length, st.sampled_from("aab-é語"), LENGTHS)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.lists(WORDS, max_size=60), min_size=1, max_size=3), st.integers(1, 3))
def test_n_grams_of_few_letters_are_counted_as_by_plain_python(rows, times):
    check(*[row * times for row in rows])


@pytest.mark.parametrize("length", [*range(9, 42), 64, 200])
def test_n_grams_that_differ_in_one_byte_are_told_apart_wherever_it_is(length):
    for at in range(length):
        words = ["abcde"[place % 5] for place in range(4)]
        last = "y" * at + "z" + "y" * (length - at - 1)
        check([*words, "y" * length, *words, last, *words, last, *words, "y" * length], [])


@pytest.mark.parametrize("counts", [(254, 255), (255, 256), (256, 255), (300, 700), (700, 300), (256, 256)])
def test_counts_beyond_what_a_counter_holds_are_told_apart(counts):
    check(["a", "b", "c", "d", "e"] * counts[0] + ["v", "w", "x", "y", "z"] * counts[1], ["a"] * 300, ["b"] * 2)


def test_rows_after_a_much_longer_one_are_right():
    rng = np.random.default_rng(1)
    long = [str(number) for number in rng.integers(0, 10**9, 6000)] * 2
    check(["a", "b"] * 20, long, ["c"] * 40, long[: len(long) - 3000], ["d", "e", "f"] * 9)


@pytest.mark.parametrize("num", range(13))
def test_rows_of_few_words_next_to_each_other_do_not_mix(num):
    check(["a"] * num, ["a"] * num, [], ["a" * 70] * num)
