from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.kernel.greedy import decide
from tests.oracle import greedy as oracle

documents = st.lists(st.frozensets(st.integers(1, 12), max_size=8), min_size=1, max_size=25)


def arranged(sets, num_bands, seed):
    rng = np.random.default_rng(seed)
    values = [np.array(sorted(entry), np.uint64) for entry in sets]
    buckets = rng.integers(0, 4, (len(sets), num_bands)) + 4 * np.arange(num_bands)
    buckets[rng.random(buckets.shape) < 0.3] = -1
    content = np.stack([np.arange(1, len(sets) + 1)] * 2, axis=1).astype(np.uint64)
    signatures = rng.integers(0, 3, (len(sets), 8)).astype(np.uint32)
    # Sets may lie in any order.
    order = rng.permutation(len(sets))
    flat = np.concatenate([values[row] for row in order])
    lengths = np.array([len(values[row]) for row in order])
    bounds = np.zeros((len(sets), 2), np.int64)
    bounds[order] = np.stack([np.cumsum(lengths) - lengths, np.cumsum(lengths)], axis=1)
    return content, np.concatenate([np.full((len(sets), 1), -1), buckets], axis=1), signatures, flat, bounds


@given(
    sets=documents,
    threshold=st.sampled_from([0.3, 0.5, 0.8, 1.0]),
    contained=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_a_document_goes_exactly_when_a_kept_candidate_proves_it(sets, threshold, contained, seed):
    content, buckets, signatures, flat, bounds = arranged(sets, 3, seed)
    whole = np.array([0, len(sets)])
    survivors, shared, skipped = decide(
        whole, content, buckets, signatures, flat, bounds, threshold=threshold, containment=contained
    )
    linked = [[bool(((a == b) & (a >= 0)).any()) for b in buckets] for a in buckets]
    proofs = oracle.decide(sets, linked, threshold, contained)
    assert skipped == 0
    assert [int(row) >= 0 for row in survivors] == [count > 0 for count in proofs]
    for row, survivor in enumerate(survivors):
        if survivor >= 0:
            assert survivors[survivor] < 0
            assert shared[row] == len(sets[row] & sets[survivor])
            assert oracle.similar(sets[row], sets[survivor], threshold, contained)


def test_a_chain_removes_only_what_is_proved():
    chain = [frozenset(range(start, start + 10)) for start in (0, 1, 2)]
    content, _, signatures, flat, bounds = arranged(chain, 1, 0)
    one_bucket = np.array([[-1, 0]] * 3)
    survivors, _, _ = decide(
        np.array([0, 3]), content, one_bucket, signatures, flat, bounds, threshold=0.8, containment=False
    )
    assert survivors.tolist() == [-1, 0, -1]


def test_a_bucket_with_many_unlike_members_is_compared_only_within_the_limits():
    rng = np.random.default_rng(3)
    count, size = 3000, 20
    flat = np.sort(rng.integers(0, 2**60, (count, size), dtype=np.uint64), axis=1).reshape(-1)
    survivors, _, skipped = decide(
        np.array([0, count]),
        rng.integers(1, 2**60, (count, 2), dtype=np.uint64),
        np.tile(np.array([-1, 0]), (count, 1)),
        np.zeros((count, 8), np.uint32),
        flat,
        np.stack([np.arange(count), np.arange(1, count + 1)], axis=1) * size,
        threshold=0.8,
        containment=False,
        scan_limit=16,
        verify_limit=4,
    )
    assert (survivors == -1).all()
    unscanned = count - 1 - 16
    unverified = sum(min(row, 16) - 4 for row in range(5, count))
    assert skipped == unscanned + unverified


def test_equal_content_needs_no_shingles():
    content = np.array([[7, 1], [7, 2], [7, 1]], np.uint64)
    survivors, _, _ = decide(
        np.array([0, 3]),
        content,
        np.zeros((3, 1), np.int64),
        np.zeros((3, 0), np.uint32),
        np.zeros(0, np.uint64),
        np.zeros((3, 2), np.int64),
        threshold=0.8,
        containment=False,
    )
    assert survivors.tolist() == [-1, -1, 0]
