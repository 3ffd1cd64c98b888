"""Peers: each in an environment of its own, made on demand and kept, and driven in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, Self, cast

from benchmarks.harness import BenchmarkError, say

ENVIRONMENTS = Path(__file__).resolve().parent / ".peers"
REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "gaoya": ("gaoya==0.2.2",),
    "rensa": ("rensa==0.5.0",),
    "datasketch": ("datasketch==2.0.0",),
    "litdata": ("litdata==0.2.76", "torch==2.13.0"),
    "mosaicml-streaming": ("mosaicml-streaming==0.13.0", "torch==2.13.0"),
    "datatrove": ("datatrove==0.10.1", "regex==2026.11.19", "spacy==3.8.18", "tokenizers==0.23.3", "xxhash==3.8.1"),
}
_ONE_CORE = dict.fromkeys(("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def interpreter(name: str) -> Path:
    """The Python of a peer's environment, made first if need be.

    Raises:
        BenchmarkError: The packages cannot be installed.
    """
    python = ENVIRONMENTS / name / "bin" / "python"
    done = ENVIRONMENTS / name / "done"
    wanted = "\n".join(REQUIREMENTS[name])
    if not done.is_file() or done.read_text() != wanted:
        say(f"making the environment of {name} (once)")
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENTS / name)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *REQUIREMENTS[name]]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
            raise BenchmarkError(
                f"the environment of the peer {name} cannot be made; it needs {', '.join(REQUIREMENTS[name])}"
            )
        done.write_text(wanted)
    return python


class Worker:
    """A script in a process of its own on one core, asked for one thing at a time; a context manager.

    The script reads a line of JSON from its standard input and answers with one.
    """

    def __init__(self, python: Path, script: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [python, Path(__file__).resolve().parent / script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **_ONE_CORE},
            preexec_fn=_on_one_core,
        )

    def ask(self, **question: Any) -> dict[str, Any]:
        """Send a question, wait for the answer.

        Raises:
            BenchmarkError: The process ended instead.
        """
        with contextlib.suppress(BrokenPipeError):
            cast("IO[str]", self._process.stdin).write(json.dumps(question) + "\n")
            cast("IO[str]", self._process.stdin).flush()
        answer = cast("IO[str]", self._process.stdout).readline()
        if not answer:
            raise BenchmarkError(f"a contestant ended with code {self._process.wait()} instead of answering {question}")
        return cast("dict[str, Any]", json.loads(answer))

    def __enter__(self) -> Self:
        """The worker itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            cast("IO[str]", self._process.stdin).close()
        self._process.wait()


def _on_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
