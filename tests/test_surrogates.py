"""Surrogates against the laws that they are to recover, slow twins, and what every one of them must do."""

import dataclasses
import importlib
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataeff import registry
from dataeff.errors import MeasurementError, PlanError
from dataeff.mixture_fit import spearman
from dataeff.surrogates import BoostedTrees, GaussianProcess, LogLinear, gaussian_process, log_linear
from tests.oracle import surrogate_laws

pytest.importorskip("lightgbm", reason="the extra `surrogates` is not installed")

NAMES = registry.names("surrogates")
SMOOTH = ["gaussian_process", "log_linear"]
EXPONENTS = np.array([0.9, 0.2, -1.5, 0.5])
FLOOR = 2.0


def surrogate(name):
    return registry.member("surrogates", name)()


def mixtures(count, sources=4, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(sources), count)


def law(weights):
    return FLOOR + np.exp(weights @ EXPONENTS)


@pytest.mark.parametrize("name", NAMES)
def test_a_surrogate_is_a_frozen_definition_with_defaults(name):
    made = surrogate(name)
    assert dataclasses.is_dataclass(made)
    assert type(made).__dataclass_params__.frozen
    assert registry.name_of(made) == name
    assert made == surrogate(name)


@pytest.mark.parametrize("name", NAMES)
def test_unseen_mixtures_are_ranked_by_a_law_seen_through_noise(name):
    weights = mixtures(80)
    losses = law(weights) + np.random.default_rng(1).normal(0, 0.01, 80)
    unseen = mixtures(200, seed=2)
    mean, std = surrogate(name).fit(weights, losses, 0).predict(unseen)
    assert mean.shape == std.shape == (200,)
    assert (std > 0).all()
    assert spearman(mean, law(unseen)) > 0.95


@pytest.mark.parametrize("name", NAMES)
def test_the_same_input_gives_the_same_result_to_the_bit_and_survives_pickling(name):
    weights, unseen = mixtures(30), mixtures(20, seed=3)
    fitted = surrogate(name).fit(weights, law(weights), 7)
    again = pickle.loads(pickle.dumps(surrogate(name).fit(weights, law(weights), 7)))
    for left, right in zip(fitted.predict(unseen), again.predict(unseen), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("order", [(3, 2, 1, 0), (1, 3, 0, 2)])
def test_the_order_of_sources_changes_no_prediction(name, order):
    weights, unseen = mixtures(40), mixtures(20, seed=4)
    plain = surrogate(name).fit(weights, law(weights), 0).predict(unseen)[0]
    turned = surrogate(name).fit(weights[:, order], law(weights), 0).predict(unseen[:, order])[0]
    np.testing.assert_allclose(turned, plain, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_runs_that_all_end_alike_predict_that_loss(name):
    weights = mixtures(30)
    mean, std = surrogate(name).fit(weights, np.full(30, 3.25), 0).predict(mixtures(5, seed=1))
    np.testing.assert_allclose(mean, 3.25, atol=1e-3)
    assert (std < 1e-2).all()


@pytest.mark.parametrize("name", NAMES)
def test_one_source_predicts_the_mean_of_the_runs(name):
    losses = 3 + np.random.default_rng(0).normal(0, 0.01, 20)
    mean, std = surrogate(name).fit(np.ones((20, 1)), losses, 0).predict(np.ones((1, 1)))
    assert mean[0] == pytest.approx(losses.mean(), abs=1e-3)
    assert 0.002 < std[0] < 0.03


@pytest.mark.parametrize("name", NAMES)
def test_runs_of_the_same_mixture_are_no_obstacle(name):
    weights = np.repeat(mixtures(15), 2, axis=0)
    losses = law(weights) + np.tile([-0.02, 0.02], 15)
    mean, _ = surrogate(name).fit(weights, losses, 0).predict(weights)
    assert np.isfinite(mean).all()
    assert spearman(mean, law(weights)) > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_a_source_that_no_run_had_is_no_obstacle(name):
    weights = np.column_stack([mixtures(40, 3), np.zeros(40)])
    mean, std = surrogate(name).fit(weights, law(weights), 0).predict(np.eye(4))
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_set_of_runs_is_refused(name):
    made, weights = surrogate(name), mixtures(30)
    losses = law(weights)
    with pytest.raises(PlanError, match=r"row 0 is no mixture: its shares sum to 2"):
        made.fit(2 * weights, losses, 0)
    with pytest.raises(PlanError, match="need one loss each"):
        made.fit(weights, losses[:-1], 0)
    with pytest.raises(PlanError, match="the loss of run 3 is not finite"):
        made.fit(weights, np.where(np.arange(30) == 3, np.nan, losses), 0)
    with pytest.raises(MeasurementError, match=rf"{name} has 3 proxy runs of 4 sources; it needs \d+ or more"):
        made.fit(weights[:3], losses[:3], 0)
    with pytest.raises(PlanError, match=r"must be \(mixtures, 4 sources\)"):
        made.fit(weights, losses, 0).predict(mixtures(3, 5))


@pytest.mark.parametrize(
    ("maker", "option"),
    [
        (GaussianProcess, {"transform": "square"}),
        (LogLinear, {"huber_nats": 0.0}),
        (BoostedTrees, {"trees": 0}),
        (BoostedTrees, {"learning_rate": 0.0}),
        (BoostedTrees, {"leaf_runs": 0}),
        (BoostedTrees, {"held_out_share": 0.0}),
    ],
)
def test_options_out_of_range_are_refused_at_birth(maker, option):
    with pytest.raises(PlanError, match=rf"{maker.__name__}\.{next(iter(option))}"):
        maker(**option)


def test_the_log_linear_law_is_recovered_without_noise():
    weights = mixtures(60)
    found = LogLinear().fit(weights, law(weights), 0)
    assert found.floor == pytest.approx(FLOOR, abs=1e-2)
    np.testing.assert_allclose(found.exponents, EXPONENTS, atol=2e-2)
    np.testing.assert_allclose(found.predict(np.eye(4))[0], law(np.eye(4)), atol=2e-3)


def test_one_run_that_failed_does_not_bend_the_log_linear_law():
    weights = mixtures(60)
    losses = law(weights)
    losses[7] += 5
    robust = LogLinear(huber_nats=0.02).fit(weights, losses, 0).predict(mixtures(50, seed=5))[0]
    squared = LogLinear(huber_nats=1e3).fit(weights, losses, 0).predict(mixtures(50, seed=5))[0]
    truth = law(mixtures(50, seed=5))
    assert np.abs(robust - truth).max() < 0.02
    assert np.abs(squared - truth).max() > 0.1


def test_the_log_linear_law_is_surer_where_runs_are():
    weights = mixtures(60)
    losses = law(weights) + np.random.default_rng(0).normal(0, 0.05, 60)
    _, std = LogLinear().fit(weights, losses, 0).predict(np.array([np.full(4, 0.25), [1.0, 0, 0, 0]]))
    assert 0.03 < std[0] < 0.07
    assert std[1] > std[0]


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), huber_nats=st.sampled_from([0.02, 0.3, 3.0]))
def test_the_slope_of_the_log_linear_misfit_is_its_difference_quotient(seed, huber_nats):
    weights = mixtures(25, seed=seed)
    losses = law(weights) + np.random.default_rng(seed).normal(0, 0.2, 25)
    place = np.random.default_rng(seed + 1).normal(0.5, 0.5, 5)
    slope = log_linear.misfit(place, weights, losses, huber_nats)[1]
    quotient = difference(lambda at: log_linear.misfit(at, weights, losses, huber_nats)[0], place)
    np.testing.assert_allclose(slope, quotient, rtol=1e-4, atol=1e-4 * np.abs(slope).max())


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_the_slope_of_the_likelihood_is_its_difference_quotient(seed):
    features = np.cbrt(mixtures(25, seed=seed))
    heights = np.random.default_rng(seed).normal(size=25)
    place = np.random.default_rng(seed + 1).normal(0, 0.7, 5) - np.array([0, 0, 0, 0, 3])
    slope = gaussian_process.misfit(place, features, heights)[1]
    quotient = difference(lambda at: gaussian_process.misfit(at, features, heights)[0], place)
    np.testing.assert_allclose(slope, quotient, rtol=1e-4, atol=1e-5)


def difference(function, place, step=1e-5):
    moves = step * np.eye(len(place))
    return np.array([(function(place + move) - function(place - move)) / (2 * step) for move in moves])


def test_a_process_passes_through_smooth_runs_without_noise():
    weights = mixtures(60, 3)
    heights = 3 + np.sin(3 * weights[:, 0]) + weights[:, 1] ** 2
    fitted = GaussianProcess().fit(weights, heights, 0)
    mean, std = fitted.predict(weights)
    np.testing.assert_allclose(mean, heights, atol=1e-3)
    assert std.max() < 0.01
    unseen = mixtures(100, 3, seed=9)
    off = fitted.predict(unseen)[0] - (3 + np.sin(3 * unseen[:, 0]) + unseen[:, 1] ** 2)
    assert np.sqrt((off**2).mean()) < 0.02


def test_a_process_is_less_sure_far_from_all_runs():
    weights = 0.1 * mixtures(20, 3) + np.array([0.9, 0, 0])
    losses = 3 + weights[:, 1]
    fitted = GaussianProcess().fit(weights, losses, 0)
    assert fitted.predict(np.eye(3)[2:])[1][0] > 3 * fitted.predict(weights)[1].max()


@pytest.mark.parametrize("transform", ["cube_root", "sqrt", "log"])
@pytest.mark.parametrize("log_losses", [True, False])
def test_a_process_is_its_slow_twin(transform, log_losses):
    weights, places = mixtures(12), mixtures(7, seed=1)
    losses = law(weights) + np.random.default_rng(2).normal(0, 0.05, 12)
    fitted = GaussianProcess(transform=transform, log_losses=log_losses).fit(weights, losses, 0)
    change = {"cube_root": np.cbrt, "sqrt": np.sqrt, "log": lambda share: np.log(share + 1e-3)}[transform]
    heights = np.log(losses) if log_losses else losses
    mean, std, _ = surrogate_laws.process(change(weights), heights, change(places), fitted.lengths, fitted.noise)
    expected = (np.exp(mean), np.exp(mean) * std) if log_losses else (mean, std)
    for ours, theirs in zip(fitted.predict(places), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7)


def test_the_misfit_is_the_likelihood_and_the_prior():
    features, heights = np.cbrt(mixtures(15)), np.random.default_rng(0).normal(size=15)
    theta = np.array([0.5, -0.2, 1.4, 0.0, -4.0])
    _, _, likelihood = surrogate_laws.process(features, heights, features[:1], np.exp(theta[:-1]), np.exp(theta[-1]))
    prior = 0.5 * ((theta[:-1] - 1) ** 2).sum()
    constant = 15 / 2 * (np.log(2 * np.pi) + 1)
    assert 15 * gaussian_process.misfit(theta, features, heights)[0] == pytest.approx(
        likelihood - constant + prior, rel=1e-9
    )


def test_a_process_is_that_of_scikit_learn():
    process = pytest.importorskip("sklearn.gaussian_process", reason="scikit-learn is not installed")
    kernels = importlib.import_module("sklearn.gaussian_process.kernels")
    weights, places = mixtures(40), mixtures(15, seed=1)
    losses = law(weights) + np.random.default_rng(2).normal(0, 0.05, 40)
    ours = GaussianProcess(transform="sqrt", log_losses=False).fit(weights, losses, 0)
    kernel = ours.signal * kernels.Matern(ours.lengths, nu=2.5)
    theirs = process.GaussianProcessRegressor(kernel, alpha=ours.signal * ours.noise, optimizer=None)
    theirs.fit(np.sqrt(weights), losses - ours.mean)
    mean, std = theirs.predict(np.sqrt(places), return_std=True)
    np.testing.assert_allclose(ours.predict(places)[0], mean + ours.mean, rtol=1e-7)
    np.testing.assert_allclose(ours.predict(places)[1], np.sqrt(std**2 + ours.signal * ours.noise), rtol=1e-6)


def test_bits_and_nats_give_the_same_surface():
    weights, unseen = mixtures(30), mixtures(10, seed=1)
    nats = GaussianProcess().fit(weights, law(weights), 0).predict(unseen)
    bits = GaussianProcess().fit(weights, law(weights) / np.log(2), 0).predict(unseen)
    np.testing.assert_allclose(bits[0] * np.log(2), nats[0], rtol=1e-5)


def test_losses_without_a_logarithm_are_refused_unless_they_are_taken_as_they_are():
    weights = mixtures(20)
    losses = law(weights) - 10
    with pytest.raises(PlanError, match=r"set GaussianProcess\.log_losses to False"):
        GaussianProcess().fit(weights, losses, 0)
    assert spearman(GaussianProcess(log_losses=False).fit(weights, losses, 0).predict(weights)[0], losses) > 0.99


def test_trees_that_stop_early_are_chosen_without_the_mixtures_that_judge_them():
    weights, unseen = mixtures(120), mixtures(50, seed=1)
    losses = law(weights) + np.random.default_rng(2).normal(0, 0.05, 120)
    early = BoostedTrees(stop_early=True, learning_rate=0.1).fit(weights, losses, 0)
    assert 1 <= early.booster.num_trees() < 1000
    assert spearman(early.predict(unseen)[0], law(unseen)) > 0.9


def test_trees_without_lightgbm_name_the_extra(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(PlanError, match=r"pip install 'dataeff\[surrogates\]'"):
        BoostedTrees().fit(mixtures(20), law(mixtures(20)), 0)
