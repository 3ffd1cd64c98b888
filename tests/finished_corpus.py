"""Finished output directories made to order, file by file, for what a small pipeline would not produce."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dataeff import manifest
from dataeff.filters import Bounds
from dataeff.manifest import FileRecord, committed
from dataeff.stages.documents import REJECTED
from dataeff.stages.survivors import CLUSTERS, REMOVALS

HOSTILE = (
    "<script>window.HACKED=1</script> </script><img src=x onerror='window.HACKED=2'> {{ 7*7 }} $$x^2$$ [bold red]b[/] "
    "nul\x00 esc\x1b[31mred\x1b]0;title\x07 csi\x9b2J bell\x07 del\x7f rlo\u202eabc\u202c "
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u2028 zero\ufeff a\u0301 \r\n"
)


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document; `fails` is the rule that it failed first, `copy_of` the number of the kept one it repeats."""

    id: str
    text: str
    source: str = "web"
    signals: Mapping[str, float] = field(default_factory=dict)
    copy_of: int | None = None
    jaccard: float = 1.0


def write(
    out: Path,
    parts: Sequence[Sequence[Document]],
    bounds: Mapping[str, Bounds] | None = None,
    rejected: Sequence[Mapping[str, Any]] = (),
    **changes: Any,
) -> Path:
    """Write a directory as a run leaves it; `changes` replace entries of the manifest.

    `copy_of` counts documents over all parts, from 0, as `(part << 32) | row` does not.
    """
    bounds = dict(bounds or {})
    names = [(part, row) for part, documents in enumerate(parts) for row in range(len(documents))]
    everything = [parts[part][row] for part, row in names]
    removals, clusters = _duplicates(everything, [part << 32 | row for part, row in names])
    funnel = _empty_funnel(everything)
    for number, documents in enumerate(parts):
        verdict = np.array([_verdict(document, bounds) for document in documents], np.int16)
        kept = (verdict < 0) & np.array([document.copy_of is None for document in documents], bool)
        _write_part(out, f"part-{number:06d}", documents, bounds, verdict, kept)
        _count(funnel, documents, list(bounds), verdict, kept)
    manifest.write(out / "documents" / "_manifest.json", {"parts": [f"part-{n:06d}" for n in range(len(parts))]})
    pq.write_table(pa.Table.from_pylist(removals, REMOVALS), out / "removals.parquet")
    pq.write_table(pa.Table.from_pylist(clusters, CLUSTERS), out / "clusters.parquet")
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rejected], REJECTED), out / "rejected.parquet")
    funnel["rejected"] = {row["reason"]: 1 for row in rejected}
    (out / ".dataeff").write_text("")
    stated = {rule: {"low": float(passes.low), "high": float(passes.high)} for rule, passes in bounds.items()}
    content = {
        "version": 1,
        "fingerprint": "0" * 32,
        "stages": [{"class": "Read"}, {"class": "Dedup"}],
        "seed": 0,
        "unit": "bytes",
        "recipe": {"name": "made_to_order", "options": {}},
        "bounds": manifest.canonical(stated),
        "skipped_comparisons": 0,
        "mixture": None,
        "shards": {},
        "funnel": funnel,
    }
    manifest.write(out / "manifest.json", {**content, **changes})
    return out


def mixture(tokens: Mapping[str, int], unreachable: int = 0) -> dict[str, Any]:
    """An even mixture in which the smallest source is at its cap."""
    smallest = min(tokens, key=lambda source: tokens[source])
    sources = {
        source: {
            "available_tokens": count,
            "target_share": 1 / len(tokens),
            "use_tokens": count,
            "epochs": 1.0,
            "realised_share": count / sum(tokens.values()),
            "capped": source == smallest,
        }
        for source, count in tokens.items()
    }
    used = sum(tokens.values())
    return {
        "budget_tokens": used + unreachable,
        "max_epochs": 4.0,
        "sources": sources,
        "use_tokens": used,
        "unreachable_tokens": unreachable,
    }


def log(out: Path, *entries: tuple[str, float, float, int], run: str = "a") -> None:
    """Append steps (name, wall seconds, CPU seconds, bytes) to the run log."""
    with (out / "run_log.jsonl").open("a") as file:
        for step, wall_s, cpu_s, num_bytes in entries:
            entry = {"run": run, "step": step, "tasks": 1, "reused": 0, "wall_s": wall_s, "cpu_s": cpu_s}
            file.write(json.dumps({**entry, "bytes": num_bytes}) + "\n")


def _verdict(document: Document, bounds: Mapping[str, Bounds]) -> int:
    for number, (rule, passes) in enumerate(bounds.items()):
        value = document.signals.get(rule, math.nan)
        if value < passes.low or value > passes.high:
            return number
    return -1


def _write_part(
    out: Path, name: str, documents: Sequence[Document], bounds: Mapping[str, Bounds], verdict: Any, kept: Any
) -> None:
    columns: dict[str, Any] = {
        "id": pa.array([document.id for document in documents], pa.string()),
        "source": pa.array([document.source for document in documents], pa.string()),
        "text_bytes": pa.array([len(document.text.encode()) for document in documents], pa.int64()),
    }
    for rule in bounds:
        columns[rule] = pa.array([document.signals.get(rule, math.nan) for document in documents], pa.float64())
    records: dict[str, FileRecord] = {}
    table = pa.table(columns)
    path = out / "documents" / f"{name}.columns.arrow"
    with committed(path, records) as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    texts = pa.table({"text": pa.array([document.text for document in documents], pa.large_string())})
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    batches = texts.to_batches(max_chunksize=7)
    path = out / "documents" / f"{name}.text.arrow"
    with committed(path, records) as sink, pa.ipc.new_file(sink, texts.schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    facts = {"text_bytes": {}, "batch_rows": [batch.num_rows for batch in batches]}
    manifest.write(out / "documents" / "_tasks" / f"{name}.json", {"fingerprint": "", "files": {}, "facts": facts})
    for step, array in (("verdicts", verdict), ("survivors", kept)):
        with committed(out / step / f"{name}.npy") as sink:
            np.lib.format.write_array(sink, array, allow_pickle=False)


def _empty_funnel(documents: Sequence[Document]) -> dict[str, Any]:
    sources = sorted({document.source for document in documents})
    amounts = {
        name: {source: {"documents": 0, "bytes": 0} for source in sources} for name in ("read", "duplicates", "kept")
    }
    return {**amounts, "dropped": {source: {} for source in sources}, "newlines": {}, "edited": {}, "rejected": {}}


def _count(funnel: dict[str, Any], documents: Sequence[Document], rules: list[str], verdict: Any, kept: Any) -> None:
    for document, number, stays in zip(documents, verdict.tolist(), kept.tolist(), strict=True):
        if number >= 0:
            fate = funnel["dropped"][document.source].setdefault(rules[number], {"documents": 0, "bytes": 0})
        else:
            fate = funnel["kept" if stays else "duplicates"][document.source]
        for entry in (funnel["read"][document.source], fate):
            entry["documents"] += 1
            entry["bytes"] += len(document.text.encode())


def _duplicates(documents: Sequence[Document], docs: Sequence[int]) -> tuple[list[Any], list[Any]]:
    removals, clusters, heads = [], [], set()
    for place, document in enumerate(documents):
        if document.copy_of is None:
            continue
        kept = documents[document.copy_of]
        heads.add(document.copy_of)
        removals.append(
            {
                "removed_id": document.id,
                "survivor_id": kept.id,
                "jaccard": document.jaccard,
                "containment": document.jaccard,
                "cluster": docs[document.copy_of],
                "removed_source": document.source,
                "survivor_source": kept.source,
                "removed_doc": docs[place],
                "survivor_doc": docs[document.copy_of],
            }
        )
    for place, document in enumerate(documents):
        cluster = place if place in heads else document.copy_of
        if cluster is not None:
            own = {"doc": docs[place], "id": document.id, "source": document.source}
            clusters.append({"cluster": docs[cluster], **own, "kept": document.copy_of is None})
    return removals, clusters
