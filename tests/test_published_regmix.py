"""RegMix's published figures, to the digit by its own protocol, and ours beside them; needs the shared tables.

The notebook (sail-sg/regmix, regression_fitting/regression.ipynb) stops LightGBM early by the loss on the test set.
That is repeated here with LightGBM itself to reproduce what was printed; no surrogate of the package does it.
"""

from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

from dataeff.efficiency.mixture_search import propose
from dataeff.mixture_fit import fit, spearman
from dataeff.mixture_optimum import optimum
from dataeff.proxy_runs import Runs

TABLES = Path(__file__).resolve().parents[1].parent / "shared" / "tables" / "regmix"
PUBLISHED = {
    "arxiv": 99.60,
    "freelaw": 99.71,
    "pubmed_central": 99.08,
    "wikipedia_en": 99.45,
    "dm_mathematics": 97.20,
    "github": 99.77,
    "stackexchange": 99.73,
    "gutenberg_pg_19": 99.18,
    "pile_cc": 98.92,
    "ubuntu_irc": 96.87,
    "hackernews": 98.51,
    "pubmed_abstracts": 99.19,
    "uspto_backgrounds": 99.12,
}
"""Spearman correlation on the 1M test mixtures in percent, by validation domain, as the notebook printed it."""
OPTIMUM = {"pile_cc": 0.890924, "ubuntu_irc": 0.061429, "pubmed_abstracts": 0.012301}
PRIOR = (
    *(0.11328527, 0.07960865, 0.00391349, 0.1853759, 0.05108136, 0.01596293, 0.10175077, 0.00370752, 0.06652935),
    *(0.00175077, 0.02708548, 0.23686921, 0.01184346, 0.00792997, 0.00803296, 0.03882595, 0.04644696),
)
"""Token shares of the Pile in the notebook, in the order of its columns."""
NOTEBOOK = {"boosting": "gbdt", "objective": "regression", "metric": ["l1", "l2"], "seed": 42, "learning_rate": 1e-2}
NOTEBOOK |= {"verbosity": -1, "num_threads": 1}
TARGET = list(PUBLISHED).index("pile_cc")

pytestmark = pytest.mark.skipif(not TABLES.is_dir(), reason="shared/tables is not beside the checkout")


def read(name):
    table = pyarrow.csv.read_csv(TABLES / f"{name}.csv")
    names = [column.replace("metric/", "").removeprefix("train_") for column in table.column_names[1:]]
    names = [column.removeprefix("the_pile_").removesuffix("_val_loss") for column in names]
    return np.column_stack([column.to_numpy() for column in table.columns[1:]]), tuple(names)


@pytest.fixture(scope="module")
def train():
    weights, sources = read("train_mixture_1m")
    losses, domains = read("train_pile_loss_1m")
    assert domains == tuple(PUBLISHED)
    return Runs(sources=sources, domains=domains, weights=weights / weights.sum(1, keepdims=True), losses=losses)


@pytest.fixture(scope="module")
def unseen():
    weights, sources = read("test_mixture_1m")
    losses, domains = read("test_pile_loss_1m")
    return Runs(sources=sources, domains=domains, weights=weights / weights.sum(1, keepdims=True), losses=losses)


@pytest.fixture(scope="module")
def notebook():
    """The notebook's regressors, stopped early by the test set."""
    lightgbm = pytest.importorskip("lightgbm", reason="the extra `surrogates` is not installed")
    weights, losses = read("train_mixture_1m")[0], read("train_pile_loss_1m")[0]
    test_weights, test_losses = read("test_mixture_1m")[0], read("test_pile_loss_1m")[0]
    found = []
    for domain in range(len(PUBLISHED)):
        data = lightgbm.Dataset(weights, losses[:, domain])
        leak = lightgbm.Dataset(test_weights, test_losses[:, domain], reference=data)
        stop = lightgbm.early_stopping(3, verbose=False)
        found.append(lightgbm.train(NOTEBOOK, data, 1000, valid_sets=[leak], callbacks=[stop]))
    return found


def one(domain):
    shares = np.zeros(len(PUBLISHED))
    shares[domain] = 1
    return shares


def ranked(runs, unseen, surrogate):
    """Mean over the domains of the rank correlation on unseen mixtures, in percent."""
    found = [
        spearman(fit(runs, one(domain), surrogate, 0).predict(unseen.weights)[0], unseen.losses[:, domain])
        for domain in range(len(PUBLISHED))
    ]
    return 100 * float(np.mean(found))


def test_the_thirteen_published_correlations_to_the_digit(notebook):
    weights, losses = read("test_mixture_1m")[0], read("test_pile_loss_1m")[0]
    found = {
        name: round(100 * spearman(notebook[place].predict(weights), losses[:, place]), 2)
        for place, name in enumerate(PUBLISHED)
    }
    assert found == PUBLISHED


def test_the_published_optimum(notebook):
    drawn = np.random.RandomState(42).dirichlet(np.array(PRIOR), 100_000)
    best = drawn[np.argsort(notebook[TARGET].predict(drawn))[:128]].mean(0)
    found = dict(zip(read("train_mixture_1m")[1], best.tolist(), strict=True))
    assert sum(abs(found[name] - share) for name, share in OPTIMUM.items()) <= 1e-4


@pytest.mark.parametrize(("num_runs", "at_least"), [(64, 97.8), (128, 98.8)])
def test_a_process_ranks_unseen_mixtures_by_few_runs(train, unseen, num_runs, at_least):
    subsets = [np.random.default_rng(seed).choice(512, num_runs, replace=False) for seed in range(3)]
    found = [ranked(train.only(rows), unseen, "gaussian_process") for rows in subsets]
    assert np.mean(found) >= at_least


def test_the_best_of_512_is_found_with_64_proxies_or_fewer(train):
    best = int(train.losses[:, TARGET].argmin())
    found = 0
    for seed in range(10):
        tried = np.random.default_rng(seed).choice(512, 16, replace=False)
        while len(tried) < 64 and best not in tried:
            proposal = propose(train.only(tried), one(TARGET), train.weights, 8)
            tried = np.append(tried, proposal.candidates)
        found += best in tried
    assert found >= 9


def test_64_runs_without_a_look_at_the_test_set_lead_near_the_published_optimum(train):
    off = []
    for seed in range(3):
        rows = np.random.default_rng(seed).choice(512, 64, replace=False)
        place = optimum(fit(train.only(rows), one(TARGET), "gaussian_process", 0), np.ones(len(train.sources)))
        found = dict(zip(train.sources, place.tolist(), strict=True))
        off.append(sum(abs(found[name] - share) for name, share in OPTIMUM.items()))
    assert np.mean(off) <= 0.1
