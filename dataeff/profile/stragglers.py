"""Which rank holds up the others, and which only wait for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataeff.arrow import F64
from dataeff.profile.stalls import column, own_ns
from dataeff.steps import RunRecord

SLOW_SCORE = 0.75
"""A rank whose own work takes so much longer than the fastest rank's that their ratio is below this is a straggler;
NVIDIA Resiliency Extension's threshold for section scores."""
VISIBLE_SHARE, CRITICAL_SHARE = 0.10, 0.20
"""What the others wait for a rank, over a step, from where it is reported, and is critical: TraceML's thresholds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimes:
    """Median times of one rank in a steady step."""

    rank: int
    data_s: float
    """Waiting for its own data."""
    compute_s: float
    """Neither waiting for data nor synchronising."""
    sync_s: float
    """In synchronisations, which is where it waits for the others."""
    score: float
    """The shortest own time of any rank over its own, in (0, 1]: 1 is the fastest."""
    role: str
    """`culprit`, `victim`, or empty where it is neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stragglers:
    """The ranks of a run side by side."""

    ranks: tuple[RankTimes, ...]
    culprit: int | None
    """The rank that the others wait for."""
    because: str
    """`data` or `compute`: what it takes longer for than the others; empty without a culprit."""
    waiting_share: float
    """Of a step, what the rank that waits most waits longer than the one that waits least."""
    critical: bool
    charged_s: float
    """Waiting for data, charged to all: the longest stall of any rank in a step, times the number of ranks."""
    sentence: str


def stragglers(record: RunRecord) -> Stragglers:
    """Tell culprit from victims.

    Where ranks synchronise in every step, all steps take the same time: a rank that is late shows as waiting on the
    others. So the culprit is the rank with the longest time of its own, data and compute, and it synchronises
    shortest; the victims synchronise longer.
    """
    rows = {}
    for rank, table in record.steps.items():
        steady = table.column("steady").to_numpy()
        if not steady.any():
            continue
        spent, sync = own_ns(table)[steady], column(table, "sync_ns")[steady]
        wait = np.minimum(column(table, "wait_ns")[steady], spent)
        parts = (spent, wait, np.maximum(spent - wait - sync, 0), sync)
        rows[rank] = np.array([np.median(part) for part in parts]) / 1e9
    charged = _charged_s(record)
    if len(rows) < 2:
        only = tuple(_times(rank, row, 1.0, "") for rank, row in rows.items())
        return _nobody(only, charged, "one rank: there is nobody to wait for")
    own = {rank: max(float(row[1] + row[2]), 1e-12) for rank, row in rows.items()}
    scores = {rank: min(own.values()) / taken for rank, taken in own.items()}
    culprit = min(scores, key=scores.__getitem__)
    syncs = {rank: float(row[3]) for rank, row in rows.items()}
    victim = max(syncs, key=syncs.__getitem__)
    visible = (syncs[victim] - syncs[culprit]) / float(rows[victim][0])
    if scores[culprit] >= SLOW_SCORE and visible < VISIBLE_SHARE:
        even = tuple(_times(rank, row, scores[rank], "") for rank, row in rows.items())
        return _nobody(even, charged, "no rank holds up the others", visible)
    rest = [rank for rank in rows if rank != culprit]
    excess = [float(rows[culprit][part] - np.median([rows[rank][part] for rank in rest])) for part in (1, 2)]
    because = "data" if excess[0] >= excess[1] else "compute"
    held = [rank for rank in rest if (syncs[rank] - syncs[culprit]) / float(rows[rank][0]) >= VISIBLE_SHARE]
    roles = {culprit: "culprit", **dict.fromkeys(held, "victim")}
    longer = "waits for its data" if because == "data" else "computes"
    return Stragglers(
        ranks=tuple(_times(rank, row, scores[rank], roles.get(rank, "")) for rank, row in rows.items()),
        culprit=culprit,
        because=because,
        waiting_share=max(visible, 0.0),
        critical=visible >= CRITICAL_SHARE,
        charged_s=charged,
        sentence=(
            f"rank {culprit} {longer} {1e3 * max(excess):.3g} ms a step longer than the others"
            + (f", and rank {victim} waits {100 * visible:.0f} % of its step for it" if visible > 0 else "")
        ),
    )


def _times(rank: int, row: F64, score: float, role: str) -> RankTimes:
    return RankTimes(
        rank=rank, data_s=float(row[1]), compute_s=float(row[2]), sync_s=float(row[3]), score=score, role=role
    )


def _nobody(ranks: tuple[RankTimes, ...], charged: float, sentence: str, visible: float = 0.0) -> Stragglers:
    return Stragglers(
        ranks=ranks,
        culprit=None,
        because="",
        waiting_share=max(visible, 0.0),
        critical=False,
        charged_s=charged,
        sentence=sentence,
    )


def _charged_s(record: RunRecord) -> float:
    """The longest stall of any rank in each step, times the ranks."""
    longest: dict[int, int] = {}
    for table in record.steps.values():
        for step, stall in zip(column(table, "step").tolist(), column(table, "stall_ns").tolist(), strict=True):
            longest[step] = max(longest.get(step, 0), stall)
    return sum(longest.values()) * record.info.world / 1e9
