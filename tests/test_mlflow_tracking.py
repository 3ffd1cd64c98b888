"""Tracking in MLflow: against its database store, and against a server of its own on this machine."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataeff.compare import mlflow_tracking
from dataeff.compare.mlflow_tracking import COMPARISON, TRIAL, WHOLE, track_comparison
from dataeff.compare.outcome import Outcome
from dataeff.compare.tables import name_of
from dataeff.errors import PlanError, StorageError
from dataeff.ledger import Ledger, Tags
from dataeff.prices import stated
from tests.test_comparison_exports import BUDGET, compared, plan, trial

# Before MLflow is imported for the first time: it looks then.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
_SERVER_NEEDS = ("flask", "flask_cors")
_ATTEMPTS = 600
_SECOND_NS = 10**9


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store without runs; its tables take seconds to make, so tests share it, each with an experiment of its own."""
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    address = f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"
    client_of(address).search_experiments()
    return address


@pytest.fixture(scope="module")
def server(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of `mlflow server` on the loopback interface, with that store behind it."""
    absent = [name for name in _SERVER_NEEDS if importlib.util.find_spec(name) is None]
    if absent:
        pytest.skip(f"`mlflow server` needs {' and '.join(absent)}, which mlflow-skinny does not bring")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("server")
    options = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--backend-store-uri", database]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *options, "--artifacts-destination", str(folder)],
            cwd=folder,
            env=os.environ | quiet,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        assert answers(process, f"{address}/health"), (folder / "log").read_text()
        yield address
    finally:
        # Its workers are of its process group.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(process: subprocess.Popen[bytes], address: str) -> bool:
    """Whether a server comes to answer before it ends."""
    for _ in range(_ATTEMPTS):
        try:
            with urllib.request.urlopen(address) as answer:
                return bool(answer.status == 200)
        except OSError:
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
            return False
    return False


@pytest.fixture
def found(tmp_path: Path) -> Outcome:
    """The first trial has a ledger."""
    known = compared(tmp_path)
    Ledger(
        known.trials[1].folder / "ledger.jsonl", Tags(run="raw", attempt=0), unix_ns=1_700_000_000 * _SECOND_NS
    ).write()
    return known


def client_of(address: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=address)


def runs_of(address: str, experiment: str) -> dict[str, Any]:
    """Runs by trial; none twice."""
    client = client_of(address)
    runs = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    by_trial = {run.data.tags[TRIAL]: run for run in runs}
    assert len(by_trial) == len(runs)
    return by_trial


def history(address: str, run: Any, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in client_of(address).get_metric_history(run.info.run_id, name)]


def test_a_server_keeps_a_comparison_and_its_trials(server: str, found: Outcome):
    assert track_comparison(found, server, "mixtures", stated(2.0)) == 10
    runs = runs_of(server, "mixtures")
    assert len(runs) == 10
    whole, even = runs[WHOLE], runs["full/even/seed-0"]
    assert all(run.data.tags["mlflow.parentRunId"] == whole.info.run_id for run in runs.values() if run is not whole)
    assert history(server, even, "loss") == [(1000, 4.0), (2000, 3.5), (3000, 3.0), (4000, 2.5)]
    assert history(server, even, "losses/books") == [(1000, 3.5), (2000, 3.0), (3000, 2.5), (4000, 2.0)]
    said = {name: even.data.tags[name] for name in ("team", "candidate", "seed", "size", "state", "price")}
    assert said == {
        "team": "data",
        "candidate": "even",
        "seed": "0",
        "size": "full",
        "state": "complete",
        "price": "$2.00 an hour (as given)",
    }
    assert "project" not in even.data.tags
    assert even.data.params["weight/books"] == "0.5"
    assert even.data.params["corpus"] == "all"
    assert even.data.params["learning_rate"] == "0.003"
    assert even.data.metrics["usd"] == 2.0
    assert whole.data.metrics["tokens_to_target/even"] == found.rows[1].constant.described.mean_tokens
    assert whole.data.tags["verdict/even"] == found.rows[1].constant.verdict
    assert track_comparison(found, server, "mixtures", stated(2.0)) == 0
    assert len(runs_of(server, "mixtures")) == 10
    assert history(server, even, "loss") == [(1000, 4.0), (2000, 3.5), (3000, 3.0), (4000, 2.5)]


def test_runs_end_as_trials_do(database: str, found: Outcome):
    track_comparison(found, database, "ends", None)
    runs = runs_of(database, "ends")
    names = (WHOLE, "full/raw/seed-0", "full/even/seed-1", "full/clean/seed-0", "full/clean/seed-1")
    assert [runs[name].info.status for name in names] == ["RUNNING", "FINISHED", "RUNNING", "FINISHED", "FAILED"]
    assert runs["full/clean/seed-0"].data.tags["why"] == "2nd of 2 at 1,000 tokens"
    assert runs["full/clean/seed-1"].data.tags["why"] == "its validation loss is nan"
    assert math.isnan(history(database, runs["full/clean/seed-1"], "loss")[1][1])


def test_a_run_has_the_times_of_the_ledger(database: str, found: Outcome):
    track_comparison(replace(found, trials=found.trials[:2]), database, "times", None)
    run = runs_of(database, "times")["full/raw/seed-0"].info
    assert run.start_time == 1_700_000_000_000
    assert run.start_time <= run.end_time < run.start_time + 60_000


def test_what_a_comparison_has_come_to_since_is_added(database: str, found: Outcome):
    track_comparison(found, database, "grown", None)
    before = runs_of(database, "grown")
    on = [trial(found.out, "even", 1, 4000) if one is found.trials[6] else one for one in found.trials]
    new = trial(found.out, "even", 2, 4000)
    # The trial that went on, the new one, and the comparison, which is over.
    assert track_comparison(replace(found, trials=(*on, new)), database, "grown", None) == 3
    runs = runs_of(database, "grown")
    went_on = runs["full/even/seed-1"]
    assert went_on.info.run_id == before["full/even/seed-1"].info.run_id
    assert [step for step, _ in history(database, went_on, "loss")] == [1000, 2000, 3000, 4000]
    assert (went_on.info.status, runs[WHOLE].info.status) == ("FINISHED", "FINISHED")
    assert runs["full/even/seed-2"].data.tags["mlflow.parentRunId"] == runs[WHOLE].info.run_id


def test_a_call_that_was_cut_off_is_made_good_by_the_next(
    database: str, found: Outcome, monkeypatch: pytest.MonkeyPatch
):
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    log_batch, sent = MlflowClient.log_batch, []

    def failing(self: Any, run_id: str, **given: Any) -> None:
        sent.append(run_id)
        log_batch(self, run_id, **given)
        if len(sent) == 12:
            raise MlflowException("the line was cut")

    def counting(self: Any, run_id: str, **given: Any) -> None:
        logged.extend((run_id, point.key, point.step) for point in given.get("metrics", ()))
        log_batch(self, run_id, **given)

    monkeypatch.setattr(MlflowClient, "log_batch", failing)
    with pytest.raises(StorageError, match="the line was cut"):
        track_comparison(found, database, "cut", None)
    cut = sent[-1]
    logged: list[tuple[str, str, int]] = []
    monkeypatch.setattr(MlflowClient, "log_batch", counting)
    assert track_comparison(found, database, "cut", None) == 10 - 3
    assert len(logged) == len(set(logged))
    assert not [entry for entry in logged if entry[0] == cut]
    runs = runs_of(database, "cut")
    assert len(runs) == 10
    for one in found.trials:
        steps = [step for step, _ in history(database, runs[name_of(one)], "losses/web")]
        assert steps == sorted(one.losses)


def test_another_price_replaces_the_dollars(database: str, found: Outcome):
    few = replace(found, trials=found.trials[:2])
    track_comparison(few, database, "priced", None)
    runs = runs_of(database, "priced")
    assert not [name for run in runs.values() for name in run.data.metrics if "usd" in name]
    assert "price" not in runs[WHOLE].data.tags
    for usd_per_hour in (2.0, 3.0):
        assert track_comparison(few, database, "priced", stated(usd_per_hour)) == 3
        runs = runs_of(database, "priced")
        assert runs["full/raw/seed-0"].data.metrics["usd"] == usd_per_hour
        assert runs["full/raw/seed-0"].data.tags["price"] == f"${usd_per_hour:.2f} an hour (as given)"
        assert runs[WHOLE].data.metrics["usd_spent/raw"] == 2 * usd_per_hour
    assert len(history(database, runs["full/raw/seed-0"], "loss")) == 4


def test_comparisons_share_an_experiment_and_runs_may_come_in_pages(
    database: str, found: Outcome, monkeypatch: pytest.MonkeyPatch
):
    from mlflow import MlflowClient

    few = replace(found, trials=found.trials[:4])
    other = replace(found, plan=plan(fingerprint="f" * 32), trials=found.trials[:1])
    assert track_comparison(other, database, "shared", None) == 2
    assert track_comparison(few, database, "shared", None) == 5
    search, pages = MlflowClient.search_runs, []

    def short(self: Any, *given: Any, **named: Any) -> Any:
        pages.append(search(self, *given, **named, max_results=2))
        return pages[-1]

    monkeypatch.setattr(MlflowClient, "search_runs", short)
    assert track_comparison(few, database, "shared", None) == 0
    assert [len(page) for page in pages] == [2, 2, 1]
    assert {run.data.tags[COMPARISON] for page in pages for run in page} == {found.plan["fingerprint"]}


def test_sources_may_have_names_that_mlflow_refuses(database: str, found: Outcome):
    losses = {"../books": 1.0, "web+é:": 2.0, "web é": 3.0}
    odd = trial(found.out, "raw", 0, 0, losses={BUDGET: losses})
    track_comparison(
        replace(found, plan=plan(domains=dict.fromkeys(losses, 1 / 3)), trials=(odd,)), database, "odd", None
    )
    metrics = runs_of(database, "odd")["full/raw/seed-0"].data.metrics
    assert sorted(value for name, value in metrics.items() if name.startswith("losses/")) == [1.0, 2.0, 3.0]
    assert metrics["losses/web é"] == 3.0


@given(st.lists(st.text(min_size=1) | st.text("a_/. -", min_size=1), min_size=2, max_size=2, unique=True))
def test_two_names_never_become_one_key(names: list[str]):
    keys = [mlflow_tracking._key(name) for name in names]
    assert keys[0] != keys[1]
    assert all(re.fullmatch(r"\w[\w.\- ]*", key) and len(key) <= 200 for key in keys)


def test_a_server_that_does_not_answer_is_named_without_its_password(found: Outcome, monkeypatch: pytest.MonkeyPatch):
    mlflow = pytest.importorskip("mlflow")

    def patient(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("MLflow itself would ask again for minutes")

    monkeypatch.setattr(mlflow, "MlflowClient", patient)
    with socket.socket() as silent:  # bound, but nobody listens
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        with pytest.raises(StorageError, match=f"http://127.0.0.1:{port} refused or did not answer") as caught:
            track_comparison(found, f"http://me:secret@127.0.0.1:{port}", "none", None)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("uri", ["http://localhost:five", "http://a..b", "https://localhost:99999"])
def test_what_is_no_address_is_named(found: Outcome, uri: str):
    pytest.importorskip("mlflow")
    with pytest.raises(PlanError, match=f"{uri} is no address of a server"):
        track_comparison(found, uri, "none", None)


def test_a_store_whose_driver_is_absent_is_named(found: Outcome, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    for driver in ("psycopg", "psycopg2"):
        monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(PlanError, match="postgresql://localhost/x needs what is not installed"):
        track_comparison(found, "postgresql://localhost/x", "none", None)


def test_a_deleted_experiment_is_refused(database: str, found: Outcome):
    client = client_of(database)
    client.delete_experiment(client.create_experiment("deleted"))
    with pytest.raises(PlanError, match="'deleted' is deleted: restore it"):
        track_comparison(found, database, "deleted", None)


def test_without_mlflow_the_extra_is_named(found: Outcome, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "mlflow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(PlanError, match=r"dataeff\[tracking\]"):
        track_comparison(found, "http://127.0.0.1:1", "none", None)


def test_whoever_wants_mlflow_to_send_statistics_may(found: Outcome, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for set_before, expected in ((None, "true"), ("false", "false")):
        monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
        if set_before is not None:
            monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", set_before)
        with pytest.raises(StorageError):
            track_comparison(found, "nosuch://x", "none", None)
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == expected
