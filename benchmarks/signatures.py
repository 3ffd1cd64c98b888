"""Bytes to MinHash signatures on one core: word 5-grams, 128 permutations, ours beside five peers."""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import corpora, peer_signatures
from benchmarks.harness import BenchmarkError, Figure, Report, medians, say
from benchmarks.peers import REQUIREMENTS, Worker, interpreter

ASCII = ("cpython_stdlib", "linux_doc", "novels", "scancode", "sotu", "stacks")
ROUNDS = 5
_SAMPLES_MB = {"ours": 64.0, "gaoya": 16.0, "rensa": 16.0, "datasketch": 2.0, "datatrove": 1.0}
_TIMES = {"gaoya": 8, "rensa": 20, "datasketch": 40, "datatrove": 100}
_WORK = {
    "gaoya": "text to its index in Rust",
    "rensa": "token sets in Python, full-set digests",
    "datasketch": "tokens in Python, update_batch",
    "datatrove": "its signature step, default English tokenizer",
}
_PAIRS = 150


def run() -> Report:
    """Measure all contestants on the mostly-ASCII set, and ours on the CJK-heavy one."""
    english = corpora.texts(*ASCII)
    cjk = corpora.texts("xquad", "debian_handbook", "manpages", languages=corpora.CJK)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        names = ["ours", *REQUIREMENTS]
        workers = {}
        for name in names:
            python = Path(sys.executable) if name == "ours" else interpreter(name)
            workers[name] = stack.enter_context(Worker(python, "peer_signatures.py", name))
        _check_parity(workers, Path(folder))
        samples = {name: _sample(english, _SAMPLES_MB[name], Path(folder) / f"{name}.json") for name in names}
        samples["ours, CJK-heavy"] = _sample(cjk, 64.0, Path(folder) / "cjk.json")
        say("timing")

        def once(name: str) -> float:
            return float(workers[name.partition(",")[0]].ask(texts=str(samples[name][0]))["seconds"])

        for name in samples:
            once(name)
        seconds = medians({name: lambda name=name: once(name) for name in samples}, ROUNDS)
    speed = {name: samples[name][1] / seconds[name] for name in samples}
    figures = [
        Figure(name="ours, mostly ASCII", value=speed["ours"], unit="MB/s", at_least=250),
        Figure(name="ours, CJK-heavy", value=speed["ours, CJK-heavy"], unit="MB/s", at_least=80),
    ]
    for name, times in _TIMES.items():
        figures.append(Figure(name=name, value=speed[name], unit="MB/s", note=_WORK[name]))
        figures.append(Figure(name=f"ours / {name}", value=speed["ours"] / speed[name], unit="times", at_least=times))
    return Report(
        name="signatures",
        figures=tuple(figures),
        notes=(
            f"medians of {ROUNDS} interleaved rounds, each contestant in its own process on one core",
            "ours takes UTF-8 in Arrow buffers and normalises (NFC, full case fold); peers take Python strings",
            "slow peers take a smaller seeded sample of the same documents",
        ),
        versions={
            line.partition("==")[0]: line.partition("==")[2] for lines in REQUIREMENTS.values() for line in lines[:1]
        },
    )


def _sample(text: pa.Array, megabytes: float, path: Path) -> tuple[Path, float]:
    """A seeded sample of documents as a JSON file, and its size in MB."""
    order = np.random.default_rng(7).permutation(len(text))
    sizes = np.asarray(pc.binary_length(text))[order]
    chosen = order[: int(np.searchsorted(np.cumsum(sizes), megabytes * 1e6)) + 1]
    taken = text.take(pa.array(chosen))
    path.write_text(json.dumps(taken.to_pylist(), ensure_ascii=False), encoding="utf-8")
    return path, corpora.size_mb(taken)


def _check_parity(workers: dict[str, Worker], folder: Path) -> None:
    """Every contestant estimates the similarity of the same known pairs, within the error of 128 permutations."""
    rng = random.Random(3)
    source = [text for text in corpora.texts("sotu").to_pylist() if text.isascii()]
    texts: list[str] = []
    truth: list[float] = []
    for _ in range(_PAIRS):
        words = rng.choice(source).split()
        start = rng.randrange(max(1, len(words) - 400))
        mine = words[start : start + 400]
        other = list(mine)
        for place in rng.sample(range(len(other)), 4):
            other[place] = "changed"
        pair = [" ".join(mine), " ".join(other)]
        texts += pair
        a, b = (set(peer_signatures.word_ngrams(text)) for text in pair)
        truth.append(len(a & b) / len(a | b))
    path = folder / "parity.json"
    path.write_text(json.dumps(texts))
    for name, worker in workers.items():
        equal = worker.ask(texts=str(path), parity=True)["equal"]
        if name == "gaoya":
            found = statistics.mean(equal)
            if found < 0.95:
                raise BenchmarkError(
                    f"parity: gaoya finds {found:.0%} of pairs at similarity {min(truth):.2f} and above"
                )
            continue
        error = statistics.mean(guess - true for guess, true in zip(equal, truth, strict=True))
        if abs(error) > 0.02:
            raise BenchmarkError(f"parity: {name} is {error:+.3f} off on average over {_PAIRS} known pairs")
