"""How much of a run its device waited for data, why, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataeff.arrow import F64, I64
from dataeff.errors import EmptyError, FormatError, MeasurementError
from dataeff.steps import CAUSES, RunRecord

MIN_STEPS = 20
"""Steady steps that a share needs; what TraceML asks for before it calls a run input-bound."""
NUM_RESAMPLES = 1000
_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A figure with the interval that holds it in 95 of 100 runs like this one."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """What the waiting for data cost, in steady steps and outside them."""

    num_steps: int
    """Steady steps that the shares stand on."""
    share: Interval
    """Of the time of steady steps, what the device had no work since no batch was there. Near 0: leave the loader
    alone."""
    causes: Mapping[str, Interval]
    """The same by cause of `steps.CAUSES`; they sum to `share`."""
    step_s: Interval
    """Mean time of a steady step, without evaluations and checkpoints."""
    steady_s: float
    """Time of all steady steps, which `share` is a share of."""
    unsteady_s: float
    """Time of first steps of an epoch, compilations and so on: charged, but no part of the share."""
    unsteady_stall_s: float
    """Of that, waiting for data: the loader's start."""
    evaluation_s: float
    checkpoint_s: float
    samples_per_s: float
    """Of all ranks, over steady steps."""
    tokens_per_s: float
    charged: tuple[int, ...]
    """The rank that stalled longest in each steady step; all others waited for it."""


def column(table: pa.Table, name: str) -> I64:
    """A column without nulls as an array, shape (rows,)."""
    found: I64 = table.column(name).to_numpy()
    return found


def check(record: RunRecord) -> list[str]:
    """Refuse what cannot be right, and say what is missing.

    Returns:
        Sentences on what is missing, for the reader of the report.

    Raises:
        EmptyError: No rank has a step.
        FormatError: Steps overlap, go backwards, or have causes that do not sum to their stall.
    """
    if not any(table.num_rows for table in record.steps.values()):
        raise EmptyError(
            f"run {record.info.run} has no steps: it ended before its first rows were written; record it for longer, "
            "and let it end by itself or with Ctrl-C"
        )
    for rank, table in record.steps.items():
        _check_rank(rank, table)
    notes = []
    missing = sorted(set(range(record.info.world)) - set(record.steps))
    if missing:
        notes.append(
            f"{_ranks(missing)} of {record.info.world} left no steps, so what they waited for is not charged: copy "
            "their files from steps/ and batches/ on their machines beside the others"
        )
    lengths = {rank: table.num_rows for rank, table in record.steps.items()}
    if len(set(lengths.values())) > 1:
        short = min(lengths, key=lengths.__getitem__)
        notes.append(
            f"rank {short} stops after {lengths[short]} of {max(lengths.values())} steps: it was cut short, or died"
        )
    return notes


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _check_rank(rank: int, table: pa.Table) -> None:
    start, stop, step = column(table, "start_ns"), column(table, "stop_ns"), column(table, "step")
    again = "two runs wrote into one directory, or the clock was set: record the run again, into an empty one"
    if (bad := np.flatnonzero(stop < start)).size:
        raise FormatError(f"step {step[bad[0]]} of rank {rank} ends before it starts; {again}")
    if (bad := np.flatnonzero(np.diff(step) <= 0)).size:
        raise FormatError(f"step {step[bad[0] + 1]} of rank {rank} comes after step {step[bad[0]]}; {again}")
    if (bad := np.flatnonzero(start[1:] < stop[:-1])).size:
        first = bad[0]
        raise FormatError(
            f"step {step[first + 1]} of rank {rank} starts {(stop[first] - start[first + 1]) / 1e6:.3f} ms before "
            f"step {step[first]} ends; {again}"
        )
    causes = np.sum([column(table, f"stall_{cause}_ns") for cause in CAUSES], axis=0)
    if (bad := np.flatnonzero(np.abs(causes - column(table, "stall_ns")) > len(CAUSES))).size:
        raise FormatError(
            f"step {step[bad[0]]} of rank {rank} stalls {column(table, 'stall_ns')[bad[0]]} ns, but its causes sum to "
            f"{causes[bad[0]]} ns: whatever wrote it is at fault; record the run with `dataeff profile`"
        )


def own_ns(table: pa.Table) -> I64:
    """Time of each step without evaluations and checkpoints, shape (steps,)."""
    spent = column(table, "stop_ns") - column(table, "start_ns")
    own: I64 = np.maximum(spent - column(table, "evaluation_ns") - column(table, "checkpoint_ns"), 1)
    return own


def measure(record: RunRecord, *, seed: int = 0) -> Stalls:
    """Stall share, its causes, and what lies outside steady steps.

    In each step the rank that stalled longest counts, since the others wait for it. The interval is a moving-block
    bootstrap over steps: blocks of about the cube root of their number, drawn with replacement `NUM_RESAMPLES` times,
    so that stalls that come in bursts are not taken for independent ones.

    Raises:
        MeasurementError: There are fewer than `MIN_STEPS` steady steps.
    """
    common, places = _common_steps(record)
    tables = {rank: table for rank, table in record.steps.items() if table.num_rows}
    steady = np.all([table.column("steady").to_numpy()[places[rank]] for rank, table in tables.items()], axis=0)
    if steady.sum() < MIN_STEPS:
        raise MeasurementError(
            f"run {record.info.run} has {int(steady.sum())} steady steps (of {len(common)} that every rank has); a "
            f"share needs {MIN_STEPS} or more: record the run for longer"
        )
    ranks = np.array(list(tables))
    stalls = np.array([column(table, "stall_ns")[places[rank]][steady] for rank, table in tables.items()])
    chosen = stalls.argmax(axis=0)
    each = np.arange(len(chosen))

    def charged(values: list[I64]) -> F64:
        taken: F64 = np.array(values)[chosen, each].astype(np.float64)
        return taken

    spent = charged([own_ns(table)[places[rank]][steady] for rank, table in tables.items()])
    by_cause = [
        charged([column(table, f"stall_{cause}_ns")[places[rank]][steady] for rank, table in tables.items()])
        for cause in CAUSES
    ]
    stalled = np.sum(by_cause, axis=0)
    means = block_means(np.array([spent, stalled, *by_cause]), seed=seed)
    shares = means[:, 1:] / means[:, :1]
    whole_s = spent.sum() / 1e9
    longest = tables[int(ranks[np.bincount(chosen, minlength=len(ranks)).argmax()])]
    outside = ~longest.column("steady").to_numpy()
    return Stalls(
        num_steps=int(steady.sum()),
        share=interval(float(stalled.sum() / spent.sum()), shares[:, 0]),
        causes={
            cause: interval(float(by_cause[place].sum() / spent.sum()), shares[:, 1 + place])
            for place, cause in enumerate(CAUSES)
        },
        step_s=interval(float(spent.mean()) / 1e9, means[:, 0] / 1e9),
        steady_s=whole_s,
        unsteady_s=float(own_ns(longest)[outside].sum()) / 1e9,
        unsteady_stall_s=float(column(longest, "stall_ns")[outside].sum()) / 1e9,
        evaluation_s=float(column(longest, "evaluation_ns").sum()) / 1e9,
        checkpoint_s=float(column(longest, "checkpoint_ns").sum()) / 1e9,
        samples_per_s=_sum(tables, places, steady, "samples") / whole_s,
        tokens_per_s=_sum(tables, places, steady, "tokens") / whole_s,
        charged=tuple(int(rank) for rank in ranks[chosen]),
    )


def _sum(tables: Mapping[int, pa.Table], places: Mapping[int, I64], steady: npt.NDArray[np.bool_], name: str) -> float:
    return float(sum(column(table, name)[places[rank]][steady].sum() for rank, table in tables.items()))


def _common_steps(record: RunRecord) -> tuple[I64, dict[int, I64]]:
    """Steps that every rank has, and where each rank has them."""
    numbers = {rank: column(table, "step") for rank, table in record.steps.items() if table.num_rows}
    common = next(iter(numbers.values()))
    for found in numbers.values():
        common = np.intersect1d(common, found)
    return common, {rank: np.searchsorted(found, common) for rank, found in numbers.items()}


def block_means(values: F64, *, seed: int, num_resamples: int = NUM_RESAMPLES) -> F64:
    """Means of moving-block bootstrap resamples.

    Args:
        values: Series that are resampled together, shape (series, steps).
        seed: Of the draws.
        num_resamples: How many.

    Returns:
        Shape (num_resamples, series).
    """
    steps = values.shape[1]
    length = max(1, min(steps // 4, round(2 * steps ** (1 / 3))))
    sums = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)
    blocks = sums[:, length:] - sums[:, :-length]
    drawn = np.random.default_rng(seed).integers(0, blocks.shape[1], (num_resamples, -(-steps // length)))
    means: F64 = blocks[:, drawn].mean(axis=2).T / length
    return means


def interval(value: float, resampled: F64) -> Interval:
    """A figure with the middle 95 % of what resampling made of it."""
    low, high = np.quantile(resampled, [(1 - _CONFIDENCE) / 2, (1 + _CONFIDENCE) / 2])
    return Interval(value=value, low=float(min(low, value)), high=float(max(high, value)))
