"""Each mixer against its formula."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataeff.errors import PlanError
from dataeff.mixers import Explicit, Natural, Temperature, Unimax
from tests.oracle.mixtures import unimax

TOKENS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(1, 10**9), min_size=1, max_size=9)


def test_natural_is_the_share_of_tokens():
    assert Natural().weights({"a": 1, "b": 3, "c": 0}, 10) == {"a": 0.25, "b": 0.75, "c": 0.0}


def test_explicit_shares_are_normalised_and_the_unnamed_get_nothing():
    mixer = Explicit(shares={"web": 7, "books": 3})
    tokens = {"books": 5, "code": 5, "web": 5}
    assert mixer.weights(tokens, 10) == {"books": 0.3, "code": 0.0, "web": 0.7}
    assert mixer.unnamed(tokens) == ("code",)


def test_explicit_shares_of_unknown_or_empty_sources_are_refused():
    with pytest.raises(PlanError, match="names wbe; the sources are books, web"):
        Explicit(shares={"wbe": 1.0}).weights({"web": 1, "books": 1}, 10)
    with pytest.raises(PlanError, match="gives web a share, but nothing of it is left"):
        Explicit(shares={"web": 1.0}).weights({"web": 0, "books": 1}, 10)
    assert Explicit(shares={"web": 0, "books": 1}).weights({"web": 0, "books": 1}, 10)["books"] == 1.0


@pytest.mark.parametrize("shares", [{}, {"a": 0.0}, {"a": -1.0}, {"a": math.nan}, {"a": math.inf}])
def test_explicit_shares_that_cannot_be_weights_are_refused_at_birth(shares):
    with pytest.raises(PlanError, match=r"Explicit\.shares"):
        Explicit(shares=shares)


def test_temperature_by_hand():
    weights = Temperature(temperature=2).weights({"a": 100, "b": 400, "c": 2500}, 1)
    assert weights == pytest.approx({"a": 10 / 80, "b": 20 / 80, "c": 50 / 80}, abs=1e-15)


def test_the_exponent_of_multilingual_bert_takes_a_ratio_of_1000_to_about_100_as_its_authors_say():
    weights = Temperature(temperature=1 / 0.7).weights({"en": 1_000_000, "is": 1000}, 1)
    assert weights["en"] / weights["is"] == pytest.approx(1000**0.7, rel=1e-12)
    assert 100 < weights["en"] / weights["is"] < 130


@given(TOKENS)
def test_temperature_one_is_natural_and_without_bound_is_uniform(tokens):
    one = Temperature(temperature=1).weights(tokens, 1)
    assert one == pytest.approx(Natural().weights(tokens, 1), rel=1e-9)
    assert Temperature(temperature=math.inf).weights(tokens, 1) == dict.fromkeys(tokens, 1 / len(tokens))


@given(TOKENS, st.floats(0.05, 50), st.integers(2, 1000))
def test_temperature_does_not_depend_on_the_scale_of_the_corpus(tokens, temperature, factor):
    mixer = Temperature(temperature=temperature)
    scaled = mixer.weights({name: count * factor for name, count in tokens.items()}, 1)
    assert scaled == pytest.approx(mixer.weights(tokens, 1), rel=1e-6, abs=1e-12)


@given(TOKENS, st.floats(1, 20), st.floats(1.01, 5))
def test_a_higher_temperature_never_takes_from_the_smallest_source(tokens, temperature, factor):
    smallest = min(tokens, key=lambda name: tokens[name])
    low = Temperature(temperature=temperature).weights(tokens, 1)[smallest]
    assert Temperature(temperature=temperature * factor).weights(tokens, 1)[smallest] >= low * (1 - 1e-9)


@pytest.mark.parametrize("temperature", [0, -1, math.nan])
def test_a_temperature_that_is_not_above_zero_is_refused(temperature):
    with pytest.raises(PlanError, match=r"temperature is .*; it must be above 0"):
        Temperature(temperature=temperature)


def test_unimax_by_hand():
    # 1000 over three: the first takes 2 x 10 of its 333, the next 2 x 100 of its 490, the last what is left.
    weights = Unimax(max_epochs=2).weights({"big": 10_000, "tiny": 10, "small": 100}, 1000)
    assert weights == {"big": 0.78, "tiny": 0.02, "small": 0.2}


@given(TOKENS, st.integers(1, 10**9), st.sampled_from([0.5, 1.0, 4.0, 10.0]))
def test_unimax_is_algorithm_1_of_its_paper(tokens, budget, max_epochs):
    weights = Unimax(max_epochs=max_epochs).weights(tokens, budget)
    assert weights == pytest.approx(unimax(tokens, budget, max_epochs), rel=1e-9)


@given(TOKENS, st.integers(1, 10**9))
def test_unimax_is_uniform_where_every_source_is_large_enough_and_natural_where_none_is(tokens, budget):
    weights = Unimax(max_epochs=4).weights(tokens, budget)
    if 4 * min(tokens.values()) * len(tokens) >= budget:
        assert weights == pytest.approx(dict.fromkeys(tokens, 1 / len(tokens)), rel=1e-12)
    if 4 * sum(tokens.values()) <= budget:
        assert weights == pytest.approx(Natural().weights(tokens, budget), rel=1e-12)


@pytest.mark.parametrize("max_epochs", [0, -1, math.inf, math.nan])
def test_unimax_refuses_a_cap_that_is_none(max_epochs):
    with pytest.raises(PlanError, match="max_epochs"):
        Unimax(max_epochs=max_epochs)


def test_unimax_refuses_to_share_out_nothing():
    with pytest.raises(PlanError, match="budget"):
        Unimax().weights({"a": 1}, 0)
