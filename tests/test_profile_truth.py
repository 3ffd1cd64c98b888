"""The profiler against a simulated device that knows the truth, the half-stalled trace, and rules one by one."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataeff.profile.attribution import NOT_MADE, WHOLE, Made, Wait, evaluations, stall_by_cause, training_sources
from dataeff.profile.clocks import CpuClock
from dataeff.profile.windows import Rows, Timeline, Window
from dataeff.steps import CAUSES, read_run
from tests.simulated_device import MS, Pipeline, measured, play

POINT = 0.01


def generated(seed: int) -> Pipeline:
    """A pipeline of any kind: bound by the device, by storage, by decoding, or by neither for long."""
    pick = random.Random(seed)
    workers = pick.choice([0, 0, 1, 2, 3, 4])
    prefetcher = pick.choice([0, 0, 2]) if workers else 0
    compute = pick.uniform(5, 40)
    work = pick.uniform(0.2, 2.5) * compute * max(workers, 1)
    storage = pick.uniform(0, 1)
    return Pipeline(
        seed=seed,
        num_workers=workers,
        prefetch_factor=pick.choice([1, 2, 4]),
        prefetcher=prefetcher,
        storage_ms=work * storage,
        decode_ms=work * (1 - storage) * 0.9,
        collate_ms=work * (1 - storage) * 0.1,
        send_ms=pick.choice([0.1, 3.0]),
        compute_ms=compute,
        micro_batches=pick.choice([1, 1, 2, 4]),
        copy=pick.choice(["none", "inline", "side"]),
        copy_ms=pick.uniform(0.5, compute / 2),
        sync_every=pick.choice([0, 0, 1, 5]),
        evaluate_every=pick.choice([0, 0, 9]),
        epoch_batches=pick.choice([10**9, 40]),
    )


@pytest.mark.parametrize("seed", range(64))
def test_shares_by_cause_are_within_a_point_of_the_truth(tmp_path: Path, seed: int):
    (run,) = play(tmp_path / "run", generated(seed))
    found, truth = measured(run)
    assert {cause: pytest.approx(share, abs=POINT) for cause, share in truth.items()} == found
    assert sum(found.values()) == pytest.approx(sum(truth.values()), abs=POINT)


def test_the_generated_pipelines_hold_every_cause_and_every_trap(tmp_path: Path):
    pipelines = [generated(seed) for seed in range(64)]
    runs = [play(tmp_path / str(number), pipeline)[0] for number, pipeline in enumerate(pipelines)]
    truths = [measured(run)[1] for run in runs]
    for cause in CAUSES:
        assert max(truth[cause] for truth in truths) > 5 * POINT, cause
    assert min(sum(truth.values()) for truth in truths) < POINT
    assert {bool(pipeline.prefetcher) for pipeline in pipelines} == {False, True}
    assert {pipeline.num_workers for pipeline in pipelines} == {0, 1, 2, 3, 4}
    assert {pipeline.copy for pipeline in pipelines} == {"none", "inline", "side"}


def test_a_background_prefetcher_that_keeps_up_costs_nothing(tmp_path: Path):
    """A fetch of 100 ms in another thread is no wait of the loop, however long it takes."""
    pipeline = Pipeline(num_workers=4, storage_ms=100, compute_ms=40, prefetcher=4)
    (run,) = play(tmp_path / "run", pipeline)
    assert sum(measured(run)[0].values()) < POINT


def test_a_slow_background_prefetcher_is_charged_to_what_its_workers_did(tmp_path: Path):
    pipeline = Pipeline(num_workers=2, storage_ms=100, compute_ms=20, prefetcher=4)
    (run,) = play(tmp_path / "run", pipeline)
    found, truth = measured(run)
    assert found["storage"] == pytest.approx(truth["storage"], abs=POINT)
    assert truth["storage"] > 0.4


def test_reading_the_loss_exposes_what_the_device_would_have_hidden(tmp_path: Path):
    pipeline = Pipeline(num_workers=0, storage_ms=20, compute_ms=30)
    (hidden,) = play(tmp_path / "hidden", pipeline)
    assert sum(measured(hidden)[0].values()) < POINT
    (exposed,) = play(tmp_path / "exposed", Pipeline(num_workers=0, storage_ms=20, compute_ms=30, sync_every=1))
    found, _ = measured(exposed)
    assert found["sync"] > 0.35
    assert found["storage"] < POINT


def test_reading_the_loss_is_not_blamed_for_workers_that_are_too_slow(tmp_path: Path):
    pipeline = Pipeline(num_workers=2, storage_ms=100, compute_ms=20, sync_every=1)
    (run,) = play(tmp_path / "run", pipeline)
    found, truth = measured(run)
    assert found["storage"] > 0.4
    assert found["sync"] == pytest.approx(truth["sync"], abs=POINT)
    assert found["sync"] < POINT


def test_a_copy_on_a_side_stream_counts_where_the_compute_stream_waits_for_it(tmp_path: Path):
    (hidden,) = play(tmp_path / "hidden", Pipeline(storage_ms=1, compute_ms=30, copy="side", copy_ms=5))
    (exposed,) = play(tmp_path / "exposed", Pipeline(storage_ms=1, compute_ms=5, copy="side", copy_ms=15))
    assert measured(hidden)[0]["copy"] < POINT
    assert measured(exposed)[0]["copy"] == pytest.approx(measured(exposed)[1]["copy"], abs=POINT)
    assert measured(exposed)[0]["copy"] > 0.5


def test_first_batches_and_evaluations_are_charged_but_no_part_of_the_share(tmp_path: Path):
    pipeline = Pipeline(num_workers=2, storage_ms=1, compute_ms=20, epoch_batches=10, evaluate_every=8, sync_every=1)
    (run,) = play(tmp_path / "run", pipeline)
    steps = read_run(run.out).steps[0].to_pylist()
    assert [step["step"] for step in steps if not step["steady"]] == [0, 10, 20, 30, 40, 50]
    evaluated = [step for step in steps if step["evaluation_ns"]]
    assert [step["step"] for step in evaluated] == [2, 10, 18, 26, 34, 42, 50, 58]
    assert all(step["evaluation_ns"] >= 90 * MS > step["wait_ns"] for step in evaluated)


def test_a_slow_rank_stalls_itself_and_the_others_wait_for_it_in_their_kernels(tmp_path: Path):
    quick = Pipeline(seed=1, storage_ms=1, compute_ms=20)
    slow = Pipeline(seed=2, storage_ms=100, compute_ms=20)
    runs = play(tmp_path / "run", quick, slow, quick)
    shares = [sum(measured(run)[0].values()) for run in runs]
    for run in runs:
        found, truth = measured(run)
        assert {cause: pytest.approx(share, abs=POINT) for cause, share in truth.items()} == found
    assert shares[1] > 0.4
    assert max(shares[0], shares[2]) < POINT
    assert read_run(tmp_path / "run").info.world == 3


def test_several_batches_a_step_are_all_counted(tmp_path: Path):
    pipeline = Pipeline(num_workers=0, storage_ms=30, compute_ms=20, micro_batches=4, steps=20)
    (run,) = play(tmp_path / "run", pipeline)
    record = read_run(run.out)
    assert set(record.steps[0]["micro_batches"].to_pylist()) == {4}
    assert record.batches[0].num_rows == 80
    assert record.batches[0]["step"].to_pylist() == [step for step in range(20) for _ in range(4)]


def test_marks_are_asked_for_late_and_given_back_once(tmp_path: Path):
    (run,) = play(tmp_path / "run", Pipeline(copy="inline", steps=30))
    # Two a wait and two a copy, the last wait included.
    assert run.clock.released == 30 * 4


def half_stalled(steps: int) -> list[Window]:
    """A second of waiting and a second of work, so often."""
    windows: list[Window] = []
    timeline = Timeline(0, windows.append)
    thread = timeline.thread(1)
    for step in range(steps):
        start = step * 2_000 * MS
        wait = Wait(1, step == 0, start, start + 1000 * MS, 0, 0, 1, 0, 0, -1, *NOT_MADE, start, start + 1000 * MS)
        timeline.wait(thread, wait)
        timeline.optimizer_step(thread, start + 2_000 * MS, 7)
    timeline.finish(steps * 2_000 * MS)
    return windows


def test_a_run_that_waits_half_the_time_is_stalled_half_the_time():
    done, steps, _ = Rows().of(half_stalled(200), CpuClock())
    assert done == 200
    steady = steps.filter(steps["steady"]).to_pylist()
    stalled = sum(step["stall_ns"] for step in steady)
    assert stalled / sum(step["stop_ns"] - step["start_ns"] for step in steady) == 0.5
    starts, stops = steps["start_ns"].to_pylist(), steps["stop_ns"].to_pylist()
    assert starts[1:] == stops[:-1]


def wait(start: int, stop: int, *, made: Made = NOT_MADE, **fields: int) -> Wait:
    plain = Wait(1, 0, start, stop, 0, 0, 1, 0, 0, -1, *made)
    return plain._replace(**fields)


def split(one: Wait, exposed: int) -> dict[str, int]:
    causes = stall_by_cause(np.array([one[:WHOLE]], np.int64), np.array([exposed]))
    return {cause: int(took[0]) for cause, took in causes.items() if took[0]}


MADE = Made(1, 0, 100, 200, 25, 200, 240, 4, 0, 0, 0)
"""Told at 100, fetched by 200, a quarter of it computing; together at 240."""


@pytest.mark.parametrize(
    ("one", "exposed", "causes"),
    [
        (wait(0, 300, made=MADE), 300, {"storage": 75, "decode": 25, "collate": 40, "handover": 160}),
        (wait(0, 300, made=MADE), 60, {"handover": 60}),
        (wait(0, 300, made=MADE), 100, {"collate": 40, "handover": 60}),
        (wait(0, 300, made=MADE), 140, {"storage": 30, "decode": 10, "collate": 40, "handover": 60}),
        (wait(150, 260, made=MADE), 110, {"storage": 38, "decode": 12, "collate": 40, "handover": 20}),
        (wait(250, 260, made=MADE), 10, {"handover": 10}),
        (wait(0, 300, made=MADE), 0, {}),
        (wait(0, 300, made=MADE), 900, {"storage": 75, "decode": 25, "collate": 40, "handover": 160}),
        (wait(0, 300), 300, {"storage": 300}),
        (wait(0, 300, cpu_ns=100), 300, {"storage": 200, "decode": 100}),
        (wait(0, 300, cpu_ns=100), 150, {"storage": 100, "decode": 50}),
        (wait(0, 300, cpu_ns=100, drained_ns=150), 300, {"storage": 100, "decode": 50, "sync": 150}),
        (wait(0, 300, drained_ns=900), 300, {"sync": 300}),
        (wait(0, 300, made=MADE, drained_ns=900), 300, {"storage": 75, "decode": 25, "collate": 40, "handover": 160}),
        (wait(250, 260, made=MADE, drained_ns=900), 10, {"handover": 10}),
        (wait(250, 260, made=MADE, drained_ns=900, cpu_ns=7), 10, {"handover": 3, "sync": 7}),
        (
            wait(90, 250, made=MADE._replace(worker=-1), drained_ns=110),
            160,
            {"collate": 40, "handover": 10, "sync": 110},
        ),
        (wait(0, 300, ended=1, cpu_ns=50), 300, {"handover": 300}),
    ],
)
def test_a_wait_is_split_along_the_timeline_of_its_batch(one: Wait, exposed: int, causes: dict[str, int]):
    assert split(one, exposed) == causes


@given(st.data())
def test_causes_are_whole_never_negative_and_sum_to_the_stall(data: st.DataObject):
    moments = sorted(data.draw(st.lists(st.integers(0, 10**12), min_size=5, max_size=5)))
    data.draw(st.randoms()).shuffle(moments)
    start, stop = sorted(moments[:2])
    fetch, fetched, collated = sorted(moments[2:])
    small = st.integers(0, 10**12)
    made = Made(data.draw(st.integers(0, 1)), data.draw(st.integers(-1, 1)), fetch, fetched, data.draw(small),
                fetched, collated, 1, 1, 1, 1)  # fmt: skip
    one = wait(start, stop, made=made, cpu_ns=data.draw(small), drained_ns=data.draw(small))
    exposed = data.draw(st.integers(0, stop - start))
    causes = stall_by_cause(np.array([one[:WHOLE]], np.int64), np.array([exposed]))
    assert set(causes) == set(CAUSES)
    assert sum(int(took[0]) for took in causes.values()) == exposed
    assert all(took[0] >= 0 for took in causes.values())


def test_the_pass_that_delivered_last_before_the_step_trains():
    evaluation, training = wait(0, 1, source=5), wait(2, 3, source=6)
    assert training_sources([evaluation, training], set(), set()) == {6}
    assert training_sources([training, evaluation], {6}, set()) == {6}
    assert training_sources([training, training._replace(ended=1), evaluation], {6}, set()) == {5, 6}
    assert training_sources([training, evaluation._replace(trains=0)], set(), set()) == {6}
    assert training_sources([evaluation._replace(trains=0)], set(), set()) == {5}
    assert training_sources([], {6}, set()) == set()


def test_two_loaders_of_a_step_both_train_from_the_second_step_on():
    first = training_sources([wait(0, 1, source=5), wait(2, 3, source=6)], set(), set())
    assert training_sources([wait(4, 5, source=5), wait(6, 7, source=6)], first, {5, 6}) == {5, 6}


def test_evaluations_last_from_their_first_request_to_their_end():
    waits = [
        wait(0, 10, source=1),
        wait(20, 30, source=2),
        wait(40, 50, source=2),
        wait(60, 65, source=2, ended=1),
        wait(80, 90, source=1),
        wait(100, 110, source=3),
    ]
    assert evaluations(waits, {1}, 200) == [(20, 65), (100, 200)]
    assert evaluations([*waits, wait(150, 160, source=1)], {1}, 200) == [(20, 65), (100, 150)]
    assert evaluations(waits, {1, 2, 3}, 200) == []
