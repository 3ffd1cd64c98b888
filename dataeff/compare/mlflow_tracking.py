"""A comparison in MLflow: a run for the comparison, and below it a run for each trial with its curve over tokens.

Tracking again adds what has come since and writes nothing twice, so it can be done while a comparison goes on. What
is there is found by tags, not by names, and a run's last tag says what was written to it: a call that was cut off
is made good by the next.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from dataeff.compare.outcome import NS_PER_HOUR, Outcome, Trial, usd
from dataeff.compare.tables import candidates_table, ended, losses_of, name_of, shown, span_ns
from dataeff.errors import PlanError, StorageError
from dataeff.manifest import fingerprint
from dataeff.prices import Price

COMPARISON = "dataeff.comparison"
"""Tag of every run: the comparison's fingerprint."""
TRIAL = "dataeff.trial"
"""Tag of every run: the trial's name, or `WHOLE`."""
WHOLE = "comparison"
"""No trial's name, for those have slashes."""
WRITTEN = "dataeff.written"
"""Tag of every run, set last: a fingerprint of all that was written to it."""
_LIMITS = {"params": 100, "tags": 100, "metrics": 1000}
"""Of a request, as MLflow 3 has them."""
_FIGURES = (
    *("tokens_to_target", "low_tokens", "high_tokens", "num_reached", "num_runs", "ratio", "low_ratio", "high_ratio"),
    *("p_value", "device_hours_to_target", "usd_to_target", "device_hours_spent", "usd_spent"),
)
"""Of a candidate, columns of `dataeff.compare.tables.CANDIDATES`."""
_NAME_CHARACTERS = 150
_PORTS = {"http": 80, "https": 443}
_CONNECT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """All that a run is to hold."""

    trial: str
    title: str
    params: Mapping[str, str]
    tags: Mapping[str, str]
    readings: Mapping[int, Mapping[str, float]]
    """Metrics by tokens, each written once."""
    figures: Mapping[str, float]
    """Metrics that may change, at the last tokens."""
    status: Literal["RUNNING", "FINISHED", "FAILED"]
    span_ms: tuple[int, int] | None
    """Unix time; None where it is not known."""

    @property
    def digest(self) -> str:
        """Of all of it."""
        readings = [[tokens, self.readings[tokens]] for tokens in self.readings]
        return fingerprint(self.params, self.tags, readings, self.figures, self.status, self.span_ms)


def track_comparison(found: Outcome, uri: str, experiment: str, price: Price | None) -> int:
    """Write a comparison and its trials as runs, or what of them is not there yet.

    A trial's parameters are its candidate, corpus, proxy, seed, weights and schedule. Its metrics are the loss in all
    (`loss`) and by source (`losses/...`), nats a token with tokens as the step, and what it cost. Figures by candidate
    are with the comparison's run. One call at a time: two at once could each make a run for one trial.

    Args:
        found: A comparison, finished or not.
        uri: Of a tracking server or store.
        experiment: Name of the experiment; made if it is not there.
        price: Of a device; None leaves dollars out.

    Returns:
        Runs that were made or added to, the comparison's included: 0 where all was there.

    Raises:
        PlanError: MLflow is not installed, or lacks what the URI needs; or the experiment is deleted.
        StorageError: The server or store refuses, or does not answer.
    """
    with _explained(uri):
        from mlflow import MlflowClient

        _knock(uri)
        client = MlflowClient(tracking_uri=uri)
        experiment_id = _experiment(client, experiment)
        there = _there(client, experiment_id, found.plan["fingerprint"])
        whole = _comparison(found, price)
        parent = there.get(WHOLE) or _create(client, experiment_id, found, whole, parent=None)
        num_written = int(_write(client, parent, whole))
        for trial in found.trials:
            said = _trial(found, trial, price)
            run = there.get(said.trial) or _create(client, experiment_id, found, said, parent=parent)
            num_written += _write(client, run, said)
    return num_written


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    # MLflow sends statistics of its use to its makers unless it is told not to before it is imported.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise PlanError(
            "tracking needs MLflow, which is not installed: install the extra with `pip install 'dataeff[tracking]'`"
        ) from error
    try:
        yield
    except ImportError as error:
        raise PlanError(
            f"{shown(uri)} needs what is not installed ({error}): install it, or give the address of a tracking server"
        ) from error
    except (MlflowException, OSError) as error:
        why = shown(str(error).strip().splitlines()[0])
        raise StorageError(
            f"MLflow at {shown(uri)} refused or did not answer ({why}): see that the server runs, then track again; "
            "nothing is written twice"
        ) from error


def _knock(uri: str) -> None:
    """Find out in seconds whether anybody is at an address; MLflow would go on asking for minutes.

    Raises:
        OSError: Nobody is.
        PlanError: It is no address.
    """
    parts = urlsplit(uri)
    if parts.scheme not in _PORTS or parts.hostname is None:
        return
    if parts.scheme in getproxies() and not proxy_bypass(parts.hostname):
        return
    try:
        address = parts.hostname, parts.port or _PORTS[parts.scheme]
        socket.create_connection(address, timeout=_CONNECT_S).close()
    except ValueError as error:
        raise PlanError(
            f"{shown(uri)} is no address of a server ({error}); it must be like http://HOST:PORT"
        ) from error


def _experiment(client: Any, name: str) -> str:
    known = client.get_experiment_by_name(name)
    if known is None:
        return str(client.create_experiment(name))
    if known.lifecycle_stage != "active":
        raise PlanError(f"the experiment {name!r} is deleted: restore it, or name another")
    return str(known.experiment_id)


def _there(client: Any, experiment_id: str, comparison: str) -> dict[str, Any]:
    """Runs of the comparison by trial."""
    found: dict[str, Any] = {}
    token = None
    while True:
        page = client.search_runs([experiment_id], f"tags.`{COMPARISON}` = '{comparison}'", page_token=token)
        found |= {run.data.tags[TRIAL]: run for run in page}
        token = page.token
        if not token:
            return found


def _create(client: Any, experiment_id: str, found: Outcome, said: _Said, *, parent: Any) -> Any:
    tags = {COMPARISON: found.plan["fingerprint"], TRIAL: said.trial}
    if parent is not None:
        tags["mlflow.parentRunId"] = parent.info.run_id
    start = said.span_ms[0] if said.span_ms else None
    return client.create_run(experiment_id, start_time=start, tags=tags, run_name=said.title)


def _write(client: Any, run: Any, said: _Said) -> bool:
    """Make a run hold what it is to hold; False where it did already."""
    from mlflow.entities import Metric, Param, RunTag

    digest = said.digest
    if run.data.tags.get(WRITTEN) == digest:
        return False
    run_id = run.info.run_id
    known = _known(client, run, said)
    last, now_ms = max(said.readings, default=0), time.time_ns() // 1_000_000
    entries: dict[str, list[Any]] = {
        "params": [Param(*pair) for pair in said.params.items()],
        "tags": [RunTag(*pair) for pair in said.tags.items()],
        # No time of a reading is kept; what orders readings is their step.
        "metrics": [
            Metric(name, value, run.info.start_time, tokens)
            for tokens, reading in said.readings.items()
            for name, value in reading.items()
            if (name, tokens) not in known
        ],
    }
    changed = {name: value for name, value in said.figures.items() if run.data.metrics.get(name) != value}
    entries["metrics"] += [Metric(name, value, now_ms, last) for name, value in changed.items()]
    for kind, limit in _LIMITS.items():
        for start in range(0, len(entries[kind]), limit):
            client.log_batch(run_id, **{kind: entries[kind][start : start + limit]}, synchronous=True)
    if said.status == "RUNNING":
        client.update_run(run_id, status="RUNNING")
    else:
        client.set_terminated(run_id, status=said.status, end_time=said.span_ms[1] if said.span_ms else None)
    client.set_tag(run_id, WRITTEN, digest)
    return True


def _known(client: Any, run: Any, said: _Said) -> set[tuple[str, int]]:
    """Readings that a run holds: metric and tokens."""
    names = {name for reading in said.readings.values() for name in reading} & set(run.data.metrics)
    return {(name, point.step) for name in names for point in client.get_metric_history(run.info.run_id, name)}


def _comparison(found: Outcome, price: Price | None) -> _Said:
    """What is said of the whole."""
    plan = found.plan
    named = {"target": found.target, "annealed_target": found.annealed_target}
    targets = {name: target for name, target in named.items() if target}
    figures: dict[str, Any] = {
        **{f"{name}_loss": target["loss"] for name, target in targets.items()},
        "tokens_per_s": found.tokens_per_s,
        "device_hours": found.device_hours,
        "usd": usd(found.device_hours, price),
        "screening_share": found.screening_share,
    }
    verdicts: dict[str, str | None] = {}
    for row in candidates_table(found, price).to_pylist():
        key = _key(row["candidate"])
        figures |= {f"{name}/{key}": row[name] for name in _FIGURES}
        verdicts |= {f"{name}/{key}": row[name] for name in ("state", "why", "schedule", "verdict")}
    spans = [span for trial in found.trials if (span := span_ns(trial))]
    return _Said(
        trial=WHOLE,
        title=f"comparison {plan['fingerprint'][:12]}",
        params={
            **_settings(plan),
            "baseline": plan["baseline"],
            "screener": json.dumps(plan["screener"]),
            **{name: str(plan[name]) for name in ("horizon_tokens", "seeds", "fresh_seeds", "finalists", "annealed")},
            **{f"domain/{_key(source)}": repr(weight) for source, weight in plan["domains"].items()},
        },
        tags=_tags(plan, price, verdicts | {name: target["rule"] for name, target in targets.items()}),
        readings={},
        figures=_finite(figures),
        status="RUNNING" if any(ended(found, trial) == "paused" for trial in found.trials) else "FINISHED",
        span_ms=_ms((min(span[0] for span in spans), max(span[1] for span in spans))) if spans else None,
    )


def _trial(found: Outcome, trial: Trial, price: Price | None) -> _Said:
    plan, state = found.plan, ended(found, trial)
    row = next(row for row in found.rows if row.candidate == trial.candidate)
    hours = trial.device_ns / NS_PER_HOUR
    figures = {"device_hours": hours, "usd": usd(hours, price), "tokens_per_s": trial.tokens_per_s}
    owner = {"candidate": trial.candidate, "seed": str(trial.seed), "size": trial.size}
    return _Said(
        trial=name_of(trial),
        title=name_of(trial),
        params={
            **owner,
            "corpus": row.corpus,
            "schedule": "annealed" if trial.annealed else "constant",
            **_settings(plan),
            **{f"proxy/{name}": str(value) for name, value in plan["proxies"][trial.size].items()},
            **{f"weight/{_key(source)}": repr(weight) for source, weight in row.weights.items()},
            **{f"epochs/{_key(source)}": repr(times) for source, times in row.epochs.items()},
        },
        tags=_tags(plan, price, {**owner, "state": state, "why": trial.failure or row.why}),
        readings={
            tokens: {
                "loss": loss,
                **{f"losses/{_key(source)}": value for source, value in trial.losses[tokens].items()},
            }
            for tokens, loss in losses_of(found, trial).items()
        },
        figures=_finite(figures),
        status="FAILED" if state == "failed" else "RUNNING" if state == "paused" else "FINISHED",
        span_ms=_ms(span_ns(trial)),
    )


def _settings(plan: Mapping[str, Any]) -> dict[str, str]:
    """What all trials share."""
    sizes = {name: plan[name] for name in ("budget_tokens", "step_tokens", "sequence_length")}
    return {name: str(value) for name, value in (sizes | dict(plan["schedule"])).items()}


def _tags(plan: Mapping[str, Any], price: Price | None, more: Mapping[str, str | None]) -> dict[str, str]:
    said = {"team": plan["team"], "project": plan["project"], "price": str(price) if price else None, **more}
    return {name: value for name, value in said.items() if value}


def _finite(figures: Mapping[str, float | None]) -> dict[str, float]:
    """Without what is not known, or a bound only."""
    return {name: float(value) for name, value in figures.items() if value is not None and math.isfinite(value)}


def _ms(span: tuple[int, int] | None) -> tuple[int, int] | None:
    return span and (span[0] // 1_000_000, span[1] // 1_000_000)


def _key(name: str) -> str:
    """A name as part of a key, which may hold few characters; no two names become one."""
    if re.fullmatch(r"\w([\w.\- ]*\w)?", name) and len(name) <= _NAME_CHARACTERS:
        return name
    return re.sub(r"\W", "_", name)[:_NAME_CHARACTERS] + "-" + fingerprint(name)[:8]
