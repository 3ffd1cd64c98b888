"""What repeated data is worth, against the published law; and dollars carried over to a larger run."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataeff.efficiency.dollars import Interval, RealRun, carried
from dataeff.efficiency.mfu import peak
from dataeff.efficiency.repetition import ScalingLaw, effective_epochs, effective_tokens, tokens_worth
from dataeff.errors import PlanError
from dataeff.prices import stated

TABLES = Path(__file__).resolve().parents[1].parent / "shared" / "tables"


def test_the_published_losses_come_out_to_every_digit():
    law = ScalingLaw()
    assert law.loss(6.34e9, 242e9, 25e9) == pytest.approx(2.2256440889984477, abs=1e-13)
    assert law.loss(8.67e9, 178e9, 25e9) == pytest.approx(2.2269634075087867, abs=1e-13)
    assert (law.r_d, law.r_n) == (15.387756, 5.309743)
    assert (math.exp(law.log_a), math.exp(law.log_b), math.exp(law.log_e)) == pytest.approx(
        (520.825, 1487.716, 1.8691), rel=3e-5
    )


def test_four_epochs_are_worth_93_per_cent_of_new_data():
    worth = [effective_epochs(epochs) for epochs in (2, 4, 8, 16, 40)]
    assert worth == pytest.approx([1.968, 3.726, 6.624, 10.58, 15.17], abs=0.005)


def test_the_law_ranks_the_published_runs_as_they_came_out():
    path = TABLES / "datablations" / "runs_c4_oscar.csv"
    if not path.is_file():
        pytest.skip("the published runs are not beside the checkout")
    from scipy.stats import spearmanr

    with path.open(encoding="utf-8", newline="") as file:
        rows = [{name: row[name] for name in row} for row in csv.DictReader(file)]
    runs = np.array([[float(row[name]) for name in ("params", "tokens", "unique_tokens", "val_loss")] for row in rows])
    runs = runs[runs[:, 3] < 4]
    predicted = [ScalingLaw().loss(*map(float, run[:3])) for run in runs]
    assert len(runs) == 241
    assert spearmanr(predicted, runs[:, 3]).statistic == pytest.approx(0.968, abs=0.001)
    assert np.abs(np.array(predicted) - runs[:, 3]).mean() == pytest.approx(0.245, abs=0.001)


@given(epochs=st.floats(0, 1e6))
def test_a_repetition_never_adds_more_than_new_data_nor_takes_any_away(epochs):
    worth = effective_epochs(epochs)
    assert worth <= epochs + 1e-9
    assert worth <= effective_epochs(epochs * 1.1 + 0.1)
    assert worth < 1 + 15.387756 + 1e-9


def test_tokens_of_a_mixture_that_runs_out_are_found_by_what_they_are_worth():
    weights, supply = {"web": 0.5, "books": 0.5}, {"web": 1_000_000, "books": 1_000}
    assert effective_tokens(weights, supply, 2_000) == pytest.approx(2_000)
    worth = effective_tokens(weights, supply, 100_000)
    assert worth < 100_000
    assert tokens_worth(weights, supply, worth) == pytest.approx(100_000, rel=1e-6)
    assert tokens_worth({"books": 1.0}, supply, 20_000) is None
    with pytest.raises(PlanError, match="has a weight, but no tokens"):
        effective_tokens({"chat": 1.0}, supply, 10)


def a_run(**changes) -> RealRun:
    return RealRun(
        **{"parameters": 7e9, "tokens": 1e12, "devices": 512, "peak": peak("H100 SXM"), "mfu": 0.4, **changes}
    )


def test_dollars_are_tokens_over_speed_times_price_over_ettr_and_the_corpus():
    run = a_run(ettr=0.9)
    weights, supply = {"web": 1.0}, {"web": 10**13}
    found = carried(
        run,
        Interval(value=0.8, low=0.7, high=0.9),
        weights,
        supply,
        (weights, supply),
        price=stated(2.0),
        corpus_usd=50.0,
    )
    speed = 0.4 * 989e12 * 512 / (6 * 7e9)
    hours = 0.8e12 / speed * 512 / 3600 / 0.9
    assert found.tokens.value == pytest.approx(0.8e12)
    assert found.device_hours.value == pytest.approx(hours)
    assert found.usd.value == pytest.approx(hours * 2 + 50)
    assert found.usd.low == pytest.approx(0.7 / 0.8 * hours * 2 + 50)
    assert found.loss_change.value < 0
    assert any("ETTR 0.900" in step for step in found.steps)


def test_a_mixture_that_repeats_pays_for_it_unless_the_proxies_repeated_as_much():
    run = a_run(tokens_per_s=1e6)
    rich, poor = ({"web": 1.0}, {"web": 10**13}), ({"books": 1.0}, {"books": 10**11})
    given = (run, Interval(value=1.0, low=0.9, high=1.1), *poor, rich)
    priced = carried(*given, price=None)
    assert priced.tokens.value > 1e12
    assert priced.epochs["books"] > 10
    matched = carried(*given, price=None, repetition_matched=True)
    assert matched.tokens.value == pytest.approx(1e12)
    larger = carried(*given, price=None, corpus_scale=100.0)
    assert larger.tokens.value == pytest.approx(1e12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mfu": None}, "how fast the real run is"),
        ({"ettr": 0.0}, r"RealRun.ettr is 0.0; it must be in \(0, 1\]"),
        ({"mfu": 1.2}, r"RealRun.mfu is 1.2"),
        ({"devices": 0}, "RealRun.devices is 0"),
    ],
)
def test_a_run_that_cannot_be_is_refused(changes, message):
    with pytest.raises(PlanError, match=message):
        a_run(**changes)
