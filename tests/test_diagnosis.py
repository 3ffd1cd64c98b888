"""From a recorded run to what to change: shares, predictions, advice, money, and records that cannot be right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch.utils.data import DataLoader
from typer.testing import CliRunner

from dataeff import prices
from dataeff.__main__ import app
from dataeff.errors import EmptyError, FormatError, InputError, MeasurementError, PlanError
from dataeff.prices import find_price, price_of, stated
from dataeff.profile import Profiler
from dataeff.profile.diagnosis import diagnose, model_of
from dataeff.profile.headroom import Headroom
from dataeff.profile.stalls import MIN_STEPS, block_means, check, interval, measure
from dataeff.profile.stragglers import stragglers
from dataeff.reports.diagnosis import as_json
from dataeff.reports.trace import events, write_trace
from dataeff.steps import CAUSES, read_run
from tests.recorded_runs import half_stalled, loaded, stepwise


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)


def test_a_run_that_waits_every_other_second_is_half_stalled(tmp_path: Path) -> None:
    """What counts only the first load of a run as waiting says 99.75 % goodput of this one."""
    found = measure(read_run(half_stalled(tmp_path / "run")))
    assert found.num_steps == 200
    assert found.share.value == pytest.approx(0.5)
    assert found.share.low == pytest.approx(0.5)
    assert found.share.high == pytest.approx(0.5)
    assert found.causes["storage"].value == pytest.approx(0.5)
    assert sum(part.value for part in found.causes.values()) == pytest.approx(found.share.value)
    assert found.step_s.value == pytest.approx(2.0)
    assert found.samples_per_s == pytest.approx(4)
    assert found.tokens_per_s == pytest.approx(512)


def test_first_steps_evaluations_and_checkpoints_are_charged_apart(tmp_path: Path) -> None:
    first = {"ms": 5000, "stall": {"storage": 4900}, "also": {"steady": False}}
    evaluated = {"ms": 110, "stall": {"decode": 2}, "also": {"evaluation_ns": 100_000_000}}
    saved = {"ms": 60, "stall": {"decode": 2}, "also": {"checkpoint_ns": 50_000_000}}
    rows = [first, *[{"ms": 10, "stall": {"decode": 2}}] * 30, evaluated, saved]
    found = measure(read_run(stepwise(tmp_path / "run", rows)))
    assert found.num_steps == 32
    assert found.share.value == pytest.approx(0.2)
    assert found.step_s.value == pytest.approx(0.010)
    assert found.unsteady_s == pytest.approx(5.0)
    assert found.unsteady_stall_s == pytest.approx(4.9)
    assert found.evaluation_s == pytest.approx(0.1)
    assert found.checkpoint_s == pytest.approx(0.05)


def test_too_few_steady_steps_give_no_share(tmp_path: Path) -> None:
    rows = [{"ms": 10, "also": {"steady": number > 0}} for number in range(MIN_STEPS)]
    with pytest.raises(MeasurementError, match=rf"has {MIN_STEPS - 1} steady steps .* needs {MIN_STEPS} or more: rec"):
        measure(read_run(stepwise(tmp_path / "run", rows)))


def test_the_interval_holds_the_truth_about_as_often_as_it_says_even_where_stalls_come_in_bursts() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for seed in range(200):
        noise = rng.normal(size=400)
        for step in range(1, 400):
            noise[step] += 0.5 * noise[step - 1]
        found = interval(float(noise.mean()), block_means(noise[None], seed=seed, num_resamples=400)[:, 0])
        held += found.low <= 0 <= found.high
    assert 0.86 <= held / 200 <= 0.99


def test_the_same_seed_gives_the_same_interval(tmp_path: Path) -> None:
    rows = [{"ms": 10 + number**0.5, "stall": {"decode": (number**2 % 89) / 10}} for number in range(60)]
    record = read_run(stepwise(tmp_path / "run", rows))
    assert measure(record, seed=1) == measure(record, seed=1)
    assert measure(record, seed=1).share != measure(record, seed=2).share


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_replaying_a_run_gives_its_step_time_and_predicts_the_others(tmp_path: Path, workers: int) -> None:
    times = {"storage_ms": 20, "decode_ms": 10, "loop_ms": 6, "receive_ms": 1.046875}
    runs = {
        number: read_run(loaded(tmp_path / str(number), workers=number, num_steps=200, **times))
        for number in (0, 1, 2, 3, 4, 8)
    }
    model = model_of(runs[workers], cores=64)
    assert model.error_share == pytest.approx(0, abs=0.02)
    for number, record in runs.items():
        settings = type(model.settings)(num_workers=number, cores=64)
        found = model.predict("workers", str(number), settings)
        assert found.step_s.value == pytest.approx(measure(record).step_s.value, rel=0.05), number


def test_faster_storage_a_cache_and_finished_shards_are_predicted(tmp_path: Path) -> None:
    times = {"loop_ms": 6, "receive_ms": 1, "workers": 2}
    found = diagnose(read_run(loaded(tmp_path / "now", storage_ms=20, decode_ms=10, **times)), cores=64)
    by_change = {prediction.change: prediction for prediction in found.predictions}
    for change, parts in (("storage", (10, 10)), ("cache", (0, 10)), ("shards", (20, 0))):
        other = loaded(tmp_path / change, storage_ms=parts[0], decode_ms=parts[1], **times)
        expected = measure(read_run(other)).step_s.value
        assert by_change[change].step_s.value == pytest.approx(expected, rel=0.03)
        assert by_change[change].step_s.low <= by_change[change].step_s.value <= by_change[change].step_s.high


def test_advice_comes_in_order_of_gain_with_evidence_and_its_worth(tmp_path: Path) -> None:
    record = read_run(loaded(tmp_path / "run", storage_ms=20, decode_ms=10, loop_ms=6, workers=1, world=8))
    found = diagnose(record, price=stated(2.5), cores=64)
    gains = [advised.gain_share.value for advised in found.recommendations]
    assert 1 <= len(gains) <= 3
    assert gains == sorted(gains, reverse=True)
    first = found.recommendations[0]
    assert first.prediction.change == "workers"
    assert "num_workers" in first.advice
    assert "(now 1)" in first.advice
    assert "1 worker can make" in first.evidence
    assert first.usd_per_day is not None
    assert first.usd_per_day.value == pytest.approx(8 * 2.5 * 24 * gains[0])
    assert found.stall_usd_per_day is not None
    assert found.stall_usd_per_day.value == pytest.approx(8 * 2.5 * 24 * found.stalls.share.value)
    assert found.verdict.startswith("It is the data")
    changes = {advised.prediction.change for advised in found.recommendations}
    assert not {"storage", "cache"} <= changes


def test_a_loader_that_is_quick_enough_is_left_alone(tmp_path: Path) -> None:
    record = read_run(
        loaded(tmp_path / "run", storage_ms=1, decode_ms=1, loop_ms=500, receive_ms=0.5, workers=2, num_steps=60)
    )
    found = diagnose(record, cores=8)
    assert found.recommendations == ()
    assert "Leave the loader alone" in found.verdict


def test_more_workers_are_not_advised_where_processors_are_what_is_short(tmp_path: Path) -> None:
    record = read_run(loaded(tmp_path / "run", storage_ms=0, decode_ms=30, loop_ms=6, workers=1))
    many, one = diagnose(record, cores=16), diagnose(record, cores=1, loop_processor_share=0.0)
    gain = {found.change: found.gain_share for found in many.predictions}
    assert gain["workers"] > 0.7
    assert {found.change: found.gain_share for found in one.predictions}["workers"] < 0.05


def test_what_the_device_did_not_notice_is_no_stall_in_the_replay_either(tmp_path: Path) -> None:
    rows = [{"ms": 100, "also": {"wait_ns": 30_000_000}}] * 60

    def made(number: int, row: dict[str, Any]) -> dict[str, Any]:
        start = row["start_ns"]
        times = {"wait_start_ns": start, "wait_stop_ns": start + 30_000_000, "fetch_start_ns": start}
        done = {"fetch_stop_ns": start + 29_000_000, "fetch_cpu_ns": 0}
        collated = {"collate_start_ns": start + 29_000_000, "collate_stop_ns": start + 30_000_000}
        return {"step": number, "batch": number, "worker": -1, "samples": 8, **times, **done, **collated}

    record = read_run(stepwise(tmp_path / "run", rows, batch=made, clock="cuda", num_workers=0))
    model = model_of(record, cores=8)
    assert model.measured_s == pytest.approx(0.1)
    assert model.error_share == pytest.approx(0)


def test_a_headroom_run_is_laid_beside_the_prediction(tmp_path: Path) -> None:
    record = read_run(loaded(tmp_path / "run", storage_ms=20, decode_ms=10, loop_ms=6, workers=1))
    without = read_run(stepwise(tmp_path / "free", [{"ms": 6.3}] * 50))
    found = diagnose(record, headroom=without, cores=8)
    assert found.ceiling_s is not None
    assert found.ceiling_s.value == pytest.approx(0.006)
    assert found.headroom is not None
    assert found.headroom.measured_s.value == pytest.approx(0.0063)
    assert found.headroom.error_share == pytest.approx(6 / 6.3 - 1)


def test_headroom_serves_the_first_batches_round_and_round() -> None:
    drawn: list[int] = []

    class Loader:
        def __len__(self) -> int:
            return 7

        def __iter__(self) -> Any:
            for number in range(7):
                drawn.append(number)
                yield number

    served = Headroom(Loader(), num_batches=3)
    assert list(served) == [0, 1, 2, 0, 1, 2, 0]
    assert list(served) == [0, 1, 2, 0, 1, 2, 0]
    assert drawn == [0, 1, 2]
    assert len(served) == 7
    assert list(Headroom(iter([1]), length=3)) == [1, 1, 1]
    with pytest.raises(EmptyError, match="no batch"):
        iter(Headroom([]))
    with pytest.raises(PlanError, match="1 or more"):
        Headroom([1], num_batches=0)


def ranks(directory: Path, rows: dict[int, dict[str, Any]], world: int | None = None, steps: int = 30) -> Path:
    for rank, row in rows.items():
        stepwise(directory, [row] * steps, rank=rank, world=world or len(rows))
    return directory


def test_the_rank_with_slow_data_is_the_culprit_and_those_that_wait_for_it_are_victims(tmp_path: Path) -> None:
    slow = {"ms": 100, "stall": {"storage": 40}, "also": {"sync_ns": 2_000_000}}
    waits = {"ms": 100, "stall": {"storage": 1}, "also": {"sync_ns": 41_000_000}}
    record = read_run(ranks(tmp_path / "run", {0: waits, 1: slow, 2: waits}))
    found = stragglers(record)
    assert (found.culprit, found.because, found.critical) == (1, "data", True)
    assert [rank.role for rank in found.ranks] == ["victim", "culprit", "victim"]
    assert found.waiting_share == pytest.approx(0.39)
    assert found.charged_s == pytest.approx(0.040 * 30 * 3)
    assert measure(record).share.value == pytest.approx(0.4), "all ranks wait for the slowest"
    assert measure(record).samples_per_s == pytest.approx(240)


def test_a_rank_that_computes_longer_is_the_culprit_too(tmp_path: Path) -> None:
    slow, waits = {"ms": 100, "also": {"sync_ns": 1_000_000}}, {"ms": 100, "also": {"sync_ns": 30_000_000}}
    found = stragglers(read_run(ranks(tmp_path / "run", {0: slow, 1: waits})))
    assert (found.culprit, found.because) == (0, "compute")


def test_even_ranks_have_no_culprit(tmp_path: Path) -> None:
    found = stragglers(read_run(ranks(tmp_path / "run", {rank: {"ms": 10, "stall": {"copy": 1}} for rank in range(4)})))
    assert found.culprit is None
    assert all(rank.role == "" for rank in found.ranks)


def test_a_directory_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no recorded run.*`dataeff profile` printed"):
        read_run(tmp_path)


def test_the_records_in_a_directory_of_training_are_named(tmp_path: Path) -> None:
    ranks(tmp_path / "record-000", {0: {"ms": 10}})
    with pytest.raises(InputError, match=r"give a record in it: \S+record-000$"):
        read_run(tmp_path)


def test_a_run_that_ended_before_its_first_rows_is_named(tmp_path: Path) -> None:
    stepwise(tmp_path / "run", [])
    with pytest.raises(EmptyError, match="has no steps: it ended before"):
        diagnose(read_run(tmp_path / "run"))


def test_a_rank_without_files_and_one_cut_short_are_named(tmp_path: Path) -> None:
    row = {"ms": 10, "stall": {"decode": 1}}
    stepwise(tmp_path / "run", [row] * 40, rank=0, world=3)
    stepwise(tmp_path / "run", [row] * 30, rank=2, world=3)
    found = diagnose(read_run(tmp_path / "run"))
    assert any(note.startswith("rank 1 of 3 left no steps") for note in found.notes)
    assert any(note.startswith("rank 2 stops after 30 of 40 steps") for note in found.notes)
    assert any("left no batches" in note for note in found.notes)
    assert found.stalls.num_steps == 30
    assert found.model is None
    assert found.recommendations == ()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"start_ns": 2_000_000_000 - 5_000_000}, "starts .* ms before step"),
        ({"stop_ns": 0}, "ends before it starts"),
        ({"step": 3}, "step 3 of rank 0 comes after step"),
        ({"stall_ns": 9_000_000}, "its causes sum to"),
    ],
)
def test_steps_that_cannot_be_are_named(tmp_path: Path, change: dict[str, int], fault: str) -> None:
    directory = stepwise(tmp_path / "run", [{"ms": 10, "stall": {"decode": 1}}] * 30)
    (path,) = (directory / "steps").glob("*.parquet")
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[20] |= change
    pq.write_table(type(table).from_pylist(rows, table.schema), path)
    with pytest.raises(FormatError, match=fault):
        diagnose(read_run(directory))


def test_batches_without_stamps_leave_the_share_and_say_why_nothing_is_predicted(tmp_path: Path) -> None:
    def unstamped(number: int, row: dict[str, Any]) -> dict[str, Any]:
        return {"step": number, "batch": number, "wait_start_ns": row["start_ns"], "wait_stop_ns": row["start_ns"] + 1}

    found = diagnose(read_run(stepwise(tmp_path / "run", [{"ms": 10, "stall": {"copy": 5}}] * 30, batch=unstamped)))
    assert found.stalls.share.value == pytest.approx(0.5)
    assert found.predictions == ()
    assert any("carry a worker's stamps" in note for note in found.notes)


def test_a_trace_follows_the_trace_event_format(tmp_path: Path) -> None:
    record = read_run(loaded(tmp_path / "run", storage_ms=4, decode_ms=2, loop_ms=3, workers=2, num_steps=30))
    content = json.loads(write_trace(record, tmp_path / "trace.json").read_text())
    assert set(content) >= {"traceEvents", "displayTimeUnit"}
    complete = [event for event in content["traceEvents"] if event["ph"] == "X"]
    for event in complete:
        assert {"name", "cat", "ts", "dur", "pid", "tid", "args"} <= set(event)
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    step = next(event for event in complete if event["name"] == "step 20")
    row = record.steps[0].slice(20, 1).to_pylist()[0]
    assert step["dur"] == pytest.approx((row["stop_ns"] - row["start_ns"]) / 1e3)
    assert min(event["ts"] for event in complete) == 0
    names = {event["args"]["name"] for event in content["traceEvents"] if event["name"].endswith("_name")}
    assert names == {"rank 0", "loop: steps", "loop: waits and copies", "worker 0", "worker 1"}
    lanes: dict[tuple[int, int, str], float] = {}
    for event in sorted(complete, key=lambda event: event["ts"]):
        lane = (event["pid"], event["tid"], event["cat"])
        assert event["ts"] >= lanes.get(lane, 0) - 1e-3, "events of one kind on one thread do not overlap"
        lanes[lane] = event["ts"] + event["dur"]
    assert len(list(events(record))) == len(content["traceEvents"])


def test_json_holds_the_whole_answer(tmp_path: Path) -> None:
    record = read_run(loaded(tmp_path / "run", storage_ms=4, decode_ms=2, loop_ms=3, workers=1))
    shown = json.loads(as_json(diagnose(record, price=stated(1.0), cores=4)))
    assert set(shown["stalls"]["causes"]) == set(CAUSES)
    assert shown["recommendations"][0]["prediction"]["settings"]["num_workers"] > 1
    assert "error_share" in shown["model"]


def test_prices_carry_source_and_date_and_unknown_ones_name_what_there_is() -> None:
    for price in prices.table():
        assert price.source
        assert price.as_of
    assert price_of("h100").usd_per_hour == 2.95
    found = find_price("NVIDIA H200")
    assert found is not None
    assert found.accelerator == "H200"
    assert find_price("NVIDIA GH200 480GB") is None
    assert find_price("some processor") is None
    with pytest.raises(PlanError, match=r"no price of 'H300' .* H100"):
        price_of("H300")
    with pytest.raises(PlanError, match="more than 0"):
        stated(0)


def test_the_command_prints_the_answer_and_writes_what_is_asked(tmp_path: Path) -> None:
    directory = half_stalled(tmp_path / "run", num_steps=40)
    done = run(
        "diagnose", directory, "--cores", 8, "--price", 3, "--html", tmp_path / "a.html", "--trace", tmp_path / "t.json"
    )
    assert done.exit_code == 0, done.output
    assert done.output.startswith("It is the data: the device waits 50.0 % of the time, mostly for storage.")
    assert "set num_workers to 2 (now 1): 50.0 % less" in done.output
    assert "$36.00" in done.output
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "t.json").stat().st_size > 1000
    shown = json.loads(run("diagnose", directory, "--cores", 8, "--json", "--html", tmp_path / "b.html").output)
    assert shown["stalls"]["share"]["value"] == pytest.approx(0.5)
    wrong = run("diagnose", directory, "--accelerator", "abacus")
    assert isinstance(wrong.exception, PlanError)


def test_a_model_of_known_arithmetic_has_its_utilisation_stated(tmp_path: Path) -> None:
    rows = [{"ms": 100}] * 30
    known = stepwise(tmp_path / "known", rows, device="NVIDIA H100 80GB HBM3", flops_per_token=4.83e9 * 10)
    assert "model FLOPs utilisation is 50.0 % of 989 TFLOP/s" in run("diagnose", known).output
    other = stepwise(tmp_path / "other", rows, device="Abacus 3", flops_per_token=1e9)
    assert "no model FLOPs utilisation: the peak of 'Abacus 3' is not known" in run("diagnose", other).output
    assert "is 10.2 % of 100 TFLOP/s" in run("diagnose", other, "--peak-flops", 1e14).output


def test_pinning_takes_away_what_copies_cost_and_no_more(tmp_path: Path) -> None:
    times = {"storage_ms": 1, "decode_ms": 1, "loop_ms": 60, "receive_ms": 0.1, "copy_ms": 20, "workers": 2}
    found = diagnose(read_run(loaded(tmp_path / "run", clock="cuda", **times)), cores=8)
    assert [advised.prediction.change for advised in found.recommendations] == ["pinning"]
    assert found.recommendations[0].gain_share.value == pytest.approx(20 / 80, abs=0.01)
    assert "pin_memory=True" in found.recommendations[0].advice
    assert "25.0 % of the time" in found.recommendations[0].evidence
    pinned = diagnose(read_run(loaded(tmp_path / "pinned", clock="cuda", pin_memory=True, **times)), cores=8)
    assert "pinning" not in {prediction.change for prediction in pinned.predictions}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_that_a_headroom_run_keeps_at_its_start_are_no_steps_of_it(tmp_path: Path, num_workers: int) -> None:
    loader = DataLoader(torch.arange(64), batch_size=4, num_workers=num_workers)
    with Profiler(out=tmp_path / "run") as profiler:
        seen = [batch.tolist() for batch in profiler.watch(Headroom(loader, num_batches=3, length=20))]
    record = read_run(tmp_path / "run")
    check(record)
    assert seen[3] == seen[0]
    assert record.steps[0].column("samples").to_pylist() == [4] * 20
