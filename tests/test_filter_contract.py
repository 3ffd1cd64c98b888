"""What every filter in the registry must do, those of others included."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataeff import registry
from dataeff.errors import PlanError
from dataeff.filters import Bounds
from dataeff.manifest import fingerprint
from dataeff.segments import Segments
from tests.oracle.texts import HOSTILE

NAMES = registry.names("filters")


def always_english(texts: Sequence[str]) -> list[tuple[str, float]]:
    """A language model that is as certain as a text is long."""
    return [("en", min(1.0, len(text) / 100)) for text in texts]


OPTIONS: dict[str, dict[str, Any]] = {"language": {"model": always_english}}


def made(name: str) -> Any:
    return registry.member("filters", name)(**OPTIONS.get(name, {}))


def measured(rule: Any, rows: Sequence[str] | pa.Array) -> dict[str, np.ndarray]:
    array = rows if isinstance(rows, pa.Array) else pa.array(rows, pa.large_string())
    found: dict[str, np.ndarray] = rule.measure(Segments(array))
    return found


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return list(left) == list(right) and all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("name", NAMES)
def test_hostile_rows_get_one_number_for_each_bound(name):
    rule = made(name)
    signals = measured(rule, list(HOSTILE.values()))
    bounds = rule.bounds()
    assert list(signals) == list(bounds)
    for signal, values in signals.items():
        assert values.dtype == np.float64, signal
        assert values.shape == (len(HOSTILE),), signal
        assert np.isfinite(values).all(), signal
        assert isinstance(bounds[signal], Bounds)
        assert bounds[signal].low <= bounds[signal].high


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_get_no_numbers(name):
    assert all(values.shape == (0,) for values in measured(made(name), []).values())


@pytest.mark.parametrize("name", NAMES)
def test_a_row_has_the_same_signals_in_any_batch(name):
    rule = made(name)
    rows = list(HOSTILE.values())
    together = measured(rule, rows)
    alone = [measured(rule, [row]) for row in rows]
    assert same(together, {signal: np.concatenate([one[signal] for one in alone]) for signal in together})
    backwards = measured(rule, rows[::-1])
    assert same(together, {signal: values[::-1] for signal, values in backwards.items()})
    sliced = measured(rule, pa.array(["in front", *rows, "behind"], pa.large_string()).slice(1, len(rows)))
    assert same(together, sliced)


@pytest.mark.parametrize("name", NAMES)
def test_four_threads_at_once_find_what_one_finds(name):
    rule = made(name)
    rows = list(HOSTILE.values())
    expected = measured(rule, rows)
    with ThreadPoolExecutor(4) as pool:
        assert all(same(expected, found) for found in pool.map(lambda _: measured(rule, rows), range(8)))


@pytest.mark.parametrize("name", NAMES)
def test_only_the_fields_that_it_names_change_what_is_measured(name):
    rule = made(name)
    fields = {field.name for field in dataclasses.fields(rule)}
    assert set(type(rule).measured_by) <= fields
    rows = list(HOSTILE.values())
    expected = measured(rule, rows)
    for field in sorted(fields - set(type(rule).measured_by)):
        value = getattr(rule, field)
        others = [0, value]
        if isinstance(value, tuple):
            others.append(tuple(part / 2 for part in value))
        elif not isinstance(value, str):
            others.append(value / 2)
        else:
            others += ["training", "validation"]
        for other in others:
            try:
                changed = dataclasses.replace(rule, **{field: other})
            except (PlanError, TypeError):
                continue
            assert same(expected, measured(changed, rows)), field


@pytest.mark.parametrize("name", NAMES)
def test_a_filter_is_a_frozen_definition_that_a_manifest_can_hold(name):
    rule = made(name)
    assert registry.name_of(rule) == name
    assert len(registry.meaning(type(rule))) > 20
    assert fingerprint(rule) == fingerprint(made(name))
    assert type(rule).__dataclass_params__.frozen


@pytest.mark.parametrize("name", NAMES)
def test_every_empty_or_blank_document_has_a_verdict(name):
    rule = made(name)
    for values in measured(rule, ["", " ", "\n\n", "\u3000\t"]).values():
        assert np.isfinite(values).all()
