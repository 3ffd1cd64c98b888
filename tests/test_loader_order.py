"""The global order: permutations, the turns of sources, and both together, against slow twins."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.errors import PlanError
from dataeff.kernel.interleave import interleaved, taken_before
from dataeff.kernel.permutation import KEYS, permuted
from dataeff.loader.order import PARTS, Change, Order, Source, natural_weights, whole_weights
from tests.oracle import order as oracle

KEY = st.lists(st.integers(0, 2**64 - 1), min_size=KEYS, max_size=KEYS)
WEIGHTS = st.lists(st.integers(0, 12), min_size=1, max_size=6).filter(any)


def sources(*shards: tuple[int, ...]) -> tuple[Source, ...]:
    made, first = [], 0
    for number, rows in enumerate(shards):
        made.append(Source(name=f"source-{number}", first_shard=first, shard_rows=rows))
        first += len(rows)
    return tuple(made)


def an_order(shards, weights=None, seed=0, window_shards=None, changes=()) -> Order:
    made = sources(*shards)
    schedule = (Change(position=0, weights=tuple(weights or natural_weights(made))), *changes)
    rows = sum(source.rows for source in made)
    return Order(sources=made, seed=seed, schedule=schedule, rows_per_epoch=rows, window_shards=window_shards)


def pairs(order: Order, position: int, count: int) -> list[tuple[int, int]]:
    rows = order.rows(position, count)
    return list(zip(rows.shards.tolist(), rows.rows.tolist(), strict=True))


@settings(deadline=None)
@given(size=st.integers(1, 300), keys=KEY)
def test_a_permutation_is_the_written_out_one_from_any_place_on(size, keys):
    made = permuted(0, size, size, np.array(keys, np.uint64)).tolist()
    assert made == oracle.permutation(size, keys)
    assert sorted(made) == list(range(size))
    middle = size // 2
    assert permuted(middle, size - middle, size, np.array(keys, np.uint64)).tolist() == made[middle:]


def test_permutations_are_even_every_value_is_as_likely_at_every_place():
    rng = np.random.default_rng(0)
    size, draws = 7, 6000
    counts = np.zeros((size, size))
    for _ in range(draws):
        made = permuted(0, size, size, rng.integers(0, 2**64, KEYS, dtype=np.uint64))
        counts[np.arange(size), made] += 1
    expected = draws / size
    statistic = ((counts - expected) ** 2 / expected).sum()
    # Chi-squared with (size - 1)**2 degrees of freedom: mean 36, deviation 8.5.
    assert statistic < 36 + 6 * 8.5


def test_neighbours_in_a_permutation_are_as_far_apart_as_in_a_shuffled_list():
    made = permuted(0, 50_000, 50_000, np.random.default_rng(1).integers(0, 2**64, KEYS, dtype=np.uint64))
    assert np.abs(np.diff(made)).mean() / 50_000 == pytest.approx(1 / 3, abs=0.01)
    assert abs(np.corrcoef(made[:-1], made[1:])[0, 1]) < 0.02


@settings(deadline=None)
@given(weights=WEIGHTS, position=st.integers(0, 200), count=st.integers(0, 60))
def test_sources_take_turns_as_written_out_from_any_position_on(weights, position, count):
    wanted = oracle.interleaving(weights, position + count)
    array = np.array(weights, np.int64)
    taken = taken_before(array, position)
    assert taken.tolist() == [wanted[:position].count(source) for source in range(len(weights))]
    found, ordinals = interleaved(array, taken, count)
    assert found.tolist() == wanted[position:]
    for place, (source, ordinal) in enumerate(zip(found.tolist(), ordinals.tolist(), strict=True)):
        assert ordinal == wanted[: position + place].count(source)


@settings(deadline=None, max_examples=50)
@given(weights=st.lists(st.integers(1, 2**27), min_size=1, max_size=12), share=st.floats(0, 3))
def test_shares_hold_at_any_position_to_within_the_number_of_sources(weights, share):
    total = sum(weights)
    position = int(share * total)
    taken = taken_before(np.array(weights, np.int64), position)
    assert taken.sum() == position
    for weight, count in zip(weights, taken.tolist(), strict=True):
        assert abs(count - position * weight / total) <= len(weights)


@settings(deadline=None, max_examples=60)
@given(
    shards=st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3).filter(any), min_size=1, max_size=4),
    data=st.data(),
)
def test_the_order_is_the_written_out_one(shards, data):
    weights = data.draw(st.lists(st.integers(0, 5), min_size=len(shards), max_size=len(shards)).filter(any))
    order = an_order([tuple(rows) for rows in shards], weights, seed=data.draw(st.integers(0, 3)))

    @functools.cache
    def permutation(source: int, epoch: int) -> list[int]:
        return oracle.permutation(sum(shards[source]), order._keys(source, epoch, 0).tolist())

    wanted = oracle.order([sum(rows) for rows in shards], weights, 80, permutation)
    flat = {}
    for source, rows in enumerate(shards):
        places = [(order.sources[source].first_shard + at, row) for at, num in enumerate(rows) for row in range(num)]
        flat.update({(source, number): place for number, place in enumerate(places)})
    assert pairs(order, 0, 80) == [flat[entry] for entry in wanted]
    assert pairs(order, 33, 20) == [flat[entry] for entry in wanted][33:53]
    assert order.drawn(50).tolist() == [[source for source, _ in wanted[:50]].count(n) for n in range(len(shards))]


@pytest.mark.parametrize("window_shards", [None, 1, 2, 3, 50])
def test_natural_weights_see_every_row_once_an_epoch_in_another_order_each_time(window_shards):
    order = an_order([(5, 0, 9, 2), (1,), (30, 30)], window_shards=window_shards)
    epochs = [pairs(order, epoch * 77, 77) for epoch in range(3)]
    everything = Counter((shard, row) for shard, num in enumerate([5, 0, 9, 2, 1, 30, 30]) for row in range(num))
    assert all(Counter(epoch) == everything for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_a_window_touches_no_more_shards_of_a_source_at_a_time_than_it_says():
    order = an_order([(50,) * 10], window_shards=2)
    shards = order.rows(0, 500).shards
    for window in range(5):
        assert len(set(shards[window * 100 : (window + 1) * 100].tolist())) == 2
    assert len(set(shards.tolist())) == 10


def test_a_change_of_weights_takes_effect_at_its_row_and_leaves_what_was_before():
    before = an_order([(40,), (40,)], [1, 1])
    after = dataclasses.replace(before, schedule=(*before.schedule, Change(position=25, weights=(1, 4))), _tables={})
    assert pairs(after, 0, 25) == pairs(before, 0, 25)
    assert after.rows(25, 50).sources.tolist().count(1) == 40
    seen = pairs(after, 0, 25 + 34)
    assert len(set(seen)) == len(seen), "no row comes twice before its source is through"
    assert pairs(after, 20, 20) == pairs(after, 20, 5) + pairs(after, 25, 15)


def test_another_seed_is_another_order_and_the_same_seed_is_the_same():
    assert pairs(an_order([(99,)], seed=1), 0, 99) == pairs(an_order([(99,)], seed=1), 0, 99)
    assert pairs(an_order([(99,)], seed=1), 0, 99) != pairs(an_order([(99,)], seed=2), 0, 99)


def test_a_billion_rows_need_no_list_of_them():
    order = an_order([(10**6,) * 700, (10**6,) * 300])
    rows = order.rows(730_000_000, 64)
    assert len(set(zip(rows.shards.tolist(), rows.rows.tolist(), strict=True))) == 64
    assert rows.shards.max() < 1000
    assert (rows.rows < 10**6).all()


def test_weights_become_whole_rows_and_none_that_was_given_is_lost():
    made = sources((10,), (10,), (10,))
    weights = whole_weights({"source-0": 0.3, "source-1": 0.7, "source-2": 1e-9}, made)
    assert weights[2] == 1
    assert weights[0] / sum(weights) == pytest.approx(0.3, abs=2 / PARTS)
    assert whole_weights({"source-0": 2, "source-1": 2}, made) == (1, 1, 0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"source-0": -1.0}, "0 or more"),
        ({"source-0": float("nan")}, "0 or more"),
        ({"nobody": 1.0}, "which the corpus lacks; it has source-0, source-1"),
        ({"source-0": 0.0}, "no source has a weight"),
        ({"source-1": 1.0}, "no rows to train on"),
    ],
)
def test_weights_that_cannot_work_are_refused(weights, message):
    with pytest.raises(PlanError, match=message):
        whole_weights(weights, sources((10,), (0,)))
