"""Whole dedup on two cores: Parquet in to survivors out, every removal proved."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import corpora
from benchmarks.harness import BenchmarkError, Figure, Report, medians
from benchmarks.running import THREADS, run_pipeline
from dataeff import Dedup, Pipeline, Read

ROUNDS = 5


def run() -> Report:
    """Median of whole runs over all corpora; each must remove the same documents."""
    files = corpora.files()
    removed: set[int] = set()
    read_bytes = 0

    def once() -> float:
        nonlocal read_bytes
        with tempfile.TemporaryDirectory() as folder:
            seconds, content = run_pipeline(Pipeline(Read(*map(str, files)), Dedup()), Path(folder) / "out")
        funnel = content["funnel"]
        read_bytes = sum(entry["bytes"] for entry in funnel["read"].values())
        removed.add(sum(entry["documents"] for entry in funnel["duplicates"].values()))
        return seconds

    once()
    seconds = medians({"dedup": once}, ROUNDS)["dedup"]
    if len(removed) > 1:
        raise BenchmarkError(f"parity: runs removed {sorted(removed)} documents; they must all remove the same")
    return Report(
        name="dedup",
        figures=(
            Figure(name="whole dedup", value=read_bytes / 1e6 / seconds, unit="MB/s", at_least=100),
            Figure(name="time", value=seconds, unit="s", note=f"{read_bytes / 1e6:.0f} MB of text"),
            Figure(name="removed", value=removed.pop(), unit="documents"),
        ),
        notes=(
            f"median of {ROUNDS} runs on {THREADS} threads, the start of the engine included; kernels compiled before",
        ),
    )
