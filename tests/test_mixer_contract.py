"""What every mixer in the registry must do, those of others included."""

import dataclasses
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataeff import registry
from dataeff.errors import PlanError
from dataeff.manifest import fingerprint
from dataeff.mixers import Explicit
from dataeff.mixture import plan

NAMES = registry.names("mixers")
SOURCES = ("books", "code", "web", "wiki")
RUNS = Path(tempfile.mkdtemp()) / "runs.csv"
"""Proxy runs, for the mixer that learns from them."""
RUNS.write_text(
    "weight:books,weight:code,weight:web,weight:wiki,loss:news\n"
    + "".join(
        f"{a / 10},{b / 10},{c / 10},{(10 - a - b - c) / 10},{3 - a / 10 + (b / 10) ** 2 + (c - 4) ** 2 / 50}\n"
        for a, b, c in [(1, 2, 3), (4, 1, 2), (0, 5, 5), (7, 1, 1), (2, 2, 2), (3, 0, 6), (1, 8, 0), (0, 0, 9)]
    )
)
OPTIONS = {
    "explicit": {"shares": {"books": 0.5, "web": 0.25, "wiki": 0.25}},
    "regression": {"runs": str(RUNS), "max_epochs": None},
}
TOKENS = st.fixed_dictionaries({name: st.integers(1, 10**12) for name in SOURCES})


def mixer(name):
    return registry.member("mixers", name)(**OPTIONS.get(name, {}))


@pytest.mark.parametrize("name", NAMES)
@given(tokens=TOKENS, budget=st.integers(1, 10**13))
def test_weights_are_shares_of_every_source_in_order(name, tokens, budget):
    weights = mixer(name).weights(tokens, budget)
    assert list(weights) == list(tokens)
    assert all(isinstance(weight, float) and weight >= 0 for weight in weights.values())
    assert abs(math.fsum(weights.values()) - 1) <= 1e-12
    assert plan(weights, tokens, budget, 4.0).use_tokens > 0


@pytest.mark.parametrize("name", NAMES)
@given(tokens=TOKENS, budget=st.integers(1, 10**13), order=st.permutations(SOURCES))
def test_the_order_of_sources_changes_no_weight(name, tokens, budget, order):
    weights = mixer(name).weights(tokens, budget)
    assert mixer(name).weights({source: tokens[source] for source in order}, budget) == weights


@pytest.mark.parametrize("name", NAMES)
def test_a_source_without_tokens_gets_no_weight(name):
    weights = mixer(name).weights({"books": 5, "code": 0, "web": 7, "wiki": 9}, 100)
    assert weights["code"] == 0.0
    assert abs(math.fsum(weights.values()) - 1) <= 1e-12


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tokens", [dict.fromkeys(SOURCES, 0), {}])
def test_a_corpus_without_tokens_is_refused(name, tokens):
    with pytest.raises(PlanError):
        mixer(name).weights(tokens, 100)


@pytest.mark.parametrize("name", NAMES)
def test_a_mixer_is_a_frozen_definition_that_a_manifest_can_hold(name):
    made = mixer(name)
    assert dataclasses.is_dataclass(made)
    assert registry.name_of(made) == name
    assert len(registry.meaning(type(made))) > 20
    assert fingerprint(made) == fingerprint(mixer(name))
    assert type(made).__dataclass_params__.frozen


def test_a_fingerprint_of_shares_does_not_depend_on_their_order():
    assert fingerprint(Explicit(shares={"a": 1, "b": 2})) == fingerprint(Explicit(shares={"b": 2, "a": 1}))
