"""Passages that two token streams share, against a search with sets of tuples."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dataeff.kernel.passages import Passages, ngram_hashes

STREAM = st.lists(st.integers(0, 3), max_size=60).map(lambda ids: np.array(ids, np.uint16))


def covered(stream: np.ndarray, others: list[np.ndarray], n: int) -> np.ndarray:
    """The slow twin: tokens inside an n-gram that stands in another stream."""
    there = {tuple(other[at : at + n].tolist()) for other in others for at in range(len(other) - n + 1)}
    found = np.zeros(len(stream), np.bool_)
    for at in range(len(stream) - n + 1):
        if tuple(stream[at : at + n].tolist()) in there:
            found[at : at + n] = True
    return found


@given(streams=st.lists(STREAM, min_size=1, max_size=4), others=st.lists(STREAM, max_size=4), n=st.integers(1, 6))
def test_a_token_is_met_if_a_passage_around_it_stands_elsewhere(streams, others, n):
    passages = Passages(streams, n)
    for other in others:
        passages.meet(other)
    for stream in streams:
        assert (passages.met(stream) == covered(stream, others, n)).all()


def test_width_of_the_ids_does_not_matter():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 50_000, 1000)
    assert (ngram_hashes(ids.astype(np.uint16), 16) == ngram_hashes(ids.astype(np.uint32), 16)).all()
    assert len(ngram_hashes(ids[:15].astype(np.uint16), 16)) == 0
    assert len(set(ngram_hashes(ids.astype(np.uint32), 16).tolist())) == 985


def test_a_passage_cut_by_one_token_is_not_met():
    rng = np.random.default_rng(1)
    held, other = rng.integers(0, 50_000, (2, 400)).astype(np.uint16)
    other[100:115] = held[200:215]
    passages = Passages([held], 16)
    passages.meet(other)
    assert not passages.met(held).any()
    other[115] = held[215]
    passages.meet(other)
    assert np.flatnonzero(passages.met(held)).tolist() == list(range(200, 216))
