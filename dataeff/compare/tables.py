"""A comparison as tables, for whoever goes on with it elsewhere: a row a candidate, and a row a reading.

What a trial is called, how far it came and when it ran is said here once, for all that comparisons are exported to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from dataeff.compare.outcome import Outcome, Row, Trial, device_hours_to, usd
from dataeff.compare.trials import aggregate
from dataeff.ledger import FILE, read_ledger
from dataeff.manifest import committed
from dataeff.prices import Price

Ended: TypeAlias = Literal["complete", "stopped", "failed", "paused"]
"""How far a trial came. `stopped`: the screener let its candidate go. `paused`: it goes on when the comparison does."""
_BY_SOURCE = pa.map_(pa.string(), pa.float64())

CANDIDATES = pa.schema(
    [
        # The comparison's fingerprint.
        pa.field("comparison", pa.string(), nullable=False),
        pa.field("candidate", pa.string(), nullable=False),
        pa.field("corpus", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("why", pa.string(), nullable=False),
        # `constant` or `annealed` learning rate, of the runs that the figures are of; null where there are none, and
        # then null in all that follows down to the price.
        pa.field("schedule", pa.string()),
        pa.field("seeds", pa.list_(pa.int64())),
        # Whether none of them is a seed that the candidate was chosen by.
        pa.field("fresh", pa.bool_()),
        # Nats a token.
        pa.field("target_loss", pa.float64()),
        # Geometric mean; null where too few runs reached the target.
        pa.field("tokens_to_target", pa.float64()),
        pa.field("low_tokens", pa.float64()),
        # Infinite where there is a lower bound only.
        pa.field("high_tokens", pa.float64()),
        pa.field("confidence", pa.float64()),
        pa.field("num_reached", pa.int64()),
        pa.field("num_runs", pa.int64()),
        pa.field("device_hours_to_target", pa.float64()),
        pa.field("usd_to_target", pa.float64()),
        # Tokens over the baseline's: below 1 is cheaper.
        pa.field("ratio", pa.float64()),
        pa.field("low_ratio", pa.float64()),
        pa.field("high_ratio", pa.float64()),
        # Adjusted by Holm.
        pa.field("p_value", pa.float64()),
        pa.field("verdict", pa.string()),
        # What a dollar above and below was taken from; null where no price was given.
        pa.field("price", pa.string()),
        # All trials of the candidate.
        pa.field("num_failed", pa.int64(), nullable=False),
        pa.field("device_hours_spent", pa.float64(), nullable=False),
        pa.field("usd_spent", pa.float64()),
        # By source.
        pa.field("weights", _BY_SOURCE, nullable=False),
        pa.field("epochs", _BY_SOURCE, nullable=False),
    ]
)
"""One row a candidate, the baseline first."""

CURVES = pa.schema(
    [
        pa.field("trial", pa.string(), nullable=False),
        pa.field("candidate", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("size", pa.string(), nullable=False),
        pa.field("annealed", pa.bool_(), nullable=False),
        pa.field("tokens", pa.int64(), nullable=False),
        # Nats a token, domains weighed.
        pa.field("loss", pa.float64(), nullable=False),
        # By source.
        pa.field("losses", _BY_SOURCE, nullable=False),
    ]
)
"""One row a reading of a trial, trials in the order of the outcome, readings in that of tokens."""


def candidates_table(found: Outcome, price: Price | None) -> pa.Table:
    """A table of `CANDIDATES`.

    Args:
        found: A comparison.
        price: Of a device; None leaves dollars out.
    """
    return pa.Table.from_pylist([_candidate(found, row, price) for row in found.rows], CANDIDATES)


def _candidate(found: Outcome, row: Row, price: Price | None) -> dict[str, Any]:
    whole = {
        "comparison": found.plan["fingerprint"],
        "candidate": row.candidate,
        "corpus": row.corpus,
        "state": row.state,
        "why": row.why,
        "price": str(price) if price else None,
        "num_failed": row.num_failed,
        "device_hours_spent": row.device_hours,
        "usd_spent": usd(row.device_hours, price),
        "weights": list(row.weights.items()),
        "epochs": list(row.epochs.items()),
    }
    read = row.headline
    if read is None:
        return whole
    described, ratio = read.described, read.ratio
    target = found.annealed_target if row.annealed else found.target
    hours = device_hours_to(described.mean_tokens, found)
    return whole | {
        "schedule": "annealed" if row.annealed else "constant",
        "seeds": read.seeds,
        "fresh": read.fresh,
        "target_loss": target["loss"] if target else None,
        "tokens_to_target": described.mean_tokens,
        "low_tokens": described.low_tokens,
        "high_tokens": described.high_tokens,
        "confidence": described.confidence,
        "num_reached": described.num_reached,
        "num_runs": described.num_runs,
        "device_hours_to_target": hours,
        "usd_to_target": usd(hours, price),
        "ratio": ratio.ratio if ratio else None,
        "low_ratio": ratio.low if ratio else None,
        "high_ratio": ratio.high if ratio else None,
        "p_value": read.p_value,
        "verdict": read.verdict,
    }


def curves_table(found: Outcome) -> pa.Table:
    """A table of `CURVES`."""
    rows = [
        {
            "trial": name_of(trial),
            "candidate": trial.candidate,
            "seed": trial.seed,
            "size": trial.size,
            "annealed": trial.annealed,
            "tokens": tokens,
            "loss": loss,
            "losses": list(trial.losses[tokens].items()),
        }
        for trial in found.trials
        for tokens, loss in losses_of(found, trial).items()
    ]
    return pa.Table.from_pylist(rows, CURVES)


def runs_table(found: Outcome, corpus: str) -> pa.Table:
    """Whole trials of the deciding proxy on one corpus, as `Regression` of `dataeff.mixers` reads them.

    Columns `weight:SOURCE` and `loss:DOMAIN`, nats a token at the full budget and a constant rate; a row a trial.
    """
    plan, size = found.plan, list(found.plan["proxies"])[-1]
    sources = list(plan["supply"][corpus])
    rows: list[dict[str, Any]] = []
    for trial in found.trials:
        entry = plan["candidates"][trial.candidate]
        losses = trial.losses.get(plan["budget_tokens"])
        if entry["corpus"] != corpus or trial.size != size or trial.annealed or trial.failure or losses is None:
            continue
        weights = {f"weight:{name}": float(entry["weights"][name]) for name in sources}
        domains = {f"loss:{name}": losses[name] for name, weight in plan["domains"].items() if weight}
        rows.append({"candidate": trial.candidate, "seed": trial.seed, **weights, **domains})
    return pa.Table.from_pylist(rows)


def write_tables(found: Outcome, folder: Path, price: Price | None) -> tuple[Path, ...]:
    """Write all tables as Parquet and as CSV, where what is by source has a column a source.

    A file `runs-CORPUS` is what a surrogate is fitted to: see `runs_table`.

    Returns:
        The files. All are written before any appears under its name.

    Raises:
        StorageError: The disk is full or refuses; what was there stays.
    """
    tables = {"candidates": candidates_table(found, price), "curves": curves_table(found)}
    tables |= {f"runs-{corpus}": runs for corpus in found.plan["supply"] if (runs := runs_table(found, corpus))}
    paths = []
    with ExitStack() as stack:
        for name, table in tables.items():
            for kind in ("parquet", "csv"):
                paths.append(folder / f"{name}.{kind}")
                sink = stack.enter_context(committed(paths[-1]))
                if kind == "parquet":
                    pq.write_table(table, sink)
                else:
                    pc.write_csv(_flat(table), sink)
    return tuple(paths)


def _flat(table: pa.Table) -> pa.Table:
    """Text and numbers only: a column a source for what is by source, and seeds with spaces between."""
    columns: dict[str, pa.Array] = {}
    for field in table.schema:
        values = table[field.name].to_pylist()
        if pa.types.is_map(field.type):
            rows = [dict(value) for value in values]
            for source in dict.fromkeys(name for row in rows for name in row):
                columns[f"{field.name}.{source}"] = pa.array([row.get(source) for row in rows], pa.float64())
        elif pa.types.is_list(field.type):
            texts = [None if value is None else " ".join(map(str, value)) for value in values]
            columns[field.name] = pa.array(texts, pa.string())
        else:
            columns[field.name] = table[field.name]
    return pa.table(columns)


def name_of(trial: Trial) -> str:
    """What tells it from all others of its comparison; its folder, from that of all trials."""
    return f"{trial.size}/{trial.candidate}/{trial.folder.name}"


def losses_of(found: Outcome, trial: Trial) -> dict[int, float]:
    """Nats a token, domains weighed, by tokens in rising order."""
    return {tokens: aggregate(trial.losses[tokens], found.plan["domains"]) for tokens in sorted(trial.losses)}


def ended(found: Outcome, trial: Trial) -> Ended:
    """How far a trial came."""
    if trial.failure:
        return "failed"
    goal = found.plan["budget_tokens"]
    if trial.annealed:
        goal = int(trial.folder.name.rpartition("-")[2]) * found.plan["step_tokens"]
    if max(trial.losses, default=0) >= goal:
        return "complete"
    states: Mapping[str, str] = {row.candidate: row.state for row in found.rows}
    return "stopped" if states[trial.candidate] in ("stopped", "failed") else "paused"


def shown(text: str) -> str:
    """Text without the names and passwords that may be in its URLs."""
    return re.sub(r"://[^/@\s]*@", "://", text)


def span_ns(trial: Trial) -> tuple[int, int] | None:
    """Unix time when it started and when it was last seen; None where it kept no ledger."""
    windows, _ = read_ledger(trial.folder / FILE)
    if not windows:
        return None
    return min(window.start_ns for window in windows), max(window.stop_ns for window in windows)
