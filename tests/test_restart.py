"""kill -9, a real cluster, a killed worker: the same bytes as an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import making

RECIPE = """
from dataeff import Dedup, Filter, Mix, Pipeline, Read, Shard, Tokenize
from dataeff.filters import Length
from dataeff.formats import ArrowTokens, TextParquet, WebdatasetTar
from dataeff.mixers import Natural
from dataeff.tokenizers import TrainedBpe

def recipe(inputs: str) -> Pipeline:
    return Pipeline(
        Read(inputs, part_bytes=6_000, batch_bytes=3_000),
        Filter(Length(min_words=20)),
        Dedup(),
        Tokenize(TrainedBpe(vocab_size=400)),
        Mix(Natural()),
        Shard(ArrowTokens(sequence_length=64), WebdatasetTar(), TextParquet()),
    )
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], dict[str, bytes]]:
    """A folder with recipe and input, the command line, and the bytes of an undisturbed run."""
    folder = tmp_path_factory.mktemp("restart")
    (folder / "recipe.py").write_text(RECIPE)
    making.write_jsonl(folder / "in/a.jsonl", making.rows(80, seed=8, source="a"))
    command = [sys.executable, "-m", "dataeff", "run", "recipe.py", "--set", "inputs=in", "--threads", "2"]
    subprocess.run([*command, "--out", "undisturbed"], cwd=folder, check=True, capture_output=True)
    return folder, command, making.all_bytes(folder / "undisturbed")


def step_begun(out: Path, step: str) -> bool:
    return any((out / step / "_tasks").glob("*.json"))


@pytest.mark.parametrize("step", ["documents", "dedup/candidates", "survivors", "tokens", "shards/arrow_tokens"])
def test_killed_at_a_step_and_run_again_gives_the_bytes_of_an_undisturbed_run(prepared, step):
    folder, command, expected = prepared
    out = folder / f"killed-{step.replace('/', '-')}"
    process = subprocess.Popen(
        [*command, "--out", str(out)], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and not step_begun(out, step):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished = {path: path.stat().st_mtime_ns for path in (out / "documents/_tasks").glob("*.json")}
    again = subprocess.run([*command, "--out", str(out)], cwd=folder, check=True, capture_output=True, text=True)
    assert again.returncode == 0
    assert making.all_bytes(out) == expected
    for path, mtime in finished.items():
        assert path.stat().st_mtime_ns == mtime, f"{path.name} was redone"


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A Dask scheduler and two worker processes on loopback."""
    file = tmp_path / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    processes = [
        subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)],
            stderr=subprocess.DEVNULL,
        )
    ]
    while not file.exists():
        assert processes[0].poll() is None
        time.sleep(0.05)
    for _ in range(2):
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file)]
        options = ["--nthreads", "1", "--no-dashboard", "--no-nanny", "--local-directory", str(tmp_path)]
        processes.append(subprocess.Popen([*worker, *options], stderr=subprocess.DEVNULL))
    from distributed import Client

    with Client(scheduler_file=str(file)) as client:
        client.wait_for_workers(2, timeout=60)
        address = client.scheduler.address
    yield address, processes
    for process in processes:
        process.kill()
        process.wait()


def test_a_cluster_that_loses_a_worker_gives_the_same_bytes(prepared, scheduler):
    folder, command, expected = prepared
    address, (_, doomed, _) = scheduler
    out = folder / "cluster"
    arguments = [*command[:-2], "--scheduler", address, "--out", str(out)]
    process = subprocess.Popen(arguments, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while process.poll() is None and not step_begun(out, "documents"):
        time.sleep(0.005)
    os.kill(doomed.pid, signal.SIGKILL)
    _, error = process.communicate()
    assert process.returncode == 0, error.decode()
    assert making.all_bytes(out) == expected
