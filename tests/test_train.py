"""The training loop: what it learns does not depend on how it was cut up, stopped or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dataeff.errors import MeasurementError, PlanError, StorageError
from dataeff.ledger import read_ledger
from dataeff.profile.diagnosis import model_of
from dataeff.steps import read_run
from dataeff.train import loop
from dataeff.train.checkpoint import checkpoints
from dataeff.train.loop import learning_rate, train
from dataeff.train.settings import TrainSettings
from tests.token_corpus import write_corpus

SHAPE = {"width": 16, "layers": 1, "heads": 2}
OPTIONS = {"batch_size": 4, "steps": 12, "log_every": 1, "device": "cpu", "warmup_steps": 2}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    return str(write_corpus(folder, {"code": [40], "web": [60, 50]}, length=16, vocabulary=64))


def trained(corpus, out, shape=SHAPE, **changes):
    losses: dict[int, float] = {}
    settings = TrainSettings(**{**OPTIONS, **changes})
    found = train(corpus, Path(out), shape, settings, lambda at: losses.__setitem__(at.step, at.loss))
    return found, losses


def test_it_learns_to_predict_what_it_sees_again_and_again(tmp_path):
    corpus = write_corpus(tmp_path / "corpus", {"web": [8]}, length=16, vocabulary=64)
    found, losses = trained(
        corpus, tmp_path / "run", {"width": 64, "layers": 2, "heads": 2}, steps=120, holdout_rows=0, learning_rate=0.01
    )
    assert losses[1] == pytest.approx(4.16, abs=0.15)
    assert losses[120] < 0.5
    assert found.losses == {}


def test_losses_are_by_source_and_of_rows_that_were_not_trained_on(corpus, tmp_path):
    found, _ = trained(corpus, tmp_path / "run", validate_every=6)
    assert set(found.losses) == {"code", "web"}
    lines = [json.loads(line) for line in (tmp_path / "run" / "validation.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [6, 12]
    assert lines[1]["losses"] == found.losses


def test_micro_batches_give_what_one_batch_gives(corpus, tmp_path):
    _, whole = trained(corpus, tmp_path / "whole", batch_size=8)
    _, parts = trained(corpus, tmp_path / "parts", batch_size=2, accumulate=4)
    assert list(parts) == list(whole)
    assert list(parts.values()) == pytest.approx(list(whole.values()), abs=2e-4)


def test_a_run_that_goes_on_from_a_checkpoint_is_the_undisturbed_one_to_the_bit(corpus, tmp_path):
    _, wanted = trained(corpus, tmp_path / "whole", schedule="cosine")
    whole = torch.load(checkpoints(tmp_path / "whole")[-1], weights_only=True)
    settings = TrainSettings(**{**OPTIONS, "schedule": "cosine"})
    losses: dict[int, float] = {}

    def stop_at_seven(at):
        losses[at.step] = at.loss
        if at.step == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    found = train(corpus, tmp_path / "parts", SHAPE, settings, stop_at_seven)
    assert (found.step, found.end) == (7, "preempted")
    found = train(corpus, tmp_path / "parts", SHAPE, settings, lambda at: losses.__setitem__(at.step, at.loss))
    assert (found.step, found.end) == (12, "finished")
    assert losses == wanted
    parts = torch.load(checkpoints(tmp_path / "parts")[-1], weights_only=True)
    assert all(parts["model"][name].equal(whole["model"][name]) for name in whole["model"])
    assert parts["loader"] == whole["loader"]


def test_after_a_kill_the_steps_since_the_checkpoint_are_done_again_and_charged_as_lost(corpus, tmp_path, monkeypatch):
    _, wanted = trained(corpus, tmp_path / "whole")
    out = tmp_path / "run"

    def die(at):
        if at.step == 8:
            raise KeyboardInterrupt

    settings = TrainSettings(**{**OPTIONS, "checkpoint_every": 5})
    with pytest.raises(KeyboardInterrupt):
        train(corpus, out, SHAPE, settings, die)
    assert [path.name for path in checkpoints(out)] == ["step-00000005.pt"]
    losses: dict[int, float] = {}
    train(corpus, out, SHAPE, settings, lambda at: losses.__setitem__(at.step, at.loss))
    assert losses == {step: loss for step, loss in wanted.items() if step > 5}
    windows, _ = read_ledger(out / "ledger.jsonl")
    second = [window for window in windows if window.tags.attempt == 1]
    again = [window.step for window in second if window.spent_ns.get("lost_to_restart")]
    assert again[0] == 6
    assert all(step <= 8 for step in again[:-1])
    assert windows[-1].end == "finished"


def test_every_step_is_in_the_record_and_every_moment_in_the_ledger(corpus, tmp_path):
    found, losses = trained(corpus, tmp_path / "run", accumulate=2, team="core", project="proxies", validate_every=4)
    record = read_run(found.record)
    steps = record.steps[0].to_pydict()
    assert steps["step"] == list(range(12))
    assert steps["tokens"] == [4 * 2 * 16] * 12
    assert steps["loss"] == pytest.approx(list(losses.values()))
    assert steps["micro_batches"] == [2] * 12
    assert record.info.flops_per_token > 0
    assert (record.info.team, record.info.project) == ("core", "proxies")
    # The loader has no workers, so its batches were made while the loop waited: enough to predict other settings from.
    batches = record.batches[0].to_pydict()
    assert batches["fetch_start_ns"] == batches["wait_start_ns"]
    assert batches["fetch_stop_ns"] == batches["collate_stop_ns"] == batches["wait_stop_ns"]
    assert model_of(record).settings.num_workers == 0
    windows, _ = read_ledger(tmp_path / "run" / "ledger.jsonl")
    spent = {name for window in windows for name in window.spent_ns}
    assert {"startup", "data_wait", "step", "evaluation", "checkpoint"} <= spent
    assert (windows[-1].step, windows[-1].end) == (12, "finished")


def test_documents_may_be_masked_from_each_other(corpus, tmp_path):
    found, losses = trained(corpus, tmp_path / "run", {**SHAPE, "mask_documents": True, "positions": "learned"})
    assert len(losses) == 12
    assert set(found.losses) == {"code", "web"}


def test_a_run_killed_at_its_very_start_begins_again(corpus, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".train.json.0123.tmp").write_text("{")
    found, _ = trained(corpus, tmp_path / "run", steps=2)
    assert found.end == "finished"


def test_only_the_last_checkpoints_are_kept(corpus, tmp_path):
    trained(corpus, tmp_path / "run", checkpoint_every=3, keep_checkpoints=2)
    assert [path.name for path in checkpoints(tmp_path / "run")] == ["step-00000009.pt", "step-00000012.pt"]


def test_a_loss_that_is_no_number_ends_the_run_with_the_last_good_checkpoint_named(corpus, tmp_path):
    with pytest.raises(MeasurementError, match=r"the loss is nan at step \d+; the last checkpoint is step-00000002.pt"):
        trained(corpus, tmp_path / "run", learning_rate=9.9, warmup_steps=0, clip_norm=0, weight_decay=1e30,
                checkpoint_every=2, steps=40)  # fmt: skip
    windows, _ = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert windows[-1].end == "failed"


def test_rows_may_be_left_out_when_a_run_goes_on(corpus, tmp_path):
    trained(corpus, tmp_path / "run", steps=4)
    trained(corpus, tmp_path / "run", steps=6, skip_rows=10)
    state = torch.load(checkpoints(tmp_path / "run")[-1], weights_only=True)["loader"]
    assert state["skipped"] == [[16, 26]]
    assert state["position"] == 34


def test_another_model_another_corpus_or_another_directory_is_refused(corpus, tmp_path):
    trained(corpus, tmp_path / "run", steps=2)
    with pytest.raises(PlanError, match=r"another model .*width: 16 there, 32 here"):
        trained(corpus, tmp_path / "run", {**SHAPE, "width": 32})
    other = write_corpus(tmp_path / "other", {"web": [90]}, length=16, vocabulary=64)
    with pytest.raises(PlanError, match="another corpus"):
        trained(other, tmp_path / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    with pytest.raises(StorageError, match="holds no training run"):
        trained(corpus, tmp_path / "full")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"schedule": "step"}, "constant, cosine, linear"),
        ({"skip_rows": -1}, "skip_rows is -1"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes, message):
    with pytest.raises(PlanError, match=message):
        TrainSettings(**changes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused(corpus, tmp_path):
    with pytest.raises(PlanError, match="torch finds no CUDA device"):
        trained(corpus, tmp_path / "run", device="cuda")


def test_the_learning_rate_warms_up_and_falls_to_a_tenth():
    settings = TrainSettings(steps=110, warmup_steps=10, learning_rate=1.0, schedule="cosine")
    assert learning_rate(settings, 0) == 0.1
    assert learning_rate(settings, 10) == 1.0
    assert learning_rate(settings, 60) == pytest.approx(0.55)
    assert learning_rate(settings, 110) == pytest.approx(0.1)
    constant = TrainSettings(steps=110, warmup_steps=10, learning_rate=1.0)
    assert learning_rate(constant, 109) == 1.0


def command(corpus, out, *more: str) -> list[str]:
    options = ["--width", "16", "--layers", "1", "--heads", "2", "--batch-size", "4", "--log-every", "1"]
    return ["-m", "dataeff", "train", corpus, "--out", str(out), "--device", "cpu", *options, *more]


def test_two_ranks_under_torchrun_learn_what_one_with_twice_the_batch_learns(corpus, tmp_path):
    alone = [*command(corpus, tmp_path / "one", "--steps", "6"), "--batch-size", "8"]
    subprocess.run([sys.executable, *alone], check=True, capture_output=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [*torchrun, *command(corpus, tmp_path / "two", "--steps", "6")]
    subprocess.run(ranks, check=True, capture_output=True, env=environment)
    one, two = (torch.load(checkpoints(tmp_path / name)[-1], weights_only=True) for name in ("one", "two"))
    assert one["loader"]["position"] == two["loader"]["position"] == 48
    for name, weights in one["model"].items():
        torch.testing.assert_close(two["model"][name], weights, atol=2e-3, rtol=0)
    windows, _ = read_ledger(tmp_path / "two" / "ledger.jsonl")
    assert {window.tags.rank for window in windows} == {0, 1}
    assert set(read_run(tmp_path / "two" / "record-000").steps) == {0, 1}


def test_sigterm_leaves_a_checkpoint_and_says_so_by_the_exit_code(corpus, tmp_path):
    process = subprocess.Popen(
        [sys.executable, *command(corpus, tmp_path / "run", "--steps", "100000")], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if "step      3" in line:
            process.send_signal(signal.SIGTERM)
            break
    rest = process.stdout.read()
    assert process.wait() == loop.STOPPED == 143
    assert "with a checkpoint; run the same command again" in rest
    (path,) = checkpoints(tmp_path / "run")
    step = torch.load(path, weights_only=True)["step"]
    again = command(corpus, tmp_path / "run", "--steps", str(step + 1))
    found = subprocess.run([sys.executable, *again], check=True, capture_output=True, text=True)
    assert f"step {step + 1:>6,}  loss" in found.stdout
    assert "perplexity" in found.stdout
