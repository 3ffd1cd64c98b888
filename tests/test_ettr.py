"""The closed form of expected training time: published figures, a simulation, and where it does not hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataeff.efficiency.ettr import Cluster, expected
from dataeff.errors import PlanError


def cluster(devices: int = 12_000, rate: float = 6.5, checkpoint_s: float = 300.0) -> Cluster:
    """With eight devices a node."""
    return Cluster(nodes=devices // 8, failures_per_1000_node_days=rate, checkpoint_s=checkpoint_s)


@pytest.mark.parametrize(("devices", "hours"), [(16_384, 1.80), (131_072, 0.23)])
def test_a_cluster_fails_as_often_as_meta_says(devices, hours):
    assert cluster(devices).mttf_s / 3600 == pytest.approx(hours, abs=0.005)


@pytest.mark.parametrize(
    ("rate", "checkpoint_s", "ettr"), [(6.5, 10.0, 0.921), (1.0, 300.0, 0.898), (6.5, 300.0, 0.74)]
)
def test_twelve_thousand_devices_reach_the_ratio_that_meta_says(rate, checkpoint_s, ettr):
    found = expected(cluster(rate=rate, checkpoint_s=checkpoint_s))
    assert found.ettr == pytest.approx(ettr, abs=0.005 if ettr == 0.74 else 0.0005)
    assert found.warning == ""


def test_where_failures_cost_more_than_there_is_the_ratio_is_nothing_and_it_is_said():
    found = expected(cluster(131_072), interval_s=3600)
    assert found.ettr == 0.0
    assert found.failure_share > 1
    assert "gives -1.47, which cannot be" in found.warning
    assert "save more often" in found.warning


def test_where_failures_cost_much_the_ratio_is_doubted():
    found = expected(cluster(131_072, checkpoint_s=10.0))
    assert 0.5 < found.ettr < 0.52
    assert "leaves out those that come during recovery" in found.warning


@given(
    nodes=st.integers(1, 20_000),
    rate=st.floats(0.1, 20),
    checkpoint_s=st.floats(0.1, 600),
    factor=st.floats(0.05, 20),
)
def test_no_other_interval_is_much_better_than_the_best_one_while_little_is_lost(nodes, rate, checkpoint_s, factor):
    where = Cluster(nodes=nodes, failures_per_1000_node_days=rate, checkpoint_s=checkpoint_s, restart_s=60)
    best = expected(where)
    if best.failure_share < 0.1:
        assert expected(where, factor * best.interval_s).ettr <= best.ettr + 0.01


def daly(where: Cluster, interval_s: float) -> float:
    """The ratio where failures also come during recovery and while saving."""
    rate = 1 / where.mttf_s
    took_s = math.exp(rate * where.restart_s) * math.expm1(rate * (interval_s + where.checkpoint_s)) / rate
    return interval_s / took_s


@given(
    nodes=st.integers(1, 20_000),
    rate=st.floats(0.1, 20),
    checkpoint_s=st.floats(0.1, 600),
    restart_s=st.floats(0, 1800),
)
def test_without_a_warning_the_form_is_near_the_exact_ratio(nodes, rate, checkpoint_s, restart_s):
    where = Cluster(nodes=nodes, failures_per_1000_node_days=rate, checkpoint_s=checkpoint_s, restart_s=restart_s)
    found = expected(where)
    if not found.warning:
        assert found.ettr == pytest.approx(daly(where, found.interval_s), abs=0.03)


def simulated(where: Cluster, interval_s: float, days: float, seed: int) -> float:
    """Productive share of a run whose failures come at random, restarts spared from failures as in the closed form."""
    random = np.random.default_rng(seed)
    wall_s = kept_s = since_s = 0.0
    fails_s = random.exponential(where.mttf_s)
    while wall_s < days * 86_400:
        period_s = interval_s + where.checkpoint_s
        if since_s + period_s <= fails_s:
            since_s, wall_s, kept_s = since_s + period_s, wall_s + period_s, kept_s + interval_s
            continue
        wall_s += fails_s - since_s + where.restart_s
        since_s, fails_s = 0.0, random.exponential(where.mttf_s)
    return kept_s / wall_s


@pytest.mark.parametrize("devices", [512, 4096])
def test_a_simulated_run_has_the_expected_ratio(devices):
    where = cluster(devices, checkpoint_s=60.0)
    found = expected(where)
    assert simulated(where, found.interval_s, days=4000, seed=devices) == pytest.approx(found.ettr, abs=0.005)


def test_figures_that_cannot_be_are_refused():
    with pytest.raises(PlanError, match=r"Cluster.nodes is 0; it must be 1 or more"):
        Cluster(nodes=0, failures_per_1000_node_days=1, checkpoint_s=1)
    with pytest.raises(PlanError, match="checkpoint_s is nan"):
        Cluster(nodes=1, failures_per_1000_node_days=1, checkpoint_s=float("nan"))
    with pytest.raises(PlanError, match="restart_s is -1"):
        Cluster(nodes=1, failures_per_1000_node_days=1, checkpoint_s=1, restart_s=-1)
    with pytest.raises(PlanError, match="time between checkpoints is 0"):
        expected(cluster(), interval_s=0)
