"""The second step: judge stored signals. A changed threshold starts here and reads no text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataeff import manifest
from dataeff.filters import Bounds
from dataeff.manifest import FileRecord, committed
from dataeff.stages.documents import StoredPart
from dataeff.stages.filter import Filter, judge, signal_names
from dataeff.stages.tasks import Context, Outcome, Task, commit_step, run_step

STEP = "verdicts"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Which rule each document failed first."""

    paths: tuple[Path, ...]
    """A file a part: the number of the rule that each document failed first, or -1; int16, shape (rows,)."""
    digests: tuple[str, ...]
    bounds: dict[str, Bounds]
    """What passes, by rule `filter.signal`, in order of judgement."""
    dropped: dict[str, dict[str, tuple[int, int]]]
    """(documents, bytes) that failed, by source and rule."""


def run(context: Context, store: list[StoredPart], filters: tuple[Filter, ...]) -> Verdicts:
    """Judge all documents."""
    bounds = signal_names(filters)
    plain = {name: asdict(passes) for name, passes in bounds.items()}
    tasks = [
        Task(
            name=part.name,
            fingerprint=manifest.fingerprint(VERSION, plain, part.digest),
            arguments=(part, bounds),
        )
        for part in store
    ]
    outcomes = run_step(context, STEP, tasks, _judge_part)
    commit_step(context, STEP, {"version": VERSION, "bounds": manifest.canonical(plain)})
    return Verdicts(
        paths=tuple(context.out / STEP / f"{part.name}.npy" for part in store),
        digests=tuple(outcome.digest for outcome in outcomes),
        bounds=bounds,
        dropped=_dropped(outcomes),
    )


def _judge_part(folder: Path, arguments: tuple[StoredPart, dict[str, Bounds]]) -> Outcome:
    part, bounds = arguments
    columns = part.columns()
    signals = {name: columns.column(name).to_numpy() for name in bounds}
    verdict = judge(signals, bounds, columns.num_rows)
    records: dict[str, FileRecord] = {}
    with committed(folder / f"{part.name}.npy", records) as sink:
        np.lib.format.write_array(sink, verdict, allow_pickle=False)
    return Outcome(files=records, facts=_counts(columns, verdict, tuple(bounds)))


def _counts(columns: pa.Table, verdict: npt.NDArray[np.int16], rules: tuple[str, ...]) -> dict[str, Any]:
    """Documents and bytes that failed, by source and rule."""
    failed = verdict >= 0
    chosen = columns.select(["source", "text_bytes"]).filter(pa.array(failed))
    named = chosen.append_column("rule", pa.array(rules, pa.string()).take(pa.array(verdict[failed])))
    groups = named.group_by(["source", "rule"]).aggregate([([], "count_all"), ("text_bytes", "sum")])
    found: dict[str, dict[str, list[int]]] = {}
    for row in sorted(groups.to_pylist(), key=lambda row: (row["source"], row["rule"])):
        found.setdefault(row["source"], {})[row["rule"]] = [row["count_all"], row["text_bytes_sum"]]
    return {"dropped": found}


def _dropped(outcomes: list[Outcome]) -> dict[str, dict[str, tuple[int, int]]]:
    total: dict[str, dict[str, tuple[int, int]]] = {}
    for outcome in outcomes:
        for source, rules in outcome.facts["dropped"].items():
            mine = total.setdefault(source, {})
            for rule, (documents, num_bytes) in rules.items():
                before = mine.get(rule, (0, 0))
                mine[rule] = (before[0] + documents, before[1] + num_bytes)
    return {source: total[source] for source in sorted(total)}
