"""`dataeff profile` on scripts that know nothing of it: public trainers, and scripts that go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dataeff.errors import FormatError, InputError, PlanError
from dataeff.profile.script import profile_script, summary
from dataeff.steps import CAUSES, RankClock, RunInfo, RunRecord, StepRecorder, read_run

# Threads of a tiny model only get into each other's way.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SCRIPTS = Path(__file__).resolve().parent / "profiled"


def profile(
    out: Path, script: str, *arguments: object, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dataeff", "profile", "--out", str(out), *options]
    return subprocess.run(
        [*command, str(SCRIPTS / script), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=out.parent,
        env=ENVIRONMENT,
    )


def shares(steps: list[dict[str, int]]) -> dict[str, float]:
    """Shares of the time of steady steps by cause; evaluations are no part of it."""
    steady = [step for step in steps if step["steady"]]
    assert len(steady) >= 5
    time_ns = sum(step["stop_ns"] - step["start_ns"] - step["evaluation_ns"] for step in steady)
    for step in steady:
        assert step["stall_ns"] == sum(step[f"stall_{cause}_ns"] for cause in CAUSES)
    return {cause: sum(step[f"stall_{cause}_ns"] for step in steady) / time_ns for cause in CAUSES}


@pytest.mark.parametrize("script", ["hugging_face.py", "lightning_fit.py", "accelerated.py"])
def test_what_slows_a_public_trainer_is_found(tmp_path: Path, script: str):
    """Thirty steps of a trainer that nobody here wrote: slow storage, then slow decoding, then neither."""
    out = tmp_path / "run"
    done = profile(out, script, "storage,decode,none", 0 if script == "accelerated.py" else tmp_path)
    assert done.returncode == 0, done.stderr
    assert "steady steps of" in done.stderr
    assert f"dataeff diagnose {out}" in done.stderr
    steps = read_run(out).steps[0].to_pylist()
    assert len(steps) == 30
    # A batch in between is of both phases, and Accelerate reads one ahead.
    for cause, phase in (("storage", steps[1:9]), ("decode", steps[11:19])):
        found = shares(phase)
        assert max(found, key=found.__getitem__) == cause
        assert found[cause] > 0.15
    found = shares(steps[21:29])
    # A tiny model's steps take milliseconds, of which the sampler, collate and a busy machine may have a part.
    assert sum(found.values()) < 0.25
    assert found["storage"] < 0.1
    batches = 2 if script == "hugging_face.py" else 1
    assert sum(step["micro_batches"] for step in steps) == 30 * batches
    assert sum(step["tokens"] for step in steps) == 30 * batches * 16
    evaluated = [step["evaluation_ns"] for step in steps if step["evaluation_ns"]]
    # Lightning also tries the evaluation out before the first step.
    assert len(evaluated) == {"hugging_face.py": 3, "lightning_fit.py": 4, "accelerated.py": 0}[script]
    # Two batches of two samples of 20 ms, or more.
    assert all(took_ns >= 80e6 for took_ns in evaluated)


def test_a_loader_with_workers_is_stamped_by_them(tmp_path: Path):
    out = tmp_path / "run"
    done = profile(out, "plain.py", "storage", 2, 0.03)
    assert done.returncode == 0, done.stderr
    record = read_run(out)
    found = shares(record.steps[0].to_pylist())
    assert max(found, key=found.__getitem__) == "storage"
    assert (record.info.num_workers, record.info.prefetch_factor, record.info.batch_size) == (2, 2, 2)
    assert (record.info.clock, record.info.sequence_length, record.info.world) == ("cpu", 8, 1)
    batches = record.batches[0].to_pylist()
    assert [batch["worker"] for batch in batches] == [0, 1] * 15
    for batch in batches:
        assert batch["fetch_start_ns"] < batch["fetch_stop_ns"] <= batch["collate_start_ns"] < batch["collate_stop_ns"]
        assert batch["collate_stop_ns"] < batch["wait_stop_ns"]
        assert batch["fetch_stop_ns"] - batch["fetch_start_ns"] >= 2 * 0.03e9
        assert (batch["samples"], batch["num_bytes"]) == (2, 2 * 2 * 8 * 8)


def test_a_module_is_run_as_python_does_and_ended_after_some_steps(tmp_path: Path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "train.py").write_text((SCRIPTS / "odd.py").read_text())
    command = [sys.executable, "-m", "dataeff", "profile", "--out", "run", "--steps", "10", "-m", "pack.train", "crash"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert read_run(tmp_path / "run").steps[0].num_rows == 10


def test_a_script_sees_what_it_would_see_without_us(tmp_path: Path):
    done = profile(tmp_path / "run", "odd.py", "environment", "--out", "mine", "-m")
    assert done.stdout.split() == [
        "__main__", str(SCRIPTS / "odd.py"), "['environment',", "'--out',", "'mine',", "'-m']", str(SCRIPTS),
        "False", "False",
    ]  # fmt: skip


def test_a_crash_keeps_its_traceback_its_exit_code_and_the_record(tmp_path: Path):
    alone = subprocess.run([sys.executable, str(SCRIPTS / "odd.py"), "crash"], capture_output=True, text=True)
    done = profile(tmp_path / "run", "odd.py", "crash")
    assert done.returncode == alone.returncode == 1
    assert done.stderr.startswith(alone.stderr)
    assert "dataeff: 12 steps were recorded, too few" in done.stderr
    assert read_run(tmp_path / "run").steps[0].num_rows == 12


def test_an_exit_code_is_handed_on(tmp_path: Path):
    assert profile(tmp_path / "run", "odd.py", "exit").returncode == 7


def test_a_killed_script_ends_as_a_shell_would_say(tmp_path: Path):
    done = profile(tmp_path / "run", "odd.py", "killed")
    assert done.returncode == 128 + signal.SIGKILL
    assert "killed before its records were written" in done.stderr


def test_ctrl_c_keeps_the_record_and_still_reports(tmp_path: Path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "dataeff", "profile", "--out", str(out), str(SCRIPTS / "odd.py"), "interrupted"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in errors
    assert "dataeff: 12 steps were recorded, too few" in errors
    assert read_run(out).steps[0].num_rows == 12


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no-torch", "never imported torch"),
        ("no-step", "read 32 batches, but no torch.optim.Optimizer stepped"),
        ("no-loader", "made 32 steps, but read no torch DataLoader"),
    ],
)
def test_what_cannot_be_measured_says_how_to_mark_it(tmp_path: Path, what: str, message: str):
    done = profile(tmp_path / "run", "odd.py", what)
    assert done.returncode == 1
    assert message in done.stderr
    assert "profiler.watch(" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_script_with_a_profiler_of_its_own_says_which_to_take_out(tmp_path: Path):
    done = profile(tmp_path / "run", "odd.py", "own-profiler")
    assert done.returncode == 1
    assert "a profiler is at work in this process already" in done.stderr


def test_what_is_not_there_or_holds_a_run_is_refused_before_anything_runs(tmp_path: Path):
    with pytest.raises(InputError, match="is not a file"):
        profile_script("absent.py", [], out=tmp_path / "run")
    StepRecorder(tmp_path / "old", 0, INFO, CLOCK).close()
    with pytest.raises(PlanError, match="holds a recorded run"):
        profile_script(str(SCRIPTS / "odd.py"), ["no-torch"], out=tmp_path / "old")


INFO = RunInfo(run="a", world=1, clock="cpu", device="d", command="c")
CLOCK = RankClock(host="h", unix_ns=1, clock_ns=1)


def recorded(tmp_path: Path, steps: int, **columns: int) -> RunRecord:
    recorder = StepRecorder(tmp_path, 0, INFO, CLOCK)
    for step in range(steps):
        recorder.step(
            {"step": step, "start_ns": step * 100, "stop_ns": step * 100 + 100, "steady": step > 0, **columns}
        )
    recorder.close()
    return read_run(tmp_path)


def test_a_record_without_a_ranks_clock_is_refused(tmp_path: Path):
    recorded(tmp_path, 1)
    clock = tmp_path / "ranks" / "rank-00000.json"
    clock.write_text("{", encoding="utf-8")
    with pytest.raises(FormatError, match=r"rank-00000\.json is damaged"):
        read_run(tmp_path)
    clock.unlink()
    with pytest.raises(FormatError, match="no clock of rank 0"):
        read_run(tmp_path)


def test_the_summary_states_share_and_cause_of_steady_steps(tmp_path: Path):
    record = recorded(tmp_path, 21, stall_ns=40, stall_decode_ns=30, stall_copy_ns=10, evaluation_ns=20)
    first, second, third = summary(record, Path("here"))
    assert first.startswith("20 steady steps of 8e-05 ms; 50.0% (50.0% to 50.0%) of the loop's time")
    assert second == "Largest cause: decode, 37.5% (37.5% to 37.5%)."
    assert third == "Record: here. Next: dataeff diagnose here"


def test_the_summary_states_no_share_of_too_few_steps(tmp_path: Path):
    first, second, third = summary(recorded(tmp_path, 4), tmp_path)
    assert first == "4 steps were recorded, too few for a stall share."
    assert "a share needs 20 or more" in second
    assert third.startswith("Record: ")
