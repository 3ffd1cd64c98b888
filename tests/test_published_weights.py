"""Published domain weights load as mixers and say what was published."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from dataeff.mixers import Explicit, Temperature

TABLES = Path(__file__).resolve().parents[1].parent / "shared" / "tables"
pytestmark = pytest.mark.skipif(not TABLES.is_dir(), reason="the published tables are not beside the checkout")


def doremi(name: str) -> Explicit:
    return Explicit(shares=json.loads((TABLES / "doremi" / f"{name}.json").read_text())["train_domain_weights"])


@pytest.mark.parametrize(
    ("name", "share"), [("pile_doremi_280M_256kvocab_paper", 0.6057), ("pile_doremi_r1_120M", 0.1379)]
)
def test_doremi_weighs_pile_cc_as_published(name, share):
    mixer = doremi(name)
    weights = mixer.weights(dict.fromkeys(mixer.shares, 10**9), 10**9)
    assert weights["Pile-CC"] == pytest.approx(share, abs=1e-4)
    assert math.fsum(weights.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("path", sorted((TABLES / "doremi").glob("*.json")), ids=lambda path: path.stem)
def test_every_file_of_doremi_is_a_mixture(path):
    mixer = doremi(path.stem)
    weights = mixer.weights(dict.fromkeys(mixer.shares, 10**9), 10**9)
    total = math.fsum(mixer.shares.values())
    assert total == pytest.approx(1, abs=0.01)
    assert weights == pytest.approx({name: share / total for name, share in mixer.shares.items()})


@pytest.mark.parametrize("path", sorted((TABLES / "odm" / "train_data_weights").glob("*.yml")), ids=lambda p: p.stem)
def test_every_static_mixture_of_odm_is_a_mixture(path):
    shares = [float(entry) for entry in re.findall(r"\d+\.\d+(?:e-?\d+)?", path.read_text())]
    names = [f"domain {number}" for number in range(len(shares))]
    weights = Explicit(shares=dict(zip(names, shares, strict=True))).weights(dict.fromkeys(names, 10**9), 10**9)
    assert len(shares) == 22
    assert math.fsum(weights.values()) == pytest.approx(1, abs=1e-12)


def test_the_pile_flattened_to_the_limit_is_doremis_uniform_reference():
    natural = doremi("pile_baseline_50kvocab").shares
    tokens = {name: round(share * 10**12) for name, share in natural.items() if share}
    even = Temperature(temperature=math.inf).weights(tokens, 10**9)
    uniform = doremi("pile_uniform").shares
    assert list(even.values()) == pytest.approx([1 / len(tokens)] * len(tokens))
    assert len(set(uniform.values())) == 1
    assert set(uniform) == set(natural)
