"""Which mixtures a comparison should try next, as surrogates of its finished trials see it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from dataeff.arrow import F64
from dataeff.compare.outcome import Outcome
from dataeff.compare.tables import runs_table
from dataeff.efficiency.mixture_search import Recommendation, candidate_draws, propose, recommend
from dataeff.errors import MeasurementError
from dataeff.mixture_optimum import caps
from dataeff.proxy_runs import Runs, domain_shares
from dataeff.reports.quantities import count
from dataeff.reports.visible import one_line

MAX_EPOCHS = 4.0
MIN_MIXTURES = 5
_DRAWS = 4_000


def print_proposal(found: Outcome, batch: int, console: Console) -> Recommendation:
    """Print the next `batch` mixtures and the predicted optimum, for the corpus with most mixtures.

    Raises:
        MeasurementError: There are fewer than `MIN_MIXTURES` finished mixtures of any corpus.
    """
    corpus, table = max(
        ((name, runs_table(found, name)) for name in found.plan["supply"]), key=lambda entry: _num_mixtures(entry[1])
    )
    if _num_mixtures(table) < MIN_MIXTURES:
        raise MeasurementError(
            f"{_num_mixtures(table)} mixtures of {corpus} were trained to the end; surrogates need {MIN_MIXTURES} or "
            "more: compare more of them, with the screener FullGrid()"
        )
    runs = _runs(table)
    shares = domain_shares(runs.domains, {name: found.plan["domains"][name] for name in runs.domains})
    tokens, budget = found.plan["supply"][corpus], found.plan["horizon_tokens"]
    limits = caps(runs.sources, tokens, budget, MAX_EPOCHS)
    best = recommend(runs, shares, tokens, budget, max_epochs=MAX_EPOCHS)
    drawn = candidate_draws(_prior(runs, tokens), limits, _DRAWS)
    chosen = propose(runs, shares, drawn, batch, surrogate=best.choice.surrogate)
    console.print()
    console.print(_table(runs, best, chosen.weights, chosen.predicted, chosen.std))
    ranks = ", ".join(f"{name} {rank:.2f}" for name, rank in best.choice.spearman.items())
    console.print(
        f"surrogates of {len(runs.losses)} runs of {corpus}, at most {MAX_EPOCHS:g} epochs of a source in "
        f"{count(budget)} tokens; rank correlation on runs left out: {ranks}; their optima differ in "
        f"{100 * best.disagreement_share:.0f} % of training",
        soft_wrap=True,
    )
    console.print("predicted, not measured: train them before you believe it", style="dim")
    return best


def _num_mixtures(table: pa.Table) -> int:
    return len(set(table.column("candidate").to_pylist())) if len(table) else 0


def _runs(table: pa.Table) -> Runs:
    def columns(kind: str) -> tuple[F64, tuple[str, ...]]:
        names = tuple(sorted(name for name in table.column_names if name.startswith(kind)))
        values = np.stack([table.column(name).to_numpy() for name in names], axis=1)
        return values, tuple(name.removeprefix(kind) for name in names)

    weights, sources = columns("weight:")
    losses, domains = columns("loss:")
    return Runs(sources=sources, domains=domains, weights=weights, losses=losses)


def _prior(runs: Runs, tokens: dict[str, int]) -> F64:
    """Shares of tokens to the power a half, as RegMix draws around."""
    roots = np.array([float(tokens.get(name, 0)) ** 0.5 for name in runs.sources])
    shares: F64 = roots / roots.sum()
    return shares


def _table(runs: Runs, best: Recommendation, weights: F64, predicted: F64, std: F64) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("mixture")
    for name in runs.sources:
        table.add_column(one_line(name, 20), justify="right")
    table.add_column("predicted loss", justify="right")
    for name, optimum in best.optima.items():
        shares = [f"{100 * optimum.weights[source]:.1f} %" for source in runs.sources]
        table.add_row(f"best by {name}", *shares, f"{optimum.predicted:.4f} ± {optimum.std:.4f}")
    for number, (row, mean, spread) in enumerate(zip(weights.tolist(), predicted, std, strict=True), 1):
        table.add_row(f"try {number}", *(f"{100 * share:.1f} %" for share in row), f"{mean:.4f} ± {spread:.4f}")
    return table
