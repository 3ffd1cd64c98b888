"""From a table of proxy runs to a mixture: reading, choosing a surrogate, caps, the optimum, the next proposals."""

import dataclasses
import math
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff.efficiency.mixture_search import candidate_draws, propose, recommend
from dataeff.errors import FormatError, MeasurementError, PlanError
from dataeff.manifest import fingerprint
from dataeff.mixers import Regression
from dataeff.mixture_fit import choose, fit, spearman
from dataeff.mixture_optimum import caps, draws, optimum, within_caps
from dataeff.proxy_runs import Runs, domain_shares, read_runs
from tests.oracle import surrogate_laws

SOURCES = ("books", "code", "web")
EXPONENTS = {"essays": np.array([-1.0, 0.8, 0.1]), "programs": np.array([0.7, -1.2, 0.3])}
PLENTY = dict.fromkeys(SOURCES, 10**9)
EVEN = np.array([0.5, 0.5])


def losses_of(weights):
    return np.column_stack([2 + np.exp(weights @ exponents) for exponents in EXPONENTS.values()])


def proxy_runs(count=40, seed=0, noise=0.005):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(3), count)
    losses = losses_of(weights) + rng.normal(0, noise, (count, 2))
    return Runs(sources=SOURCES, domains=tuple(EXPONENTS), weights=weights, losses=losses)


def truth(limits, shares=EVEN, steps=200):
    """The best mixture under the caps on a fine grid."""
    grid = np.array([(i, j, steps - i - j) for i in range(steps + 1) for j in range(steps + 1 - i)]) / steps
    grid = grid[(grid <= np.asarray(limits) + 1e-12).all(1)]
    return grid[np.argmin(losses_of(grid) @ shares)]


def write(path, runs, **extra):
    columns = {f"weight:{name}": runs.weights[:, place] for place, name in enumerate(runs.sources)}
    columns |= {f"loss:{name}": runs.losses[:, place] for place, name in enumerate(runs.domains)}
    table = pa.table({**extra, **columns})
    writer = pa.parquet.write_table if path.suffix == ".parquet" else pa.csv.write_csv
    writer(table, path)
    return str(path)


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "runs.csv", proxy_runs())


@pytest.mark.parametrize("name", ["runs.csv", "runs.parquet"])
def test_a_table_is_read_by_names_whatever_the_order_of_its_columns(tmp_path, name):
    runs = proxy_runs(5)
    turned = Runs(
        sources=SOURCES[::-1], domains=runs.domains[::-1], weights=runs.weights[:, ::-1], losses=runs.losses[:, ::-1]
    )
    write(tmp_path / name, turned, run=list("abcde"))
    found = read_runs(tmp_path / name)
    assert (found.sources, found.domains) == (SOURCES, tuple(EXPONENTS))
    np.testing.assert_allclose(found.weights, runs.weights, rtol=1e-12)
    np.testing.assert_allclose(found.losses, runs.losses, rtol=1e-12)


def test_rounded_weights_are_divided_by_their_sum(tmp_path):
    (tmp_path / "runs.csv").write_text("weight:a,weight:b,loss:x\n0.333,0.664,3\n")
    np.testing.assert_allclose(read_runs(tmp_path / "runs.csv").weights, [[0.333 / 0.997, 0.664 / 0.997]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("loss:x\n3\n", "has no column that begins with 'weight:'"),
        ("weight:a,weight:a,loss:x\n0.5,0.5,3\n", "has one column twice"),
        ("weight:a,weight:b\n0.5,0.5\n", "has no column that begins with 'loss:'"),
        ("weight:a,weight:b,loss:x\n0.5,0.2,3\n", r"row 1: shares that do not sum to 1 \(sum 0.7\)"),
        ("weight:a,weight:b,loss:x\n0.5,0.5,3\n1.5,-0.5,3\n", "row 2: a share below 0"),
        ("weight:a,weight:b,loss:x\n0.5,0.5,3\n0.5,0.5,\n", "row 2: 'loss:x' is empty or not finite"),
        ("weight:a,weight:b,loss:x\n0.5,0.5,nan\n", "row 1: 'loss:x' is empty or not finite"),
        ("weight:a,weight:b,loss:x\n0.5,0.5,low\n", "column 'loss:x' does not hold numbers"),
        ("weight:a,weight:b,loss:x\n0.5,0.5,3,4\n", "cannot be read"),
    ],
)
def test_a_damaged_table_says_where(tmp_path, text, message):
    (tmp_path / "runs.csv").write_text(text)
    with pytest.raises(FormatError, match=message):
        read_runs(tmp_path / "runs.csv")


def test_a_table_that_is_not_there_is_said():
    with pytest.raises(PlanError, match=r"no table of proxy runs at absent\.csv"):
        Regression(runs="absent.csv")


def test_losses_of_other_runs_are_refused():
    with pytest.raises(PlanError, match="5 runs on 1 domains need one row a run"):
        Runs(sources=SOURCES, domains=("x",), weights=proxy_runs(5).weights, losses=np.ones((4, 1)))


def test_domains_are_weighed_as_wanted():
    assert domain_shares(["x", "y"], {}).tolist() == [0.5, 0.5]
    assert domain_shares(["x", "y"], {"y": 3, "x": 1}).tolist() == [0.25, 0.75]
    with pytest.raises(PlanError, match="no run has a loss on z; there are x, y"):
        domain_shares(["x", "y"], {"z": 1})
    for wrong in ({"x": -1.0, "y": 2.0}, {"x": 0.0}, {"x": math.nan}):
        with pytest.raises(PlanError, match="must be finite, 0 or more, and not all 0"):
            domain_shares(["x", "y"], wrong)


@given(
    weights=st.lists(st.floats(1e-6, 1), min_size=1, max_size=6),
    limits=st.lists(st.floats(0.02, 1), min_size=6, max_size=6),
    slack=st.floats(1.0001, 3),
)
def test_mixtures_brought_under_caps_are_those_of_the_slow_twin(weights, limits, slack):
    wanted = np.array(weights) / sum(weights)
    bounds = np.array(limits[: len(weights)])
    bounds *= max(1.0, slack / bounds.sum())
    found = within_caps(wanted[None], bounds)[0]
    np.testing.assert_allclose(found, surrogate_laws.capped(wanted, bounds), atol=1e-9)
    assert abs(found.sum() - 1) < 1e-12
    assert (found <= bounds + 1e-12).all()


def test_a_source_without_weight_gives_only_where_the_others_cannot():
    limits = np.array([0.3, 0.5, 0.4])
    np.testing.assert_allclose(within_caps(np.array([[1.0, 0, 0]]), limits)[0], [0.3, 0.7 * 5 / 9, 0.7 * 4 / 9])
    np.testing.assert_allclose(within_caps(np.array([[0.2, 0.8, 0]]), np.array([1, 0.5, 0.4])), [[0.5, 0.5, 0]])


def test_caps_are_epochs_over_the_budget():
    tokens = {"web": 100, "books": 10, "code": 0}
    assert caps(SOURCES, tokens, 200, 4.0).tolist() == [0.2, 0.0, 1.0]
    assert caps(SOURCES, tokens, 200, None).tolist() == [1.0, 0.0, 1.0]
    assert caps(SOURCES, tokens, 440, 4.0).sum() == pytest.approx(1)


def test_a_budget_beyond_all_caps_says_how_many_tokens_are_missing():
    with pytest.raises(PlanError, match=r"4 epochs of all sources are 560 tokens short of the budget of 1,000"):
        caps(SOURCES, {"web": 100, "books": 10}, 1000, 4.0)
    with pytest.raises(PlanError, match="no proxy run was trained on wbe; the runs' sources are books, code, web"):
        caps(SOURCES, {"wbe": 100}, 10, 4.0)
    with pytest.raises(PlanError, match="none of the 3 sources has tokens"):
        caps(SOURCES, {"web": 0}, 10, None)
    with pytest.raises(PlanError, match="the budget is 0"):
        caps(SOURCES, {"web": 5}, 0, None)


def test_the_surrogate_that_ranks_held_out_runs_best_is_chosen():
    choice = choose(proxy_runs(), EVEN)
    assert choice.spearman[choice.surrogate] == max(choice.spearman.values()) > 0.98
    assert -1 <= choice.agreement <= 1
    assert choice.refused == {}
    assert choose(proxy_runs(), EVEN) == choice


def test_a_surrogate_that_needs_more_runs_is_left_out_and_named():
    few = proxy_runs(6)
    choice = choose(few, EVEN)
    assert (choice.surrogate, choice.agreement) == ("gaussian_process", 1.0)
    assert "log_linear has 4 proxy runs of 3 sources; it needs 5" in choice.refused["log_linear"]
    with pytest.raises(MeasurementError, match="no surrogate can be compared: gaussian_process has"):
        choose(proxy_runs(3), EVEN)


def test_rank_correlation_takes_ties_by_their_mean_and_constants_for_nothing():
    assert spearman(np.array([1.0, 2, 3]), np.array([5.0, 6, 9])) == pytest.approx(1)
    assert spearman(np.array([1.0, 1, 2]), np.array([1.0, 2, 3])) == pytest.approx(math.sqrt(3) / 2)
    assert spearman(np.ones(3), np.array([1.0, 2, 3])) == 0


def test_domains_are_fitted_one_by_one_and_only_those_that_count():
    runs = proxy_runs()
    both, one = fit(runs, EVEN, "log_linear", 0), fit(runs, np.array([1.0, 0.0]), "log_linear", 0)
    assert (len(both.fits), len(one.fits)) == (2, 1)
    places = proxy_runs(10, seed=1).weights
    other = fit(runs, np.array([0.0, 1.0]), "log_linear", 0)
    for ours, left, right in zip(both.predict(places), one.predict(places), other.predict(places), strict=True):
        np.testing.assert_allclose(ours, (left + right) / 2)


@pytest.mark.parametrize("surrogate", ["gaussian_process", "log_linear"])
@pytest.mark.parametrize("limits", [[1, 1, 1], [0.2, 1, 1], [0.3, 0.3, 1], [0.2, 0.35, 0.45]])
def test_the_optimum_is_that_of_the_true_law_and_under_the_caps(surrogate, limits):
    limits = np.array(limits, float)
    found = optimum(fit(proxy_runs(60), EVEN, surrogate, 0), limits, num_draws=2000)
    assert abs(found.sum() - 1) < 1e-12
    assert (found <= limits + 1e-9).all()
    regret = (losses_of(found[None]) @ EVEN - losses_of(truth(limits)[None]) @ EVEN)[0]
    assert -1e-4 < regret < 2e-3


def test_gradients_go_on_from_the_average_of_the_best_draws():
    model = fit(proxy_runs(60), EVEN, "log_linear", 0)
    limits = np.ones(3)
    pool = draws(model.centre, limits, 2000, 0)
    drawn = model.predict(pool)[0]
    best = model.predict(optimum(model, limits, num_draws=2000)[None])[0][0]
    assert best <= drawn.min() + 1e-6
    assert best < model.predict(pool[np.argsort(drawn)[:128]].mean(0)[None])[0][0]


def test_trees_keep_to_the_average_of_the_best_draws():
    pytest.importorskip("lightgbm", reason="the extra `surrogates` is not installed")
    model = fit(proxy_runs(100), EVEN, "boosted_trees", 0)
    found = optimum(model, np.ones(3), num_draws=2000)
    assert (losses_of(found[None]) @ EVEN)[0] - (losses_of(truth(np.ones(3))[None]) @ EVEN)[0] < 0.05


def test_one_source_gets_everything():
    runs = Runs(sources=("web",), domains=("x",), weights=np.ones((8, 1)), losses=3 + 0.01 * np.arange(8.0)[:, None])
    assert optimum(fit(runs, np.ones(1), "gaussian_process", 0), np.ones(1), num_draws=200).tolist() == [1.0]


@settings(max_examples=25)
@given(seed=st.integers(0, 1000))
def test_candidates_are_distinct_mixtures_under_the_caps(seed):
    limits = np.array([0.2, 0.9, 0.5, 0.0])
    found = candidate_draws(np.array([0.6, 0.3, 0.1, 0.0]), limits, 64, seed=seed)
    assert 0 < len(found) <= 64
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)
    assert (found <= limits + 1e-12).all()
    assert len(np.unique(found, axis=0)) == len(found)
    np.testing.assert_array_equal(found, candidate_draws(np.array([0.6, 0.3, 0.1, 0.0]), limits, 64, seed=seed))


def test_draws_have_the_mean_of_the_tempered_prior():
    prior = np.array([0.81, 0.16, 0.03])
    found = draws(prior, np.ones(3), 40_000, 0).mean(0)
    np.testing.assert_allclose(found, np.sqrt(prior) / np.sqrt(prior).sum(), atol=0.01)


def test_proposals_are_apart_from_the_runs_and_from_each_other():
    runs = proxy_runs(12)
    candidates = np.concatenate([runs.weights, candidate_draws(np.ones(3) / 3, np.ones(3), 200)])
    found = propose(runs, EVEN, candidates, 5, min_distance=0.1)
    everyone = np.concatenate([runs.weights, found.weights])
    apart = 0.5 * np.abs(everyone[:, None] - everyone[None]).sum(2)[len(runs.weights) :]
    apart[np.arange(5), len(runs.weights) + np.arange(5)] = 1
    assert len(found.weights) == 5
    assert apart.min() >= 0.1
    np.testing.assert_array_equal(candidates[found.candidates], found.weights)


def test_proposals_come_by_their_lower_bound():
    runs = proxy_runs(12)
    candidates = candidate_draws(np.ones(3) / 3, np.ones(3), 100)
    for kappa in (0.0, 1.0, 5.0):
        found = propose(runs, EVEN, candidates, 100, kappa=kappa, min_distance=0)
        assert (np.diff(found.predicted - kappa * found.std) >= 0).all()


def test_a_candidate_that_was_run_is_not_proposed_again():
    runs = proxy_runs(12)
    assert len(propose(runs, EVEN, runs.weights, 4, min_distance=0).weights) == 0


def test_proposals_find_the_best_of_a_list_with_few_runs():
    everything = proxy_runs(200, seed=3, noise=0)
    aggregated = everything.losses @ EVEN
    tried = np.arange(8)
    for _ in range(3):
        found = propose(everything.only(tried), EVEN, everything.weights, 4, min_distance=0)
        tried = np.append(tried, found.candidates)
    assert int(aggregated.argmin()) in tried


def test_options_of_a_proposal_out_of_range_are_refused():
    for wrong in ({"batch": 0}, {"kappa": -1.0}, {"min_distance": 1.5}):
        with pytest.raises(PlanError, match="batch must be 1 or more, kappa 0 or more"):
            propose(proxy_runs(), EVEN, proxy_runs().weights, **{"batch": 1, **wrong})
    with pytest.raises(PlanError, match=r"\(mixtures, 3 sources\)"):
        propose(proxy_runs(), EVEN, np.ones((2, 2)) / 2, 1)


def test_a_recommendation_shows_every_surrogate_and_how_far_apart_they_are():
    tokens = {"books": 250, "code": 1000, "web": 1000}
    found = recommend(proxy_runs(60), EVEN, tokens, 4000, max_epochs=4.0)
    assert set(found.optima) == {"gaussian_process", "log_linear"}
    assert found.best is found.optima[found.choice.surrogate]
    assert found.best.regret == 0
    left, right = (np.array(list(entry.weights.values())) for entry in found.optima.values())
    assert found.disagreement_share == pytest.approx(0.5 * np.abs(left - right).sum())
    for entry in found.optima.values():
        assert entry.epochs["books"] == pytest.approx(entry.weights["books"] * 4000 / 250)
        assert max(entry.epochs.values()) <= 4 + 1e-9
    assert found.best.predicted == pytest.approx((losses_of(truth([0.25, 1, 1])[None]) @ EVEN)[0], abs=0.02)


def test_regression_is_near_the_best_mixture_of_the_true_law(table):
    found = Regression(runs=table).weights(PLENTY, 10**6)
    assert list(found) == list(SOURCES)
    assert abs(math.fsum(found.values()) - 1) <= 1e-12
    regret = (losses_of(np.array([list(found.values())])) - losses_of(truth(np.ones(3))[None])) @ EVEN
    assert regret[0] < 5e-3


def test_regression_minimises_the_domains_that_it_is_given(table):
    essays = Regression(runs=table, domains={"essays": 1.0}).weights(PLENTY, 10**6)
    programs = Regression(runs=table, domains={"programs": 1.0}).weights(PLENTY, 10**6)
    assert essays["books"] > 0.9
    assert programs["code"] > 0.9
    with pytest.raises(PlanError, match="no run has a loss on poems; there are essays, programs"):
        Regression(runs=table, domains={"poems": 1.0}).weights(PLENTY, 10**6)


def test_regression_keeps_to_the_repetition_cap_and_refuses_what_cannot_be(table):
    tokens = {"books": 100, "code": 10_000, "web": 10_000}
    found = Regression(runs=table, domains={"essays": 1.0}, max_epochs=4.0).weights(tokens, 1000)
    assert found["books"] == pytest.approx(0.4, abs=1e-9)
    free = Regression(runs=table, domains={"essays": 1.0}, max_epochs=None).weights(tokens, 1000)
    assert free["books"] > 0.9
    with pytest.raises(PlanError, match="19,600 tokens short of the budget of 100,000"):
        Regression(runs=table).weights(tokens, 100_000)


def test_regression_gives_a_cap_to_the_source_that_it_belongs_to(table):
    tokens = {"web": 10_000, "code": 10_000, "books": 100}
    found = Regression(runs=table, domains={"essays": 1.0}).weights(tokens, 1000)
    assert list(found) == ["web", "code", "books"]
    assert found["books"] == pytest.approx(0.4, abs=1e-9)


def test_regression_leaves_out_sources_that_are_gone_and_refuses_those_it_never_saw(table):
    assert Regression(runs=table).weights({"code": 10**9, "web": 10**9}, 10**6).keys() == {"code", "web"}
    with pytest.raises(PlanError, match="no proxy run was trained on wiki"):
        Regression(runs=table).weights({**PLENTY, "wiki": 5}, 10**6)
    assert Regression(runs=table).weights({**PLENTY, "wiki": 0}, 10**6)["wiki"] == 0


def test_regression_says_when_there_are_too_few_runs(tmp_path):
    table = write(tmp_path / "runs.csv", proxy_runs(3))
    with pytest.raises(MeasurementError, match="train more proxies"):
        Regression(runs=table).weights(PLENTY, 10**6)


def test_regression_takes_the_surrogate_that_is_named(table):
    auto = Regression(runs=table)
    named = Regression(runs=table, surrogate="log_linear")
    assert fingerprint(auto) != fingerprint(named)
    assert named.weights(PLENTY, 10**6) != Regression(runs=table, surrogate="gaussian_process").weights(PLENTY, 10**6)
    with pytest.raises(PlanError, match="no surrogate is called 'log_liner'; there is log_linear"):
        Regression(runs=table, surrogate="log_liner")
    with pytest.raises(PlanError, match=r"Regression\.max_epochs"):
        Regression(runs=table, max_epochs=0.0)


def test_regression_is_another_mixer_where_the_table_is_another(table, tmp_path):
    made = Regression(runs=table)
    assert pickle.loads(pickle.dumps(made)) == made
    assert dataclasses.replace(made) == made
    write(tmp_path / "runs.csv", proxy_runs(41))
    assert fingerprint(Regression(runs=table)) != fingerprint(made)
    with pytest.raises(PlanError, match="has changed since this mixer was made"):
        made.weights(PLENTY, 10**6)
