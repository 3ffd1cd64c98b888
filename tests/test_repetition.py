"""What repeated data is worth, against the published law and its runs; and dollars carried over to a larger run."""

from __future__ import annotations

import csv
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import published_repetition
from benchmarks.published_repetition import PRINTED, PUBLISHED, RUNS, as_published, selected
from dataeff.efficiency.dollars import Interval, RealRun, carried, central
from dataeff.efficiency.mfu import peak
from dataeff.efficiency.repetition import ScalingLaw, effective_epochs, effective_tokens, tokens_worth
from dataeff.efficiency.repetition_draws import DRAWS
from dataeff.efficiency.repetition_fit import (
    ALL,
    RepetitionRun,
    fit_repetition,
    law_draws,
    log_losses,
    misfit,
)
from dataeff.errors import MeasurementError, PlanError
from dataeff.prices import stated

TABLES = Path(__file__).resolve().parents[1].parent / "shared" / "tables"
needs_the_runs = pytest.mark.skipif(not RUNS.is_file(), reason="the published runs are not beside the checkout")


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


@needs_the_runs
def test_the_law_ranks_the_published_runs_as_they_came_out():
    from scipy.stats import spearmanr

    with RUNS.open(encoding="utf-8", newline="") as file:
        rows = [{name: row[name] for name in row} for row in csv.DictReader(file)]
    runs = np.array([[float(row[name]) for name in ("params", "tokens", "unique_tokens", "val_loss")] for row in rows])
    runs = runs[runs[:, 3] < 4]
    predicted = [ScalingLaw().loss(*map(float, run[:3])) for run in runs]
    assert len(runs) == 241
    assert spearmanr(predicted, runs[:, 3]).statistic == pytest.approx(0.968, abs=0.001)
    assert np.abs(np.array(predicted) - runs[:, 3]).mean() == pytest.approx(0.245, abs=0.001)


@needs_the_runs
def test_the_published_constants_come_out_of_the_published_runs_to_every_digit():
    pytest.importorskip("torch", reason="the published digits are those of its optimiser")
    if why_not := published_repetition.reproducible():
        pytest.skip(why_not)
    starts = published_repetition.grid()[:3]
    found = dict(zip(starts, as_published(starts), strict=True))
    assert {start: found[start] for start in PRINTED} == PRINTED
    assert min(found.values(), key=lambda row: row[0])[1:] == PUBLISHED == (ScalingLaw().r_d, ScalingLaw().r_n)


@needs_the_runs
def test_the_published_constants_are_a_minimum_but_for_rounding_and_there_is_a_deeper_one():
    runs, law = list(selected().values()), ScalingLaw()
    assert len(runs) == 182
    printed = PRINTED[max(PRINTED)][0]
    assert misfit(runs, law) == pytest.approx(printed, rel=2e-7)
    nearest = fit_repetition(runs, near=True)
    assert (nearest.r_d, nearest.r_n) == pytest.approx((law.r_d, law.r_n), rel=1.1e-3)
    assert 0 < misfit(runs, law) - misfit(runs, nearest) < 5e-9
    deepest = fit_repetition(runs)
    assert (deepest.r_d, deepest.r_n) == pytest.approx((46.990, 2.3296), rel=1e-3)
    assert misfit(runs, deepest) == pytest.approx(0.01580738, rel=1e-6)
    assert replace(deepest, r_d=law.r_d, r_n=law.r_n) == law


@needs_the_runs
def test_the_draws_that_are_kept_are_those_of_the_published_runs():
    runs = list(selected().values())
    again = law_draws(runs, [run.parameters for run in runs], num_draws=3, seed=0)
    for new, kept in zip(again, DRAWS, strict=False):
        assert new.r_d == pytest.approx(kept.r_d, rel=0.01)
        assert new.loss_change(7e9, 2e12, 0.7) == pytest.approx(kept.loss_change(7e9, 2e12, 0.7), rel=0.01)
    assert len(DRAWS) == 199
    low, high = central(law.r_d for law in DRAWS)
    assert low < PUBLISHED[0] < high
    assert high / low > 5


def runs_of(law: ScalingLaw, sizes=(1e7, 1e8, 1e9), budgets=(1e8, 1e9, 1e10), epochs=(1, 2, 5, 12, 40, 150)):
    """Runs that the law describes without an error."""
    return [
        RepetitionRun(
            parameters=size, tokens=unique * times, unique_tokens=unique, loss=law.loss(size, unique * times, unique)
        )
        for size, unique, times in itertools.product(sizes, budgets, epochs)
    ]


@settings(deadline=None, max_examples=15)
@given(r_d=st.floats(1, 80), r_n=st.floats(1, 60))
def test_what_repetition_is_worth_is_found_again_from_runs_of_a_law(r_d, r_n):
    law = ScalingLaw(r_d=r_d, r_n=r_n)
    found = fit_repetition(runs_of(law))
    assert (found.r_d, found.r_n) == pytest.approx((r_d, r_n), rel=1e-3)
    assert replace(found, r_d=r_d, r_n=r_n) == law


def test_every_constant_is_found_again_and_outliers_move_none():
    law = ScalingLaw(log_a=5.6, log_b=7.9, log_e=0.5, alpha=0.31, beta=0.31, r_d=9.0, r_n=12.0)
    runs = runs_of(law)
    for place in (3, 20, 40):
        runs[place] = replace(runs[place], loss=runs[place].loss * 1.8)
    found = fit_repetition(runs, fitted=ALL)
    for name in (*ALL, "beta"):
        assert getattr(found, name) == pytest.approx(getattr(law, name), rel=0.01)


@given(
    parameters=st.floats(1e5, 1e12),
    unique=st.floats(1e6, 1e13),
    epochs=st.floats(1, 1e3),
    beta=st.floats(0.2, 0.6),
    r_n=st.floats(0.1, 100),
)
def test_losses_of_many_runs_are_those_of_each(parameters, unique, epochs, beta, r_n):
    law = ScalingLaw(beta=beta, r_n=r_n)
    found = log_losses(law, np.array([[parameters], [unique * epochs], [unique]]))
    assert found.tolist() == pytest.approx([math.log(law.loss(parameters, unique * epochs, unique))], rel=1e-9)


@pytest.mark.parametrize(
    ("runs", "options", "error", "message"),
    [
        (runs_of(ScalingLaw())[:3], {}, MeasurementError, "3 runs; to fit 2 constants takes 4 or more"),
        (runs_of(ScalingLaw(), epochs=(1,)), {}, MeasurementError, "none of the 9 runs repeats data"),
        (runs_of(ScalingLaw(), sizes=(1e5,)), {}, MeasurementError, "more parameters than are best"),
        (runs_of(ScalingLaw()), {"fitted": ("gamma",)}, PlanError, "cannot fit gamma; the constants are log_a"),
        (runs_of(ScalingLaw()), {"fitted": ()}, PlanError, "cannot fit nothing"),
        (runs_of(ScalingLaw(r_d=1e9)), {}, MeasurementError, "r_d runs away to 1000"),
    ],
)
def test_runs_that_bound_no_law_are_refused(runs, options, error, message):
    with pytest.raises(error, match=message):
        fit_repetition(runs, **options)


def test_a_constant_that_runs_say_nothing_of_is_held():
    runs = runs_of(ScalingLaw(r_d=8.0), sizes=(1e5,))
    assert fit_repetition(runs, fitted=("r_d",)).r_d == pytest.approx(8.0, rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": 0.0}, "RepetitionRun.loss is 0.0; it must be finite and above 0"),
        ({"tokens": math.inf}, "RepetitionRun.tokens is inf"),
        ({"unique_tokens": 3e9}, "RepetitionRun.unique_tokens is 3000000000.0; it must be at most tokens, 2e"),
    ],
)
def test_a_run_that_cannot_have_been_is_refused(changes, message):
    with pytest.raises(PlanError, match=message):
        RepetitionRun(**{"parameters": 1e8, "tokens": 2e9, "unique_tokens": 1e9, "loss": 3.0, **changes})


def test_draws_spread_as_clusters_differ():
    law, rng = ScalingLaw(), np.random.default_rng(0)
    exact = runs_of(law)
    sizes = [run.parameters for run in exact]
    assert {round(one.r_d, 2) for one in law_draws(exact, sizes, fitted=("r_d",), num_draws=4)} == {15.39}
    noisy = [replace(run, loss=run.loss * math.exp(rng.normal(0, 0.02))) for run in exact]
    drawn = [one.r_d for one in law_draws(noisy, range(len(noisy)), fitted=("r_d",), num_draws=20)]
    assert min(drawn) < 15.4 < max(drawn)
    assert drawn == [one.r_d for one in law_draws(noisy, range(len(noisy)), fitted=("r_d",), num_draws=20)]
    with pytest.raises(PlanError, match="2 clusters for 54 runs"):
        law_draws(exact, [1, 2])
    with pytest.raises(MeasurementError, match="2 clusters of runs; a bootstrap needs 3 or more"):
        law_draws(exact, [run.parameters > 1e8 for run in exact])


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


NEW = {"web": 1.0}, {"web": 10**15}
RATIO = Interval(value=0.8, low=0.7, high=0.9)


def test_the_law_has_a_part_in_the_change_of_the_loss_and_none_in_tokens_of_new_data():
    found = carried(a_run(), RATIO, *NEW, NEW, price=None)
    assert (found.tokens.low, found.tokens.high) == pytest.approx((0.7e12, 0.9e12))
    assert found.tokens_by.law.low == found.tokens_by.law.high == pytest.approx(0.8e12)
    change, by = found.loss_change, found.loss_change_by
    assert change.value == pytest.approx(ScalingLaw().loss_change(7e9, 1e12, 0.8))
    drawn = sorted(law.loss_change(7e9, 1e12, 0.8) for law in DRAWS)
    assert (by.law.low, by.law.high) == (drawn[4], drawn[-5])
    for end in ("low", "high"):
        apart = [getattr(interval, end) - change.value for interval in (by.ratio, by.law, change)]
        assert apart[2] ** 2 == pytest.approx(apart[0] ** 2 + apart[1] ** 2)
        assert math.copysign(1, apart[2]) == math.copysign(1, apart[0])
    assert change.high < 0


def test_repetition_is_as_unsure_as_the_law_and_without_a_bound_where_some_laws_deny_it():
    books = {"books": 1.0}, {"books": 10**11}
    found = carried(a_run(), RATIO, *books, NEW, price=stated(2.0))
    by = found.tokens_by
    assert by.law.low < found.tokens.value < by.law.high
    assert found.tokens.low < min(by.law.low, by.ratio.low)
    assert found.tokens.high > max(by.law.high, by.ratio.high)
    assert found.usd.high == pytest.approx(found.device_hours.high * 2)
    scarce = carried(a_run(), Interval(value=1.0, low=0.99, high=1.01), {"books": 1.0}, {"books": 65 * 10**9}, NEW,
                     price=stated(2.0))  # fmt: skip
    assert scarce.tokens.value is not None
    assert math.isfinite(scarce.tokens_by.ratio.high)
    assert scarce.tokens.high == scarce.usd.high == math.inf
    none = carried(a_run(), RATIO, {"books": 1.0}, {"books": 10**10}, NEW, price=None)
    assert none.tokens.value is None
    assert none.tokens.high == math.inf


def test_a_law_of_ones_own_is_used_and_is_as_sure_as_one_says():
    books, mild = ({"books": 1.0}, {"books": 10**11}), ScalingLaw(r_d=1e9)
    alone = carried(a_run(), RATIO, *books, NEW, price=None, law=mild)
    assert alone.tokens.value == pytest.approx(0.8e12, rel=1e-6)
    assert alone.loss_change == alone.loss_change_by.ratio
    laws = [replace(mild, r_d=r_d) for r_d in (5.0, 50.0, 500.0)]
    told = carried(a_run(), RATIO, *books, NEW, price=None, law=mild, laws=laws)
    assert told.tokens.high > alone.tokens.high
    assert told.tokens.low == pytest.approx(alone.tokens.low)


def test_joined_ends_hold_95_per_cent_of_what_both_sources_make_of_a_figure():
    rng = np.random.default_rng(1)
    laws = [ScalingLaw(r_d=15.387756 * math.exp(rng.normal(0, 0.4))) for _ in range(199)]
    books = {"books": 1.0}, {"books": 11 * 10**10}
    spread = 0.1
    ratio = Interval(value=0.8, low=0.8 * math.exp(-1.96 * spread), high=0.8 * math.exp(1.96 * spread))
    found = carried(a_run(), ratio, *books, NEW, price=None, law=ScalingLaw(), laws=laws)
    made = [
        tokens_worth(*books, 0.8e12 * math.exp(rng.normal(0, spread)), laws[place].r_d) or math.inf
        for place in rng.integers(0, len(laws), 4000)
    ]
    inside = np.mean([found.tokens.low <= tokens <= found.tokens.high for tokens in made])
    assert inside == pytest.approx(0.95, abs=0.015)
    assert np.mean([ratio_end(found, tokens) for tokens in made]) < 0.9


def ratio_end(found, tokens) -> bool:
    """Whether the interval of the ratio alone holds it."""
    return found.tokens_by.ratio.low <= tokens <= found.tokens_by.ratio.high


def test_a_run_beyond_those_of_the_law_is_told_to_be():
    given = (RATIO, *NEW, NEW)
    assert carried(a_run(tokens=5e11), *given, price=None).beyond == ()
    far = carried(a_run(parameters=7e10), *given, price=None).beyond
    assert [line.split(",")[0] for line in far] == ["7e+10 parameters", "1e+12 tokens"]
    assert carried(a_run(parameters=7e10), *given, price=None, law=ScalingLaw()).beyond == ()


def test_an_end_that_is_not_known_stays_so():
    found = carried(a_run(), Interval(value=0.8), *NEW, NEW, price=None)
    assert (found.tokens.low, found.tokens.high, found.loss_change.low) == (None, None, None)
    one_sided = carried(a_run(), Interval(value=None, low=1.1, high=math.inf), *NEW, NEW, price=None)
    assert one_sided.tokens == Interval(value=None, low=pytest.approx(1.1e12), high=math.inf)
    assert one_sided.loss_change.high is None


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
