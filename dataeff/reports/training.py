"""A training run in the terminal: a line every few steps, then what it learned and where its record is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from dataeff.errors import PlanError

if TYPE_CHECKING:
    from dataeff.train.loop import Trained


def run_training(corpus: str, out: Path, shape: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """Train; returns the exit code.

    Raises:
        PlanError: torch is not installed, or an option cannot work.
    """
    try:
        from dataeff.train.loop import Progress, train
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise PlanError("training needs torch, which is not installed: pip install 'dataeff[train]'") from error
    from dataeff.train.settings import TrainSettings

    console = Console(highlight=False)
    settings = TrainSettings(**options)

    def show(progress: Progress) -> None:
        speed = progress.tokens / max(progress.seconds, 1e-9)
        console.print(f"step {progress.step:>6,}  loss {progress.loss:.4f}  {speed:>9,.0f} tokens/s")

    found = train(corpus, out, shape, settings, show)
    if found.rank:
        return _code(found)
    if found.losses:
        table = Table("held out", "loss, nats a token", "perplexity", box=None, pad_edge=False, header_style="bold")
        for name, loss in found.losses.items():
            table.add_row(name, f"{loss:.4f}", f"{math.exp(min(loss, 50)):,.1f}")
        console.print(table)
    if found.end == "preempted":
        console.print(f"stopped after step {found.step:,} with a checkpoint; run the same command again to go on")
    console.print(f"record: {found.record}   next: dataeff diagnose {found.record}", soft_wrap=True)
    return _code(found)


def _code(found: Trained) -> int:
    from dataeff.train.loop import STOPPED

    return STOPPED if found.end == "preempted" else 0
