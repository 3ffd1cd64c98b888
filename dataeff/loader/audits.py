"""Proof after the fact that every row was served once: each rank writes down what it gave, the audit adds it up."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dataeff.arrow import I64
from dataeff.errors import FormatError, InputError, PlanError
from dataeff.loader.dataset import Share
from dataeff.loader.order import Change, Order
from dataeff.loader.shards import Shards

Span: TypeAlias = tuple[int, int]
"""First position, and one past the last."""
_MULTIPLIERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93))


class AuditLog:
    """Writes one rank's lines: a state wherever it begins or changes, then `[position, rows, digest]` a batch.

    Args:
        folder: Of all ranks and restarts.
        share: Whose lines.
    """

    def __init__(self, folder: Path, share: Share) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"rank-{share.rank:05d}-{time.time_ns():020d}.jsonl"
        self._file = (folder / name).open("ab", buffering=0)

    def state(self, state: Mapping[str, Any]) -> None:
        """From here on, batches are in the order that this state says."""
        self._write({"state": state})

    def batch(self, position: int, row_ids: I64) -> None:
        """A batch that was served: its first position, and its rows."""
        self._write([position, len(row_ids), digest(row_ids)])

    def _write(self, line: Any) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What the logs of all ranks prove."""

    ranks: int
    batches: int
    start: int
    """First position that was served."""
    stop: int
    """One past the last."""
    missing: tuple[Span, ...]
    """Positions between them that nobody served, nor were skipped on purpose."""
    repeated: tuple[Span, ...]
    """Positions that were served more than once. After a restart from a checkpoint these are the steps that were lost
    and done again; without one there must be none."""
    skipped: tuple[Span, ...]
    """Positions that were left out on purpose."""
    wrong: tuple[int, ...]
    """Positions of batches whose rows are not those of the order."""
    torn_lines: int
    """Lines cut off by a kill."""

    @property
    def holds(self) -> bool:
        """Every position once, each with its row."""
        return not (self.missing or self.repeated or self.wrong)


def digest(row_ids: I64) -> str:
    """Of a set of rows, in any order: the sum of their 64-bit hashes, 16 hexadecimal digits."""
    state = row_ids.astype(np.uint64)
    for multiplier in _MULTIPLIERS:
        state = (state ^ state >> np.uint64(29)) * multiplier
        state ^= state >> np.uint64(32)
    return f"{int(state.sum(dtype=np.uint64)):016x}"


def audit(corpus: str | Path, folder: str | Path) -> Audit:
    """Check what was served against the order, which is computed again from the corpus.

    Args:
        corpus: What was loaded.
        folder: `audit` of the loaders.

    Raises:
        InputError: There are no logs.
        FormatError: They are of another corpus.
    """
    shards = Shards(corpus)
    spans: list[Span] = []
    skipped: set[Span] = set()
    wrong, ranks, torn = [], set(), 0
    paths = sorted(Path(folder).glob("rank-*.jsonl"))
    if not paths:
        raise InputError(f"{folder} holds no audit logs: give the folder that was given to Loader(audit=...)")
    for path in paths:
        ranks.add(path.name.split("-")[1])
        order = None
        for line in _lines(path):
            if line is None:
                torn += 1
            elif isinstance(line, dict):
                order = _order(shards, line["state"], path)
                skipped |= {(start, stop) for start, stop in line["state"]["skipped"] if stop > start}
            elif order is not None:
                position, count, found = line
                rows = order.rows(position, count)
                if digest(rows.shards << 32 | rows.rows) != found:
                    wrong.append(position)
                spans.append((position, position + count))
    if not spans:
        raise InputError(f"the logs in {folder} hold no batch: iterate over the loader before auditing it")
    missing, repeated = _gaps(sorted(spans), sorted(skipped))
    return Audit(
        ranks=len(ranks),
        batches=len(spans),
        start=min(start for start, _ in spans),
        stop=max(stop for _, stop in spans),
        missing=tuple(missing),
        repeated=tuple(repeated),
        skipped=tuple(sorted(skipped)),
        wrong=tuple(sorted(wrong)),
        torn_lines=torn,
    )


def _lines(path: Path) -> Iterator[Any]:
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            yield None


def _order(shards: Shards, state: Mapping[str, Any], path: Path) -> Order:
    if state["corpus"] != shards.digest:
        raise FormatError(
            f"{path} is of the corpus {state['corpus']}, not of {shards.digest}: give the one it was made with"
        )
    try:
        sources = shards.sources(state["holdout_rows"])
    except PlanError as error:
        raise FormatError(f"{path} does not fit the corpus: {error}") from error
    return Order(
        sources=sources,
        seed=state["seed"],
        schedule=tuple(Change(position=at, weights=tuple(weights)) for at, weights in state["schedule"]),
        rows_per_epoch=state["rows_per_epoch"],
        window_shards=state["window_shards"],
    )


def _gaps(spans: list[Span], skipped: list[Span]) -> tuple[list[Span], list[Span]]:
    """Ranges between the spans that none covers nor skips, and ranges that two cover."""
    missing: list[Span] = []
    repeated: list[Span] = []
    covered = spans[0][0]
    for start, stop in spans:
        if start < covered:
            repeated.append((start, min(stop, covered)))
        at = covered
        while at < start:
            jump = next(((first, last) for first, last in skipped if first <= at < last), None)
            following = min([first for first, _ in skipped if first > at] + [start])
            if jump:
                at = min(jump[1], start)
            else:
                missing.append((at, following))
                at = following
        covered = max(covered, stop)
    return _joined(missing), _joined(repeated)


def _joined(spans: list[Span]) -> list[Span]:
    found: list[Span] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found
