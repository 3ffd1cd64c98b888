"""Curves and their crossings: the fit against a general optimiser, crossings against the law that made the points."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dataeff.efficiency.crossing import choose_target, crossings, tokens_to_target
from dataeff.efficiency.curves import Curve, fit, monotone
from dataeff.errors import MeasurementError, PlanError
from tests.oracle import stat_curves as oracle

TOKENS = np.linspace(1 / 30, 1, 30) * 1e9
LOSSES = st.lists(st.floats(0.5, 11), min_size=2, max_size=12)


def law(tokens, floor=2.9, scale=0.38, exponent=0.5, end=1e9):
    return floor + scale * (tokens / end) ** -exponent


def noisy(seed, sigma=0.002, shape=law):
    return Curve.of(TOKENS, shape(TOKENS) + np.random.default_rng(seed).normal(0, sigma, len(TOKENS)))


def decayed(tokens):
    """A law whose learning rate falls from 60 % of the run on."""
    return law(tokens) - 0.12 * np.clip((tokens / 1e9 - 0.6) / 0.4, 0, 1) ** 1.5


def error_rms(shape, method, target_at=0.83e9, seeds=60, sigma=0.002):
    target = float(shape(np.array(target_at)))
    found = [tokens_to_target(noisy(seed, sigma, shape), target, method=method).tokens for seed in range(seeds)]
    return math.sqrt(np.mean([math.log((tokens or 1e9) / target_at) ** 2 for tokens in found]))


@pytest.mark.parametrize(
    ("tokens", "losses", "message"),
    [
        ([1, 2, 2], [3, 2, 1], "point 2 is 2 after 2"),
        ([1, 3, 2], [3, 2, 1], "counts must increase"),
        ([0, 1, 2], [3, 2, 1], "point 0 is 0; it must be a finite number above 0"),
        ([1, math.nan, 2], [3, 2, 1], "point 1 is nan"),
        ([1, 2, 3], [3, 2], "a loss for each count"),
        ([[1, 2]], [[2, 1]], "no curve"),
        ([], [], "0 token counts"),
        ([1, 2, 3], [3, -2, 1], "point 1 is -2; a cross entropy is 0 or more"),
    ],
)
def test_what_is_no_curve_is_refused_with_the_place(tokens, losses, message):
    with pytest.raises(PlanError, match=message):
        Curve.of(tokens, losses)


def test_one_point_is_no_curve():
    with pytest.raises(MeasurementError, match="a curve of 1 points"):
        Curve.of([5], [3.0])


def test_a_curve_not_made_by_its_constructor_is_checked_too():
    with pytest.raises(PlanError, match=r"Curve\.of"):
        Curve(tokens=np.array([1.0, 2.0]), losses=np.array([1.0, np.nan]), budget_tokens=2.0)
    with pytest.raises(PlanError, match="equally long"):
        Curve(tokens=np.array([1.0, 2.0]), losses=np.array([1.0]), budget_tokens=2.0)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_diverged_run_ends_at_its_last_finite_loss_and_has_spent_all_of_its_tokens(broken):
    curve = Curve.of([1, 2, 3, 4], [4.0, 3.5, broken, 3.0])
    assert curve.diverged
    assert curve.losses.tolist() == [4.0, 3.5]
    crossing = tokens_to_target(curve, 3.2)
    assert not crossing.reached
    assert crossing.budget_tokens == 4


def test_a_run_that_diverges_at_once_is_censored():
    crossing = tokens_to_target(Curve.of([1, 2], [math.nan, math.nan]), 3.0)
    assert (crossing.tokens, crossing.budget_tokens, crossing.extrapolated) == (None, 2, False)


def test_a_run_that_diverged_after_the_target_had_reached_it():
    assert tokens_to_target(Curve.of([1, 2, 3], [4.0, 3.0, math.nan]), 3.5).reached


def test_a_curve_cannot_be_written_to_and_keeps_no_hold_of_what_it_was_made_from():
    tokens = TOKENS.copy()
    curve = Curve.of(tokens, law(tokens))
    tokens[0] = 7
    assert curve.tokens[0] == TOKENS[0]
    with pytest.raises(ValueError, match="read-only"):
        curve.losses[0] = 1.0


def test_a_law_without_noise_is_found_exactly():
    found = fit(Curve.of(TOKENS, law(TOKENS)))
    assert found.identified
    assert found.irreducible_loss == pytest.approx(2.9, abs=1e-6)
    assert found.exponent == pytest.approx(0.5, abs=1e-6)
    assert found.log_scale == pytest.approx(math.log(0.38) + 0.5 * math.log(1e9), abs=1e-4)
    assert found.tokens(law(np.array(3e8))) == pytest.approx(3e8, rel=1e-6)
    assert found.loss([3e8])[0] == pytest.approx(law(np.array(3e8)), abs=1e-9)
    assert math.isinf(found.tokens(2.8))


@pytest.mark.parametrize("seed", range(4))
def test_the_fit_is_as_near_as_any_that_a_general_optimiser_finds(seed):
    random = np.random.default_rng(seed)
    weights = random.uniform(0.3, 3, len(TOKENS))
    curve = Curve.of(TOKENS, law(TOKENS, exponent=random.uniform(0.2, 0.9)) + random.normal(0, 0.004, len(TOKENS)))
    found = fit(curve, warmup_tokens=0, weights=weights)
    squares, (floor, _, exponent) = oracle.power_law(curve.tokens, curve.losses, weights)
    ours = float(weights @ (curve.losses - found.loss(curve.tokens)) ** 2)
    assert found.identified
    assert ours <= squares * (1 + 1e-7)
    assert (found.irreducible_loss, found.exponent) == pytest.approx((floor, exponent), rel=1e-3)


def test_a_floor_that_the_points_do_not_tell_is_zero():
    found = fit(Curve.of(TOKENS, law(TOKENS, floor=0.0, scale=3.2, exponent=0.05) + 1e-3 * np.sin(TOKENS)))
    assert not found.identified
    assert found.irreducible_loss == 0
    assert found.exponent == pytest.approx(0.05, rel=0.05)


def test_no_law_goes_through_few_points_or_losses_that_rise():
    assert fit(Curve.of(TOKENS[:7], law(TOKENS[:7])), warmup_tokens=0) is None
    assert fit(Curve.of(TOKENS, 2 + TOKENS / 1e9)) is None
    with pytest.raises(MeasurementError, match="'isotonic'"):
        tokens_to_target(Curve.of(TOKENS, 2 + TOKENS / 1e9), 2.5, method="power_law")


def test_warm_up_is_left_out_of_the_fit():
    losses = law(TOKENS)
    losses[:3] = 9.0
    assert fit(Curve.of(TOKENS, losses), warmup_tokens=TOKENS[3]).irreducible_loss == pytest.approx(2.9, abs=1e-6)
    assert fit(Curve.of(TOKENS, losses)).from_tokens >= 1e8


@pytest.mark.parametrize("weights", [np.ones(3), np.zeros(30), np.full(30, np.nan)])
def test_weights_that_fit_no_curve_are_refused(weights):
    with pytest.raises(PlanError, match="weights of shape"):
        fit(noisy(0), weights=weights)


def test_structure_is_seen_where_the_learning_rate_decays_and_seldom_where_there_is_none():
    assert all(fit(noisy(seed, shape=decayed)).structured for seed in range(20))
    assert sum(fit(noisy(seed)).structured for seed in range(100)) <= 12


def test_the_law_is_used_where_it_holds_and_the_monotone_curve_where_it_does_not():
    assert tokens_to_target(noisy(1), 3.3).method == "power_law"
    assert tokens_to_target(noisy(1, shape=decayed), 3.3).method == "isotonic"


def test_each_way_of_reading_is_better_on_its_own_ground():
    assert error_rms(law, "power_law") < 0.5 * error_rms(law, "isotonic")
    assert error_rms(decayed, "isotonic") < 0.5 * error_rms(decayed, "power_law")
    assert error_rms(law, None) < 0.75 * error_rms(law, "isotonic")
    assert error_rms(decayed, None) == error_rms(decayed, "isotonic")


def test_runs_that_are_compared_are_read_by_one_method():
    mixed = [noisy(0), noisy(1), noisy(0, shape=decayed), noisy(1, shape=decayed)]
    assert {one.method for one in crossings(mixed, 3.3)} == {"isotonic"}
    assert {one.method for one in crossings([noisy(seed) for seed in range(12)], 3.3)} == {"power_law"}
    with pytest.raises(PlanError, match="no curve to read"):
        crossings([], 3.3)


def test_a_diverged_run_does_not_change_how_the_others_are_read():
    gone = Curve.of(TOKENS[:3], [5.0, 4.0, math.nan])
    read = crossings([noisy(1), gone, noisy(2)], 3.3)
    assert [one.method for one in read] == ["power_law", "isotonic", "power_law"]
    assert [one.reached for one in read] == [True, False, True]


@given(LOSSES, st.data())
def test_the_monotone_curve_is_that_of_its_formula(losses, data):
    weights = data.draw(st.lists(st.floats(0.1, 5), min_size=len(losses), max_size=len(losses)))
    curve = Curve.of(np.arange(1, len(losses) + 1), losses)
    found = monotone(curve, weights=np.array(weights))
    assert found == pytest.approx(oracle.falling(losses, weights), rel=1e-9)
    assert np.all(np.diff(found) <= 0)


def test_the_monotone_curve_is_scikit_learns():
    isotonic = pytest.importorskip("sklearn.isotonic")
    curve = noisy(3, sigma=0.1)
    theirs = isotonic.IsotonicRegression(increasing=False).fit_transform(curve.tokens, curve.losses)
    assert monotone(curve) == pytest.approx(theirs, rel=1e-12)


def test_interpolation_is_linear_in_the_logarithm_of_tokens():
    crossing = tokens_to_target(Curve.of([100, 10_000], [4.0, 3.0]), 3.5)
    assert crossing.tokens == pytest.approx(1000)
    assert (crossing.method, crossing.budget_tokens) == ("isotonic", 10_000)


def test_a_dip_of_one_point_is_no_crossing():
    losses = [5.0, 4.0, 2.9, 3.8, 3.5]
    crossing = tokens_to_target(Curve.of([1, 2, 3, 4, 5], losses), 3.0)
    assert not crossing.reached


def test_a_run_that_ends_above_the_target_is_censored_and_its_projection_is_marked():
    crossing = tokens_to_target(noisy(1, sigma=1e-4), float(law(np.array(1.2e9))))
    assert crossing.tokens is None
    assert crossing.budget_tokens == 1e9
    assert crossing.extrapolated
    assert crossing.projected_tokens == pytest.approx(1.2e9, rel=0.01)
    assert not tokens_to_target(noisy(0), 2.5).extrapolated


def test_a_target_above_the_first_point_cannot_be_read():
    with pytest.raises(MeasurementError, match="choose a lower target"):
        tokens_to_target(Curve.of([1, 2], [3.0, 2.5]), 3.1)


def test_a_target_before_the_points_of_the_law_is_read_from_the_points():
    crossing = tokens_to_target(noisy(0, sigma=1e-4), float(law(np.array(7e7))))
    assert crossing.method == "isotonic"
    assert crossing.tokens == pytest.approx(7e7, rel=0.01)


@pytest.mark.parametrize("target", [0.0, -1.0, math.nan, math.inf])
def test_a_target_that_is_no_loss_is_refused(target):
    with pytest.raises(PlanError, match="the target is"):
        tokens_to_target(noisy(0), target)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.sampled_from(["power_law", "isotonic"]))
def test_scaling_tokens_scales_the_crossing(seed, factor, method):
    curve = noisy(seed)
    scaled = Curve.of(curve.tokens * factor, curve.losses)
    found = [tokens_to_target(one, 3.32, method=method).tokens for one in (curve, scaled)]
    assert found[1] == pytest.approx(found[0] * factor, rel=1e-6)


@given(LOSSES, st.floats(1.0, 8.0), st.floats(0.0, 2.0))
def test_a_lower_target_is_never_reached_earlier(losses, target, less):
    curve = Curve.of(np.arange(1, len(losses) + 1), losses)
    assume(monotone(curve)[0] > target)
    first, later = (tokens_to_target(curve, one, method="isotonic").tokens for one in (target, max(target - less, 0.1)))
    assert later is None or (first is not None and first <= later * (1 + 1e-12))


@given(LOSSES, st.floats(1.0, 8.0))
def test_a_crossing_lies_within_what_was_measured(losses, target):
    curve = Curve.of(np.arange(1, len(losses) + 1) * 1000, losses)
    assume(monotone(curve)[0] > target)
    crossing = tokens_to_target(curve, target)
    assert crossing.tokens is None or 1000 <= crossing.tokens <= crossing.budget_tokens


def test_the_target_is_the_median_and_a_margin_and_does_not_follow_an_outlier_down():
    assert choose_target([3.0, 3.1, 3.2]) == pytest.approx(3.1 + 2 * 0.1)
    assert choose_target([3.0, 3.1, 3.2], margin_sigmas=0) == 3.1
    assert choose_target([2.0, 3.1, 3.2], margin_sigmas=0) == 3.1


@pytest.mark.parametrize("losses", [[3.0, 3.1], [3.0, 3.1, math.nan]])
def test_a_target_needs_three_runs_that_ended(losses):
    with pytest.raises(MeasurementError, match=r"2 of \d baseline runs"):
        choose_target(losses)


def test_a_margin_below_zero_is_refused():
    with pytest.raises(PlanError, match="margin_sigmas"):
        choose_target([3.0, 3.1, 3.2], margin_sigmas=-1)
