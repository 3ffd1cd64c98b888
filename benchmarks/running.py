"""Run a pipeline as a benchmark does: on two threads of this process, without a progress bar."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from dataeff.engine import Engine
from dataeff.pipeline import Pipeline, run
from dataeff.stages.tasks import Context

THREADS = 2


class _Nobody:
    def started(self, step: str, num_tasks: int, num_bytes: int) -> None:
        """Nobody watches."""

    def advanced(self, step: str, num_bytes: int) -> None:
        """Nobody watches."""

    def finished(self, step: str, num_reused: int) -> None:
        """Nobody watches."""


def run_pipeline(pipeline: Pipeline, out: Path) -> tuple[float, dict[str, Any]]:
    """Seconds from the start of the engine to the committed corpus, and its manifest."""
    began_s = time.perf_counter()
    with Engine(threads=THREADS) as engine:
        content = run(pipeline, Context(out=out, engine=engine, observer=_Nobody(), seed=pipeline.seed))
    return time.perf_counter() - began_s, content
