"""The data-constrained scaling law refitted: the published digits, where else the objective is low, and how sure it is.

`--write` as the only argument of `python -m benchmarks.repetition` writes the draws to
`dataeff/efficiency/repetition_draws.py`, from where `dataeff cost` takes the law's own uncertainty.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

import numpy as np

from benchmarks.harness import BenchmarkError, Figure, Report, say
from benchmarks.published_repetition import PUBLISHED, ROOT, RUNS, as_published, grid, reproducible, selected
from dataeff.arrow import F64
from dataeff.efficiency.repetition import ScalingLaw, effective_epochs
from dataeff.efficiency.repetition_draws import DRAWS
from dataeff.efficiency.repetition_fit import (
    ALL,
    RepetitionRun,
    fit_repetition,
    law_draws,
    log_losses,
    misfit,
)

NUM_DRAWS = 199
LEVELS = (0.025, 0.5, 0.975)
FIGURES: dict[str, Callable[[ScalingLaw], float]] = {
    "R_D*": lambda law: law.r_d,
    "four epochs are worth": lambda law: effective_epochs(4, law.r_d),
    "forty epochs are worth": lambda law: effective_epochs(40, law.r_d),
    "0.7 of the tokens, 7e9 parameters, 2e12 tokens": lambda law: law.loss_change(7e9, 2e12, 0.7),
}
"""What is told of the draws."""


def run() -> Report:
    """Reproduce, refit, draw."""
    if not RUNS.is_file():
        raise BenchmarkError("shared/tables/datablations is not beside the checkout; the published runs are there")
    runs = list(selected().values())
    published, figures = ScalingLaw(), []
    why_not = reproducible()
    if not why_not:
        say("repetition: as published, in single precision, 9 starts")
        least = min(as_published(grid()), key=lambda row: row[0])
        for name, value, printed in zip(("R_D*", "R_N*"), least[1:], PUBLISHED, strict=True):
            figures.append(Figure(name=f"{name} as published", value=value, unit="", at_least=printed, at_most=printed))
    laws = {
        "published": published,
        "minimum nearest to the published": fit_repetition(runs, near=True),
        "deepest minimum, the rest held": fit_repetition(runs),
        "deepest minimum, nothing held": fit_repetition(runs, fitted=ALL),
    }
    for name, law in laws.items():
        figures.append(Figure(name=f"objective: {name}", value=misfit(runs, law), unit="", note=_words(law)))
    for name in ("published", "deepest minimum, nothing held"):
        shared = alike(runs, laws[name])
        figures.append(Figure(name=f"variance of errors that runs of a size share: {name}", value=shared, unit="share"))
    say(f"repetition: {NUM_DRAWS} draws")
    drawn = draws(runs)
    for name, of in FIGURES.items():
        new, kept = (np.quantile([of(law) for law in found], LEVELS) for found in (drawn, DRAWS))
        note = f"{new[0]:.4g} to {new[2]:.4g}; published {of(published):.4g}, kept draws {kept[0]:.4g} to {kept[2]:.4g}"
        figures.append(Figure(name=f"median of draws: {name}", value=float(new[1]), unit="", note=note))
        apart = float(np.abs(new / kept - 1).max())
        figures.append(Figure(name=f"draws made now against those kept: {name}", value=apart, unit="", at_most=0.02))
    return Report(
        name="repetition",
        figures=tuple(figures),
        notes=tuple(
            filter(
                None,
                (
                    f"{len(runs)} runs; a draw is a fit of {', '.join(ALL)} (beta = alpha) to as many sizes of model "
                    "as there are, drawn with replacement with all their runs",
                    why_not and f"not compared to the published digits: {why_not}",
                ),
            )
        ),
        versions={"scipy": version("scipy")},
        details={"laws": {name: dataclasses.asdict(law) for name, law in laws.items()}},
    )


def draws(runs: Sequence[RepetitionRun]) -> tuple[ScalingLaw, ...]:
    """Laws of a bootstrap over sizes of model."""
    return law_draws(runs, [run.parameters for run in runs], num_draws=NUM_DRAWS, seed=0)


def alike(runs: Sequence[RepetitionRun], law: ScalingLaw) -> float:
    """Intraclass correlation of the errors of log losses by size of model (one-way analysis of variance)."""
    columns: F64 = np.array([(run.parameters, run.tokens, run.unique_tokens) for run in runs]).T
    errors = log_losses(law, columns) - np.log([run.loss for run in runs])
    # A few losses are far above any law, and would decide a variance alone.
    errors = np.clip(errors, *np.quantile(errors, (0.05, 0.95)))
    groups = [errors[columns[0] == size] for size in np.unique(columns[0])]
    sizes = np.array([len(group) for group in groups])
    between = sum(len(g) * (g.mean() - errors.mean()) ** 2 for g in groups) / (len(groups) - 1)
    within = sum(((g - g.mean()) ** 2).sum() for g in groups) / (len(errors) - len(groups))
    typical = (len(errors) - (sizes**2).sum() / len(errors)) / (len(groups) - 1)
    return float((between - within) / (between + (typical - 1) * within))


def _words(law: ScalingLaw) -> str:
    return f"R_D* {law.r_d:.4f}, R_N* {law.r_n:.4f}, alpha {law.alpha:.4f}, E {math.exp(law.log_e):.3f}"


def write() -> None:
    """Keep the draws."""
    path = ROOT / "dataeff" / "efficiency" / "repetition_draws.py"
    head = path.read_text(encoding="utf-8").partition("_CONSTANTS = (\n")[0]
    rows = [
        f"    ({law.log_a:.5f}, {law.log_b:.5f}, {law.log_e:.5f}, {law.alpha:.6f}, {law.r_d:.4f}, {law.r_n:.4f}),\n"
        for law in draws(list(selected().values()))
    ]
    tail = (
        ")\n"
        "DRAWS = tuple(\n"
        "    ScalingLaw(log_a=log_a, log_b=log_b, log_e=log_e, alpha=alpha, beta=alpha, r_d=r_d, r_n=r_n)\n"
        "    for log_a, log_b, log_e, alpha, r_d, r_n in _CONSTANTS\n"
        ")\n"
        '"""Equally likely laws."""\n'
    )
    path.write_text(f"{head}_CONSTANTS = (\n{''.join(rows)}{tail}", encoding="utf-8")


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    write()
