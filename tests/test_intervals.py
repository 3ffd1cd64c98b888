"""Intervals of tokens to target: against scipy's tests, a general optimiser, hand-worked cases, and what they claim."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dataeff.efficiency.crossing import Crossing, tokens_to_target
from dataeff.efficiency.curves import Curve
from dataeff.efficiency.intervals import (
    bootstrap_crossing,
    describe,
    holm,
    pilot_sigma,
    ratio,
    seeds_to_see,
    smallest_effect,
    verdict,
)
from dataeff.efficiency.samples import Pilot, Sample
from dataeff.errors import MeasurementError, PlanError
from tests.oracle import stat_intervals as oracle

SIGMA = 0.005
LEVEL = math.log(1.5e9)


def sample(logs, budget=math.inf):
    """Runs that end at a budget, both as logarithms."""
    logs = np.asarray(logs, float)
    return Sample(log_tokens=np.minimum(logs, budget), reached=logs <= budget)


def drawn(seed, runs, shift=0.0, budget=math.inf, sigma=SIGMA):
    return sample(LEVEL + shift + np.random.default_rng(seed).normal(0, sigma, runs), budget)


VALUES = st.integers(-3000, 3000)
RUNS = st.lists(VALUES, min_size=3, max_size=8, unique=True).map(lambda values: [value / 1000 for value in values])


def test_a_sample_of_crossings_holds_the_budget_of_what_missed_the_target():
    found = Sample.of(
        [
            Crossing(tokens=100.0, method="isotonic", budget_tokens=300.0),
            Crossing(tokens=None, method="isotonic", budget_tokens=200.0),
        ]
    )
    assert np.exp(found.log_tokens) == pytest.approx([100, 200])
    assert found.reached.tolist() == [True, False]
    assert (found.num_reached, found.num_runs) == (1, 2)


@pytest.mark.parametrize(
    ("logs", "reached"), [([1.0, 2.0], [True]), ([], []), ([math.inf], [False]), ([[1.0]], [[True]])]
)
def test_what_is_no_sample_is_refused(logs, reached):
    with pytest.raises(PlanError):
        Sample(log_tokens=np.array(logs, float), reached=np.array(reached, bool))


@given(RUNS, RUNS)
def test_all_reached_is_welchs_test(a, b):
    found = ratio(sample(a), sample(b))
    theirs = stats.ttest_ind(a, b, equal_var=False)
    ends = theirs.confidence_interval()
    assert found.method == "welch"
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert found.degrees_of_freedom == pytest.approx(theirs.df, rel=1e-9)
    assert np.log([found.low, found.high]) == pytest.approx([ends.low, ends.high], rel=1e-9, abs=1e-9)
    assert math.log(found.ratio) == pytest.approx(np.mean(a) - np.mean(b), abs=1e-12)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=3, max_size=8, unique_by=lambda pair: pair[0] - pair[1]))
def test_pairs_are_scipys_paired_test(pairs):
    a, b = np.array(pairs).T / 1000
    found = ratio(sample(a), sample(b), paired=True)
    theirs = stats.ttest_rel(a, b)
    ends = theirs.confidence_interval()
    assert found.method == "paired"
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-6)
    assert np.log([found.low, found.high]) == pytest.approx([ends.low, ends.high], rel=1e-6, abs=1e-6)


@given(RUNS)
def test_one_recipe_is_students_interval(logs):
    found = describe(sample(logs))
    ends = stats.ttest_1samp(logs, 0).confidence_interval()
    assert np.log([found.low_tokens, found.high_tokens]) == pytest.approx([ends.low, ends.high], rel=1e-9, abs=1e-9)
    assert math.log(found.mean_tokens) == pytest.approx(np.mean(logs), abs=1e-12)
    assert found.sigma == pytest.approx(np.std(logs, ddof=1))


@pytest.mark.parametrize("seed", range(5))
def test_where_a_run_is_censored_the_ends_are_where_the_likelihood_falls_as_far_as_t_says(seed):
    budget = LEVEL + SIGMA
    a, b = drawn(seed, 4, 0.004, budget), drawn(100 + seed, 5, 0.0, budget)
    a.log_tokens[0], a.reached[0] = budget, False
    found = ratio(a, b)
    # In standard deviations, so that the optimiser sees numbers of one size.
    logs, reached = (
        (np.concatenate([a.log_tokens, b.log_tokens]) - LEVEL) / SIGMA,
        np.concatenate([a.reached, b.reached]),
    )
    arms = np.array([0] * 4 + [1] * 5)
    top = oracle.peak(logs, reached, arms)
    weight = 9 - np.count_nonzero(~reached) / 2
    assert found.degrees_of_freedom == weight - 2
    for end in (found.low, found.high):
        moved = logs - np.where(arms == 0, math.log(end) / SIGMA, 0.0)
        drop = 2 * (top - oracle.peak(moved, reached, np.zeros(9, int)))
        score = math.sqrt((weight - 2) * math.expm1(drop / weight))
        assert score == pytest.approx(stats.t.ppf(0.975, weight - 2), rel=1e-4)
    drop = 2 * (top - oracle.peak(logs, reached, np.zeros(9, int)))
    score = math.sqrt((weight - 2) * math.expm1(drop / weight))
    assert found.p_value == pytest.approx(2 * stats.t.sf(score, weight - 2), rel=1e-3)


def test_the_mean_of_censored_runs_is_bounded_where_the_likelihood_falls_as_far_as_t_says():
    logs, reached = np.array([-0.8, 0.1, 0.4, 1.0, 1.0]), np.array([True, True, True, False, False])
    found = describe(Sample(log_tokens=LEVEL + SIGMA * logs, reached=reached))
    top = oracle.peak(logs, reached, np.zeros(5, int))
    for end in (found.low_tokens, found.high_tokens):
        mean = (math.log(end) - LEVEL) / SIGMA
        drop = 2 * (top - oracle.peak(logs, reached, np.zeros(5, int), {0: mean}))
        assert math.sqrt(3 * math.expm1(drop / 4)) == pytest.approx(stats.t.ppf(0.975, 3), rel=1e-4)
    assert found.method == "tobit"
    assert found.words.startswith("reached 3 of 5: ")


def test_a_run_that_ended_far_too_early_to_tell_changes_the_mean_by_nothing():
    logs = LEVEL + SIGMA * np.array([-1.0, 0.2, 0.5, 0.9])
    early = Sample(log_tokens=np.append(logs, LEVEL - 1), reached=np.array([True] * 4 + [False]))
    found = describe(early)
    assert math.log(found.mean_tokens) == pytest.approx(logs.mean(), abs=1e-9)
    assert found.degrees_of_freedom == 3.5


def test_two_runs_of_nearly_equal_tokens_and_one_far_off_have_an_interval():
    logs = np.array([LEVEL, LEVEL + 1e-9, LEVEL + 0.01])
    found = describe(Sample(log_tokens=logs, reached=np.array([True, True, False])))
    assert found.low_tokens < math.exp(LEVEL) < found.mean_tokens < found.high_tokens < math.inf


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(3, 8), st.floats(-0.5, 1.5))
def test_swapping_arms_inverts_the_ratio(seed, runs, at):
    budget = LEVEL + at * SIGMA
    a, b = drawn([seed, 0], runs, 0.0, budget), drawn([seed, 1], runs, -0.004, budget)
    there, back = ratio(a, b), ratio(b, a)
    assert there.method == back.method
    if there.p_value is not None:
        assert there.p_value == pytest.approx(back.p_value, rel=1e-6)
        assert [there.ratio, there.low, there.high] == pytest.approx([1 / back.ratio, 1 / back.high, 1 / back.low])


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.permutations(range(6)), st.floats(0.2, 50))
def test_neither_the_order_of_runs_nor_the_unit_of_tokens_matters(seed, order, factor):
    budget = LEVEL + 0.8 * SIGMA
    a, b = drawn([seed, 0], 6, 0.0, budget), drawn([seed, 1], 6, -0.004, budget)
    turned = Sample(log_tokens=a.log_tokens[order] + math.log(factor), reached=a.reached[order])
    scaled = Sample(log_tokens=b.log_tokens + math.log(factor), reached=b.reached)
    there, again = ratio(a, b), ratio(turned, scaled)
    assert again.method == there.method
    if there.ratio is not None:
        assert [again.ratio, again.low, again.high, again.p_value] == pytest.approx(
            [there.ratio, there.low, there.high, there.p_value], rel=1e-5
        )


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.floats(0, 3))
def test_a_further_run_that_missed_the_target_for_as_long_as_others_took_never_lowers_the_mean(seed, later):
    few = drawn(seed, 5, 0.0, LEVEL + 0.8 * SIGMA)
    if few.num_reached < 2:
        return
    mean = describe(few).mean_tokens
    more = Sample(
        log_tokens=np.append(few.log_tokens, math.log(mean) + later * SIGMA), reached=np.append(few.reached, False)
    )
    assert describe(more).mean_tokens >= mean * (1 - 1e-9)


def test_counting_finishers_only_would_flatter():
    budget = LEVEL + 0.5 * SIGMA
    found = drawn(3, 8, 0.0, budget)
    assert 2 <= found.num_reached < 8
    assert describe(found).mean_tokens > math.exp(found.log_tokens[found.reached].mean())


def test_the_median_with_censored_runs_by_hand():
    """Of 1, 2+, 3, 4+, 5 the share left falls to 4/5 at 1, to 4/5 * 2/3 at 3, and to 0 at 5."""
    found = describe(Sample(log_tokens=np.log([5, 4, 3, 2, 1.0]), reached=np.array([True, False, True, False, True])))
    assert found.median_tokens == pytest.approx(5)
    found = describe(Sample(log_tokens=np.log([1, 2, 3, 3, 3.0]), reached=np.array([True, True, True, False, False])))
    assert found.median_tokens == pytest.approx(3)
    assert describe(sample(np.log([1, 2, 3, 4]), math.log(1.5))).median_tokens is None


@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=9))
def test_the_median_is_where_the_survival_curve_falls_to_a_half(runs):
    times, reached = [float(time) for time, _ in runs], [done for _, done in runs]
    if len({time for time, done in runs if done}) < 2:
        return
    found = describe(Sample(log_tokens=np.log(times), reached=np.array(reached))).median_tokens
    expected = next((time for time, left in oracle.survival(times, reached) if left <= 0.5 + 1e-12), None)
    assert found == (None if expected is None else pytest.approx(expected))


def test_an_arm_that_never_reached_the_target_gives_a_bound_only():
    budget = LEVEL + 0.05
    candidate, baseline = drawn(0, 3, 0.1, budget), drawn(1, 3, 0.0)
    assert candidate.num_reached == 0
    found = ratio(candidate, baseline)
    assert (found.method, found.ratio, found.p_value, found.high) == ("bound", None, None, math.inf)
    assert 1.03 < found.low < 1.05
    assert verdict(found) == f"not reached (0 of 3): at least {found.low:.4g} times the tokens (95%)"
    turned = ratio(baseline, candidate)
    assert (turned.low, turned.high) == (0, pytest.approx(1 / found.low))
    assert verdict(turned).startswith("the baseline did not reach it (0 of 3): at most")
    assert describe(candidate).words == f"not reached (0 of 3): more than {math.exp(budget):.4g} tokens"
    assert math.isinf(describe(candidate).high_tokens)


def test_a_later_budget_without_the_target_is_a_higher_bound():
    lows = [ratio(sample([LEVEL + 9] * 3, LEVEL + later), drawn(1, 3)).low for later in (0.0, 0.01, 0.05)]
    assert lows == sorted(lows)
    assert lows[2] / lows[1] == pytest.approx(math.exp(0.04), rel=0.02)


def test_where_neither_reached_the_target_nothing_is_said():
    found = ratio(drawn(0, 3, 1, LEVEL), drawn(1, 3, 1, LEVEL))
    assert (found.ratio, found.low, found.high, found.p_value) == (None, None, None, None)
    assert verdict(found) == "not reached (0 of 3)"


def test_too_few_finishers_give_no_interval():
    a, b = sample([LEVEL, LEVEL + 1], LEVEL + 0.1), sample([LEVEL + 0.01, LEVEL + 1], LEVEL + 0.1)
    found = ratio(a, b)
    assert (found.ratio, found.low, found.p_value) == (None, None, None)
    assert verdict(found) == "too few reached it (2 of 4): no interval"
    assert describe(a).words == "reached 1 of 2: too few reached it: no mean"


def test_one_run_has_no_interval_unless_a_pilot_tells_the_spread():
    one, three = drawn(0, 1, -0.05), drawn(1, 3)
    found = ratio(one, three)
    assert found.ratio == pytest.approx(math.exp(one.log_tokens[0] - three.log_tokens.mean()))
    assert (found.low, found.high, found.p_value) == (None, None, None)
    assert verdict(found) == "one seed: no interval"
    assert describe(one).words.endswith("one seed: no interval")
    pilot = pilot_sigma(drawn(2, 9))
    known = ratio(one, three, pilot=pilot)
    half = stats.t.ppf(0.975, 8) * pilot.sigma * math.sqrt(1 + 1 / 3)
    assert math.log(known.high / known.ratio) == pytest.approx(half)
    assert (known.method, known.degrees_of_freedom, verdict(known)) == ("pilot", 8, "cheaper")
    assert math.log(describe(one, pilot=pilot).high_tokens) - one.log_tokens[0] == pytest.approx(
        stats.t.ppf(0.975, 8) * pilot.sigma
    )


def test_a_pilot_is_not_used_where_both_arms_show_their_own_spread():
    assert ratio(drawn(0, 3), drawn(1, 3), pilot=Pilot(sigma=1.0, degrees_of_freedom=9, num_runs=10)).method == "welch"


def test_a_pilot_bounds_a_single_run_that_missed_the_target():
    pilot = Pilot(sigma=SIGMA, degrees_of_freedom=math.inf, num_runs=1000)
    found = ratio(sample([LEVEL + 1], LEVEL + 0.05), sample([LEVEL]), pilot=pilot)
    assert found.method == "bound"
    assert 1 < found.low < math.exp(0.05)


def test_a_pilot_with_a_known_spread_is_the_rule_of_modded_nanogpts_track_3():
    """`(gain) / sqrt(1/n1 + 1/n2) >= 0.004` is p < 0.001 one-sided at a known sigma of 0.0013 nats."""
    pilot = Pilot(sigma=0.0013, degrees_of_freedom=math.inf, num_runs=1000)
    gain = 0.004 * math.sqrt(1 / 1 + 1 / 4)
    found = ratio(sample([3.28 - gain]), sample([3.279, 3.28, 3.281, 3.28]), pilot=pilot)
    assert found.p_value / 2 == pytest.approx(stats.norm.sf(0.004 / 0.0013), rel=1e-6)
    assert found.p_value / 2 == pytest.approx(0.001, rel=0.05)


def test_a_pilot_needs_eight_runs():
    with pytest.raises(MeasurementError, match="7 of 7 pilot runs"):
        pilot_sigma(drawn(0, 7))
    assert pilot_sigma(drawn(0, 8)).degrees_of_freedom == 7
    censored = pilot_sigma(drawn(0, 12, budget=LEVEL + SIGMA))
    assert 7 < censored.degrees_of_freedom < 11
    assert censored.sigma == pytest.approx(SIGMA, rel=0.5)


@pytest.mark.parametrize(("sigma", "freedom"), [(0.0, 5), (math.nan, 5), (0.1, 0)])
def test_a_pilot_without_a_spread_is_refused(sigma, freedom):
    with pytest.raises(PlanError, match=r"Pilot\."):
        Pilot(sigma=sigma, degrees_of_freedom=freedom, num_runs=8)


def test_copies_of_one_run_are_not_taken_for_seeds():
    copies = sample([LEVEL] * 3)
    with pytest.raises(MeasurementError, match="copies of one run"):
        describe(copies)
    with pytest.raises(MeasurementError, match="copies of one run"):
        ratio(copies, copies)
    with pytest.raises(MeasurementError, match="copies of one run"):
        ratio(sample([LEVEL, LEVEL, LEVEL + 1], LEVEL + 0.1), copies)


def test_pairing_helps_where_seeds_share_their_luck():
    luck = np.random.default_rng(0).normal(0, 0.02, 5)
    a, b = drawn(1, 5, -0.01, sigma=0.001), drawn(2, 5, sigma=0.001)
    a, b = sample(a.log_tokens + luck), sample(b.log_tokens + luck)
    paired, apart = ratio(a, b, paired=True), ratio(a, b)
    assert paired.ratio == pytest.approx(apart.ratio)
    assert paired.high / paired.low - 1 < 0.3 * (apart.high / apart.low - 1)
    assert (verdict(paired), verdict(apart)[:23]) == ("cheaper", "no difference found at ")


def test_a_pair_of_which_one_run_is_censored_moves_the_ratio_to_its_side():
    a, b = drawn(1, 6, -0.01), drawn(2, 6)
    whole = ratio(a, b, paired=True)
    late = Sample(log_tokens=a.log_tokens, reached=np.arange(6) != 0)
    found = ratio(late, b, paired=True)
    assert found.method == "tobit"
    assert found.ratio > whole.ratio
    assert ratio(a, Sample(log_tokens=b.log_tokens, reached=np.arange(6) != 0), paired=True).ratio < whole.ratio
    swapped = ratio(b, late, paired=True)
    assert [swapped.ratio, swapped.low, swapped.high] == pytest.approx([1 / found.ratio, 1 / found.high, 1 / found.low])


def test_a_pair_of_which_neither_run_reached_the_target_says_nothing():
    a, b = drawn(1, 5, -0.01), drawn(2, 5)
    with_lost = [
        Sample(log_tokens=np.append(one.log_tokens, LEVEL + 1), reached=np.append(one.reached, False)) for one in (a, b)
    ]
    found, expected = ratio(*with_lost, paired=True), ratio(a, b, paired=True)
    assert found.method == "paired"
    assert [found.low, found.high] == [expected.low, expected.high]


def test_unequal_arms_cannot_be_paired():
    with pytest.raises(PlanError, match="3 candidate and 4 baseline runs"):
        ratio(drawn(0, 3), drawn(1, 4), paired=True)


@pytest.mark.parametrize("confidence", [0, 1, 95])
def test_a_confidence_is_a_share(confidence):
    with pytest.raises(PlanError, match="confidence is"):
        ratio(drawn(0, 3), drawn(1, 3), confidence=confidence)
    with pytest.raises(PlanError, match="confidence is"):
        describe(drawn(0, 3), confidence=confidence)


def test_evaluation_noise_lengthens_the_interval_of_one_recipe_in_quadrature():
    plain, noisy = describe(drawn(0, 5)), describe(drawn(0, 5), evaluation_sigma=0.01)
    assert noisy.mean_tokens == plain.mean_tokens
    expected = math.hypot(math.log(plain.high_tokens / plain.mean_tokens), 1.959964 * 0.01)
    assert math.log(noisy.high_tokens / noisy.mean_tokens) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(PlanError, match="evaluation_sigma"):
        describe(drawn(0, 5), evaluation_sigma=-1)


def test_holm_by_hand():
    """Of 0.01, 0.04, 0.03 and 0.005: 4 * 0.005, 3 * 0.01, 2 * 0.03, and 0.04, which may not be less than 0.06."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, None, 0.04]) == (0.02, None, 0.04)
    assert holm([0.9, 0.8]) == (1.0, 1.0)
    assert holm([None]) == (None,)
    assert holm([]) == ()


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_what_is_no_p_value_is_refused(value):
    with pytest.raises(PlanError, match="p-value 1"):
        holm([0.5, value])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_the_values_and_bonferroni_and_keeps_their_order(values):
    adjusted = holm(values)
    assert all(p <= q <= min(1, len(values) * p) for p, q in zip(values, adjusted, strict=True))
    assert [adjusted[i] for i in np.argsort(values, kind="stable")] == sorted(adjusted)


def test_seeds_to_see_are_cohens():
    """Cohen 1988, table 2.4.1, power 0.8, two-sided 5 %: d = 0.2, 0.5, 0.8 need 394, 64 and 26 runs an arm."""
    found = [seeds_to_see(math.expm1(effect), 1.0) for effect in (0.2, 0.5, 0.8)]
    assert found == [394, 64, 26]
    assert seeds_to_see(math.expm1(-0.5), 1.0) == 64


def test_seeds_resolve_what_published_runs_suggest():
    """At a spread of 0.5 % of tokens two or three seeds an arm show a speed-up of 2 %."""
    assert seeds_to_see(-0.02, 0.005) == 3
    assert smallest_effect(3, 0.005) == pytest.approx(0.0155, abs=1e-4)


@given(st.integers(2, 40), st.floats(0.001, 0.1))
def test_the_smallest_effect_is_just_seen_by_its_seeds(runs, sigma):
    assert seeds_to_see(smallest_effect(runs, sigma) * (1 + 1e-6), sigma) <= runs
    assert seeds_to_see(smallest_effect(runs, sigma) * 0.98, sigma) > runs


@pytest.mark.parametrize(("runs", "alpha"), [(2, 0.05), (3, 0.001), (8, 0.05), (30, 0.01)])
def test_the_power_is_that_of_integrating_over_the_spread(runs, alpha):
    effect = math.log1p(smallest_effect(runs, 1.0, alpha=alpha))
    threshold = stats.t.ppf(1 - alpha / 2, 2 * runs - 2)
    assert oracle.power(runs, effect, threshold) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"effect_share": 0.0, "sigma": 0.01},
        {"effect_share": -1.0, "sigma": 0.01},
        {"effect_share": 0.02, "sigma": 0.0},
        {"effect_share": 0.02, "sigma": 0.01, "power": 0.01},
        {"effect_share": 1e-9, "sigma": 1.0},
    ],
)
def test_a_design_that_cannot_be_is_refused(options):
    with pytest.raises(PlanError):
        seeds_to_see(**options)


def test_one_run_sees_nothing():
    with pytest.raises(PlanError, match="2 or more an arm"):
        smallest_effect(1, 0.01)


def test_verdicts():
    assert verdict(ratio(drawn(0, 4, -0.03), drawn(1, 4))) == "cheaper"
    assert verdict(ratio(drawn(0, 4, 0.03), drawn(1, 4))) == "dearer"
    same = ratio(drawn(0, 3, sigma=0.02), drawn(1, 3, sigma=0.02))
    seeds = seeds_to_see(0.02, same.sigma)
    assert verdict(same) == f"no difference found at this budget; it would take {seeds} seeds to see 2 %"
    assert verdict(same, effect_share=-0.5) == "no difference found at this budget, where 2 seeds see 50 %"


def test_a_verdict_goes_by_the_adjusted_p_value():
    found = ratio(drawn(0, 3, -0.02), drawn(1, 3))
    assert verdict(found) == "cheaper"
    assert verdict(found, p_value=0.2).startswith("no difference found")


def test_words_say_the_interval_and_how_it_was_made():
    found = ratio(drawn(0, 4, -0.03), drawn(1, 4))
    assert found.words == f"{found.ratio:.4g} times the tokens ({found.low:.4g} to {found.high:.4g}, 95%)"
    assert found.method_words == f"Welch's t on log tokens, {found.degrees_of_freedom:.3g} degrees of freedom"
    assert ratio(drawn(0, 1), drawn(1, 4)).words.endswith("no interval")


BLOCK_TOKENS = np.linspace(1 / 30, 1, 30) * 1e9


def blocks(seed, count, spread):
    """Losses of validation blocks, hard ones hard at every point, around a power law that is 3.3 near 9e8 tokens."""
    random = np.random.default_rng(seed)
    hard = random.normal(0, spread, count)
    curve = 2.9 + 0.38 * (BLOCK_TOKENS / 1e9) ** -0.5
    return curve[:, None] + hard + random.normal(0, spread / 10, (30, count))


def test_the_bootstrap_of_blocks_finds_the_spread_of_other_blocks():
    count, spread = 64, 0.02
    found = bootstrap_crossing(blocks(0, count, spread), BLOCK_TOKENS, 3.3, seed=1)
    others = [Curve.of(BLOCK_TOKENS, blocks(seed, count, spread).mean(axis=1)) for seed in range(200)]
    logs = [math.log(tokens_to_target(curve, 3.3, method="power_law").tokens) for curve in others]
    assert found.log_sigma == pytest.approx(np.std(logs), rel=0.3)
    assert found.low_tokens < found.tokens < found.high_tokens
    assert found.reached_share == 1


def test_the_bootstrap_is_the_same_for_the_same_seed():
    losses = blocks(0, 32, 0.02)
    first, second, other = (bootstrap_crossing(losses, BLOCK_TOKENS, 3.3, seed) for seed in (1, 1, 2))
    assert first == second != other


def test_equal_blocks_have_no_evaluation_noise():
    losses = np.repeat(blocks(0, 1, 0.0), 20, axis=1)
    assert bootstrap_crossing(losses, BLOCK_TOKENS, 3.3, 0).log_sigma == pytest.approx(0, abs=1e-9)


def test_draws_that_miss_the_target_count_as_later_than_all():
    losses = blocks(0, 32, 0.05)
    found = bootstrap_crossing(losses, BLOCK_TOKENS, float(losses.mean(axis=1)[-5:].mean()) - 0.005, seed=0)
    assert 0.05 < found.reached_share < 0.975
    assert math.isinf(found.high_tokens)


def test_too_few_blocks_or_draws_are_refused():
    with pytest.raises(MeasurementError, match="19 validation blocks"):
        bootstrap_crossing(blocks(0, 19, 0.02), BLOCK_TOKENS, 3.3, 0)
    with pytest.raises(PlanError, match="100 draws or more"):
        bootstrap_crossing(blocks(0, 20, 0.02), BLOCK_TOKENS, 3.3, 0, num_resamples=10)
    with pytest.raises(PlanError, match="a row for each point"):
        bootstrap_crossing(blocks(0, 20, 0.02), BLOCK_TOKENS[:-1], 3.3, 0)


COVERAGE_DRAWS = 700
"""The standard error of a share of 95 % is then 0.8 points, which is granted above 97 %."""


@pytest.mark.parametrize("runs", [3, 8])
@pytest.mark.parametrize("at", [math.inf, 1.0])
def test_the_interval_of_a_ratio_holds_the_truth_as_often_as_it_says(runs, at):
    """None or 16 % of the candidate's runs censored, 4 % of the baseline's; the truth is 0.4 %."""
    held, count = 0, 0
    for draw in range(COVERAGE_DRAWS):
        a = drawn([runs, draw, 0], runs, 0.0, LEVEL + at * SIGMA)
        b = drawn([runs, draw, 1], runs, -0.004, LEVEL + at * SIGMA)
        found = ratio(a, b)
        if found.low is not None:
            count += 1
            held += found.low <= math.exp(0.004) <= found.high
    assert count > 0.99 * COVERAGE_DRAWS
    assert 0.93 <= held / count <= 0.978


@pytest.mark.parametrize(("runs", "at"), [(3, 0.3), (5, 0.6), (8, 1.0)])
def test_a_bound_is_wrong_no_more_often_than_it_says(runs, at):
    """Where the truth lies so far beyond the budget that wrong bounds are most frequent."""
    wrong = 0
    for draw in range(600):
        a = drawn([runs, draw, 2], runs, 0.05, LEVEL + 0.05 - at * SIGMA)
        if not a.num_reached:
            wrong += ratio(a, drawn([runs, draw, 3], runs)).low > math.exp(0.05)
    assert wrong <= 0.05 * 600
