"""The plan of epochs: weights, a budget, and a cap on repetition."""

import json
import math
from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataeff.errors import PlanError
from dataeff.mixture import copies, plan
from tests.oracle.mixtures import filled

NAMES = st.text("abcdefgh", min_size=1, max_size=3)


@st.composite
def problems(draw):
    tokens = draw(st.dictionaries(NAMES, st.integers(0, 10_000), min_size=1, max_size=8))
    raw = {name: draw(st.sampled_from([0, 1, 2, 5, 100])) for name in tokens}
    if not sum(raw.values()):
        raw[next(iter(raw))] = 1
    weights = {name: value / sum(raw.values()) for name, value in raw.items()}
    return weights, tokens, draw(st.integers(1, 100_000)), draw(st.none() | st.sampled_from([0.25, 1.0, 2.5, 4.0]))


def test_without_a_cap_every_source_gets_its_weight():
    mixture = plan({"web": 0.75, "books": 0.25}, {"web": 1000, "books": 10}, 400, None)
    assert mixture.sources["web"].use_tokens == 300
    assert mixture.sources["books"].use_tokens == 100
    assert mixture.sources["books"].epochs == 10.0
    assert (mixture.use_tokens, mixture.unreachable_tokens) == (400, 0)
    assert not any(share.capped for share in mixture.sources.values())


def test_what_a_capped_source_cannot_give_goes_to_the_others_by_weight():
    tokens = {"tiny": 10, "mid": 10_000, "big": 10_000}
    mixture = plan({"tiny": 0.5, "mid": 0.375, "big": 0.125}, tokens, 1040, 4.0)
    assert [share.use_tokens for share in mixture.sources.values()] == [40, 750, 250]
    assert [share.capped for share in mixture.sources.values()] == [True, False, False]
    assert mixture.sources["tiny"].epochs == 4.0
    assert mixture.sources["mid"].realised_share == 750 / 1040


def test_a_source_that_redistribution_pushes_over_the_cap_is_capped_too():
    tokens = {"a": 10, "b": 100, "c": 10_000}
    mixture = plan({"a": 0.6, "b": 0.1, "c": 0.3}, tokens, 900, 1.0)
    assert [share.use_tokens for share in mixture.sources.values()] == [10, 100, 790]
    assert [share.capped for share in mixture.sources.values()] == [True, True, False]


def test_a_budget_beyond_all_caps_is_stated_as_unreachable():
    mixture = plan({"a": 0.9, "b": 0.1, "unused": 0.0}, {"a": 10, "b": 20, "unused": 10**6}, 1000, 4.0)
    assert [share.use_tokens for share in mixture.sources.values()] == [40, 80, 0]
    assert (mixture.use_tokens, mixture.unreachable_tokens) == (120, 880)
    assert mixture.sources["b"].realised_share == 80 / 120


def test_a_weight_on_a_source_without_tokens_is_capped_at_nothing():
    mixture = plan({"gone": 0.5, "here": 0.5}, {"gone": 0, "here": 50}, 100, None)
    assert mixture.sources["gone"].capped
    assert mixture.sources["gone"].epochs == 0.0
    assert mixture.sources["here"].use_tokens == 100


def test_a_plan_is_plain_json():
    mixture = plan({"a": 1.0}, {"a": 10}, 7, None)
    assert json.loads(json.dumps(asdict(mixture), allow_nan=False))["sources"]["a"]["use_tokens"] == 7


@given(problems())
def test_a_plan_equals_handing_out_again_and_again_within_one_token(problem):
    weights, tokens, budget, max_epochs = problem
    mixture = plan(weights, tokens, budget, max_epochs)
    truth = filled(weights, tokens, budget, max_epochs)
    for name, share in mixture.sources.items():
        assert abs(share.use_tokens - truth[name]) <= 1 + 1e-6
    assert abs(mixture.use_tokens - sum(truth.values())) <= 1e-3


@given(problems())
def test_a_plan_keeps_every_cap_and_adds_up(problem):
    weights, tokens, budget, max_epochs = problem
    mixture = plan(weights, tokens, budget, max_epochs)
    shares = mixture.sources
    assert list(shares) == list(tokens)
    assert sum(share.use_tokens for share in shares.values()) == mixture.use_tokens
    assert mixture.use_tokens + mixture.unreachable_tokens == budget
    if mixture.use_tokens:
        assert math.isclose(math.fsum(share.realised_share for share in shares.values()), 1, abs_tol=1e-12)
    for name, share in shares.items():
        assert max_epochs is None or share.use_tokens <= max_epochs * tokens[name]
        assert weights[name] > 0 or share.use_tokens == 0
    if mixture.unreachable_tokens:
        assert all(share.capped for name, share in shares.items() if weights[name] > 0)
    uncapped = [(share.use_tokens, weights[name]) for name, share in shares.items() if not share.capped]
    for use, weight in uncapped:
        for other, other_weight in uncapped:
            assert abs(use * other_weight - other * weight) <= 2 * (weight + other_weight)


@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_sources_changes_nothing(problem, chosen):
    weights, tokens, budget, max_epochs = problem
    shuffled = list(tokens)
    chosen.shuffle(shuffled)
    again = plan(
        {name: weights[name] for name in shuffled}, {name: tokens[name] for name in shuffled}, budget, max_epochs
    )
    assert again == plan(weights, tokens, budget, max_epochs)


@pytest.mark.parametrize(
    ("weights", "tokens", "budget", "max_epochs", "said"),
    [
        ({"a": 0.5, "b": 0.5}, {"a": 1}, 1, None, "weights name b; the sources are a"),
        ({"a": 0.5}, {"a": 1}, 1, None, "must sum to 1"),
        ({"a": -1.0, "b": 2.0}, {"a": 1, "b": 1}, 1, None, "the weight of a is -1.0"),
        ({"a": math.nan}, {"a": 1}, 1, None, "the weight of a is nan"),
        ({"a": 1.0}, {"a": -1}, 1, None, "a has -1 tokens"),
        ({"a": 1.0}, {"a": 1}, 0, None, "the budget is 0"),
        ({"a": 1.0}, {"a": 1}, 1, 0.0, "max_epochs is 0.0"),
        ({"a": 1.0}, {"a": 1}, 1, math.inf, "None for no cap"),
    ],
)
def test_a_plan_that_cannot_work_says_why(weights, tokens, budget, max_epochs, said):
    with pytest.raises(PlanError, match=said):
        plan(weights, tokens, budget, max_epochs)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50), st.floats(0, 50))
def test_copies_are_the_whole_part_and_one_more_below_the_fraction(keys, epochs):
    whole = math.floor(epochs)
    wanted = [whole + (Fraction(key, 2**64) < Fraction(epochs) - whole) for key in keys]
    found = copies(np.array(keys, np.uint64), epochs)
    assert found.dtype == np.int32
    assert found.tolist() == wanted


def test_copies_never_shrink_as_epochs_grow_and_average_to_the_epochs():
    keys = np.random.default_rng(7).integers(0, 2**64, 100_000, np.uint64)
    before = copies(keys, 0.0)
    assert not before.any()
    for epochs in (0.3, 0.9, 1.0, 2.75, 4.0):
        now = copies(keys, epochs)
        assert (now >= before).all()
        assert abs(now.mean() - epochs) < 4 * 0.5 / math.sqrt(len(keys))
        before = now
    assert set(before.tolist()) == {4}


@pytest.mark.parametrize("epochs", [-0.1, math.inf, math.nan])
def test_copies_of_an_impossible_number_of_epochs_are_refused(epochs):
    with pytest.raises(PlanError, match="finite number, 0 or more"):
        copies(np.zeros(1, np.uint64), epochs)
