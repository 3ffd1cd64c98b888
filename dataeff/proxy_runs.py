"""Proxy runs, which surrogates learn from: what each was trained on, and how well it did.

Columns are sorted by name when a table is read, and names travel with the numbers, so that a cap never meets the wrong
source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dataeff.arrow import F64, I64
from dataeff.errors import FormatError, MeasurementError, PlanError
from dataeff.registry import name_of

if TYPE_CHECKING:
    import pyarrow as pa

_TOLERANCE = 1e-6
_ROUNDED = 0.01
"""Published weights are rounded; a row whose sum is off by less is divided by it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Runs:
    """Proxy runs: what each was trained on, and how well it did."""

    sources: tuple[str, ...]
    domains: tuple[str, ...]
    """Of validation."""
    weights: F64
    """Shares by source, shape (runs, sources)."""
    losses: F64
    """Shape (runs, domains)."""

    def __post_init__(self) -> None:
        check_mixtures(self.weights, len(self.sources))
        if self.losses.shape != (len(self.weights), len(self.domains)):
            raise PlanError(
                f"losses have the shape {self.losses.shape}; {len(self.weights)} runs on {len(self.domains)} domains "
                "need one row a run and one column a domain"
            )

    def only(self, rows: I64) -> Runs:
        """The runs at these positions."""
        return Runs(sources=self.sources, domains=self.domains, weights=self.weights[rows], losses=self.losses[rows])


def check_runs(owner: object, weights: F64, losses: F64, least: int) -> None:
    """See that a surrogate can be fitted.

    Args:
        owner: The surrogate.
        weights: Shape (runs, sources).
        losses: Shape (runs,).
        least: Fewest runs that it needs.

    Raises:
        PlanError: Shapes do not fit, a row is no mixture, or a loss is not finite.
        MeasurementError: There are fewer runs.
    """
    check_mixtures(weights, weights.shape[-1])
    if losses.shape != weights.shape[:1]:
        raise PlanError(f"losses have the shape {losses.shape}; {len(weights)} runs need one loss each")
    if not np.isfinite(losses).all():
        raise PlanError(f"the loss of run {int(np.argmin(np.isfinite(losses)))} is not finite: leave out failed runs")
    if len(losses) < least:
        raise MeasurementError(
            f"{name_of(owner)} has {len(losses)} proxy runs of {weights.shape[1]} sources; it needs {least} or more: "
            "train more proxies"
        )


def check_mixtures(weights: F64, num_sources: int) -> None:
    """See that rows are mixtures: shape (m, num_sources), 0 or more, sums within 1e-6 of 1.

    Raises:
        PlanError: They are not.
    """
    if weights.ndim != 2 or weights.shape[1] != num_sources:
        raise PlanError(f"mixtures have the shape {weights.shape}; it must be (mixtures, {num_sources} sources)")
    wrong = np.flatnonzero(~((weights >= 0).all(1) & (np.abs(weights.sum(1) - 1) <= _TOLERANCE)))
    if len(wrong):
        raise PlanError(
            f"row {int(wrong[0])} is no mixture: its shares sum to {weights[wrong[0]].sum():g} and the least is "
            f"{weights[wrong[0]].min():g}; shares must be 0 or more and sum to 1"
        )


def read_runs(path: Path) -> Runs:
    """Read a table of proxy runs, CSV or Parquet (by the ending `.parquet`), one row a run.

    Columns `weight:SOURCE` hold the share of each source that the run was trained on, columns `loss:DOMAIN` its final
    validation loss; other columns are left alone. Rows whose shares sum to 1 within 0.01 are divided by their sum.

    Returns:
        Sources and domains sorted by name.

    Raises:
        PlanError: There is no such file.
        FormatError: It cannot be read, lacks columns, or a row holds no mixture or no finite loss.
    """
    table = _table(path)
    weights, sources = _columns(path, table, "weight:")
    losses, domains = _columns(path, table, "loss:")
    sums = weights.sum(1)
    for fault, rows in (
        ("a share below 0", np.flatnonzero((weights < 0).any(1))),
        ("shares that do not sum to 1", np.flatnonzero(np.abs(sums - 1) > _ROUNDED)),
    ):
        if len(rows):
            raise FormatError(
                f"{path}, row {int(rows[0]) + 1}: {fault} (sum {sums[rows[0]]:g}); the columns weight:SOURCE of a run "
                "are what it was trained on, 0 or more each and 1 together"
            )
    return Runs(sources=sources, domains=domains, weights=weights / sums[:, None], losses=losses)


def domain_shares(domains: Sequence[str], wanted: Mapping[str, float]) -> F64:
    """Weight of each domain in the aggregate, shape (domains,), summing to 1; all alike if none is wanted.

    Raises:
        PlanError: A wanted domain is not there, a weight is negative or not finite, or all are 0.
    """
    unknown = sorted(set(wanted) - set(domains))
    if unknown:
        raise PlanError(f"no run has a loss on {', '.join(unknown)}; there are {', '.join(domains)}")
    found = np.array([wanted.get(name, 0.0) for name in domains] if wanted else np.ones(len(domains)), np.float64)
    if not (np.isfinite(found).all() and (found >= 0).all() and found.sum() > 0):
        raise PlanError(f"weights of domains are {dict(wanted)!r}; they must be finite, 0 or more, and not all 0")
    shares: F64 = found / found.sum()
    return shares


def _table(path: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    if not path.is_file():
        raise PlanError(f"no table of proxy runs at {path}; give a CSV or Parquet file with one row a run")
    try:
        return pa.parquet.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(f"{path} cannot be read ({error}); it must be CSV, or Parquet named .parquet") from error


def _columns(path: Path, table: pa.Table, prefix: str) -> tuple[F64, tuple[str, ...]]:
    """Columns that begin with `prefix`, sorted, as an array of shape (rows, columns), and their names without it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = sorted(name for name in table.column_names if name.startswith(prefix))
    if not names or len(set(names)) < len(names):
        raise FormatError(
            f"{path} has {'no column' if not names else 'one column twice'} that begins with {prefix!r} among "
            f"{', '.join(table.column_names[:8])}; it needs one named {prefix}NAME for each"
        )
    found = np.empty((table.num_rows, len(names)))
    for place, name in enumerate(names):
        try:
            column = pc.cast(table.column(name), pa.float64())
        except pa.ArrowException as error:
            raise FormatError(f"{path}, column {name!r} does not hold numbers: {error}") from error
        found[:, place] = column.combine_chunks().to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(~np.isfinite(found[:, place]))
        if len(wrong):
            raise FormatError(
                f"{path}, row {int(wrong[0]) + 1}: {name!r} is empty or not finite; leave out runs that failed"
            )
    return found, tuple(name.removeprefix(prefix) for name in names)
