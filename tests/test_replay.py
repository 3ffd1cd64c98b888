"""The queue model of the loader: against what must be so, and against a clock that ticks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dataeff.errors import PlanError
from dataeff.profile.replay import Settings, Workload, _Machine, step_ns, step_times
from tests.oracle.loader_queue import taken_at

TIMES = st.lists(st.integers(1, 40), min_size=3, max_size=8)


def workload(storage: list[int], decode: list[int], loop: list[int], **changes: float) -> Workload:
    size = min(len(storage), len(decode), len(loop))
    parts = {
        "storage_ns": storage[:size],
        "decode_ns": decode[:size],
        "collate_ns": [1] * size,
        "loop_ns": loop[:size],
    }
    arrays = {name: np.array(values, np.float64) for name, values in parts.items()}
    return Workload(**arrays, **{"send_ns": 2.0, "receive_ns": 1.0, **changes})  # type: ignore[arg-type]


@given(TIMES, TIMES, TIMES)
@settings(max_examples=30, deadline=None)
def test_without_workers_a_step_is_loop_and_service(storage: list[int], decode: list[int], loop: list[int]) -> None:
    made = workload(storage, decode, loop, inline_ns=3.0)
    found = step_times(made, Settings(num_workers=0), len(made.loop_ns)).mean()
    assert found == pytest.approx(made.loop_ns.mean() + made.service_ns + 3)


@given(TIMES, TIMES, TIMES)
@settings(max_examples=15, deadline=None)
def test_with_very_many_workers_a_step_is_loop_and_handover(
    storage: list[int], decode: list[int], loop: list[int]
) -> None:
    made = workload(storage, decode, loop)
    rounds = 60 * len(made.loop_ns)
    found = step_times(made, Settings(num_workers=50), rounds).mean()
    assert found == pytest.approx(made.loop_ns.mean() + made.receive_ns, rel=0.02)
    pinned = step_times(made, Settings(num_workers=50, pin_memory=True), rounds).mean()
    assert pinned == pytest.approx(max(made.loop_ns.mean(), made.receive_ns), rel=0.02)


@given(TIMES, TIMES, TIMES, st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_a_worker_more_never_makes_steps_longer_where_processors_abound(
    storage: list[int], decode: list[int], loop: list[int], workers: int
) -> None:
    # Periods that the number of workers divides would let one worker have all the long batches.
    same = [max(storage)] * 4, [max(decode)] * 4, [max(loop)] * 4
    made = workload(*same)
    few, more = (step_times(made, Settings(num_workers=number), 240).mean() for number in (workers, workers + 1))
    assert more <= few * (1 + 1e-9)


@given(TIMES, TIMES, TIMES, st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 2, 3, 99]))
@settings(max_examples=25, deadline=None)
def test_the_replay_is_what_a_ticking_clock_gives(
    storage: list[int], decode: list[int], loop: list[int], workers: int, prefetch: int, cores: int
) -> None:
    made = workload(storage, decode, loop)
    chosen = Settings(num_workers=workers, prefetch_factor=prefetch, cores=cores)
    batches, tick = 40, 0.125
    found = _Machine(made, chosen, batches).play()
    expected = taken_at(
        [int(value) for value in made.storage_ns],
        [int(value) for value in made.decode_ns + made.collate_ns],
        [int(value) for value in made.loop_ns],
        workers=workers,
        prefetch=prefetch,
        cores=cores,
        send=2,
        receive=1,
        batches=batches,
        tick=tick,
    )
    # Each batch may be late by a few ticks, where shares of a processor do not fill whole ones.
    np.testing.assert_allclose(found, expected, rtol=0.03, atol=6 * tick)


def test_a_slow_loader_is_bound_by_its_workers_and_a_fast_one_by_the_loop() -> None:
    made = workload([100] * 4, [20] * 4, [10] * 4, send_ns=0.0, receive_ns=0.0)
    assert step_ns(made, Settings(num_workers=1)) == pytest.approx(121)
    assert step_ns(made, Settings(num_workers=4)) == pytest.approx(121 / 4)
    assert step_ns(made, Settings(num_workers=16)) == pytest.approx(10)


def test_processors_that_are_short_stretch_work_but_not_waiting_for_storage() -> None:
    working = workload([0] * 4, [99] * 4, [1] * 4, send_ns=0.0, receive_ns=0.0)
    reading = workload([99] * 4, [0] * 4, [1] * 4, send_ns=0.0, receive_ns=0.0)
    one = Settings(num_workers=8, cores=1)
    assert step_ns(working, one) == pytest.approx(101, rel=0.02)
    assert step_ns(reading, one) < 15


def test_a_loop_that_wakes_while_all_processors_are_taken_waits_for_one() -> None:
    decode = np.random.default_rng(3).integers(500, 1400, 64).tolist()
    made = workload([0] * 64, decode, [500] * 64, send_ns=0.0, receive_ns=10.0)
    prompt = Settings(num_workers=4, prefetch_factor=4, cores=2, loop_processor_share=0.0)
    late = dataclasses.replace(prompt, wake_ns=50.0)
    assert step_ns(made, dataclasses.replace(late, cores=8)) == pytest.approx(510)
    assert 510 <= step_ns(made, prompt) < step_ns(made, late) <= step_ns(made, prompt) + 150
    pinned = dataclasses.replace(late, pin_memory=True)
    assert step_ns(made, pinned) < step_ns(made, late)


def test_work_that_a_device_has_queued_hides_a_wait() -> None:
    made = workload([20] * 4, [9] * 4, [50] * 4, hidden_ns=25.0)
    assert step_ns(made, Settings(num_workers=0)) == pytest.approx(50 + 30 - 25)
    assert step_ns(dataclasses.replace(made, hidden_ns=100.0), Settings(num_workers=0)) == pytest.approx(50)


def test_deeper_prefetch_helps_uneven_batches_and_only_those() -> None:
    rng = np.random.default_rng(0)
    uneven = workload(rng.choice([1, 200], 64, p=[0.9, 0.1]).tolist(), [1] * 64, [15] * 64)
    even = workload([21] * 64, [1] * 64, [30] * 64)
    assert step_ns(uneven, Settings(num_workers=2, prefetch_factor=16)) < 0.93 * step_ns(
        uneven, Settings(num_workers=2, prefetch_factor=1)
    )
    assert step_ns(even, Settings(num_workers=2, prefetch_factor=16)) == pytest.approx(
        step_ns(even, Settings(num_workers=2, prefetch_factor=2)), rel=0.01
    )


@given(st.floats(0.25, 8))
@settings(max_examples=20, deadline=None)
def test_all_scales_with_the_batch(scale: float) -> None:
    assume(scale > 0)
    made = workload([10, 30], [5, 6], [7, 8], send_ns=0.0, receive_ns=0.0)
    chosen = Settings(num_workers=2, batch_scale=scale)
    assert step_ns(made, chosen) == pytest.approx(scale * step_ns(made, Settings(num_workers=2)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_workers": -1},
        {"num_workers": 1, "prefetch_factor": 0},
        {"num_workers": 1, "cores": 0},
        {"num_workers": 1, "loop_processor_share": 1.5},
        {"num_workers": 1, "batch_scale": 0},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(PlanError, match="it must be"):
        Settings(**wrong)  # type: ignore[arg-type]


def test_a_workload_without_batches_is_refused() -> None:
    with pytest.raises(PlanError, match="at least one"):
        workload([], [], [])
