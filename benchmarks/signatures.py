"""Text to MinHash signatures on one core: word 5-grams, 128 permutations, ours beside four peers.

What the seconds of each include, from texts in memory in the form in which the contestant takes them:

- ours: UTF-8 in Arrow buffers; NFC, full case folding, Unicode words, shingle hashes, signatures.
- gaoya: Python strings; lower case, words, 5-grams, signatures, and the insertion into its index, since its Python
  interface has no other way to signatures.
- rensa: Python strings; lower case, `\\w+` words and 5-grams in Python, then its full-set digests.
- datasketch: the same tokens, encoded, then `update_batch`.
- datatrove: Python strings; its simplification, its default English tokenizer (spaCy), hashes and signatures of its
  signature step, without reading and writing.
"""

from __future__ import annotations

import functools
import json
import random
import re
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import corpora, peer_signatures
from benchmarks.harness import BenchmarkError, Figure, Report, say, timings
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
_PAIRS = 300
_MEAN_ERROR = 0.01
"""Most that estimates may be off on average: over four standard errors of so many pairs."""
_SPREAD = 1.25
"""Most that they may be off in spread, in units of what so many permutations give."""


def run() -> Report:
    """Measure all contestants on the mostly-ASCII set, and ours on the CJK-heavy one."""
    english = corpora.texts(*ASCII)
    cjk = corpora.cjk_texts()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        names = ["ours", *_TIMES]
        workers = {}
        for name in names:
            python = Path(sys.executable) if name == "ours" else interpreter(name)
            workers[name] = stack.enter_context(Worker(python, "peer_signatures.py", name))
        _check_parity(workers, Path(folder))
        samples = {name: _sample(english, _SAMPLES_MB[name], Path(folder) / f"{name}.json") for name in names}
        samples["ours, CJK-heavy"] = _sample(cjk, 64.0, Path(folder) / "cjk.json")
        say("timing")

        first: dict[str, list[float]] = {name: [] for name in samples}

        def once(name: str) -> float:
            worker, path = workers[name.partition(",")[0]], str(samples[name][0])
            # Memory that lay idle during the others' turns is slow to come back on virtual machines: up to half of
            # the speed of the fastest. So no contestant's first pass of a turn counts; it is kept beside.
            first[name].append(float(worker.ask(texts=path)["seconds"]))
            return float(worker.ask(texts=path)["seconds"])

        seconds = timings({name: functools.partial(once, name) for name in samples}, ROUNDS)
    speed = {name: samples[name][1] / statistics.median(seconds[name]) for name in samples}
    spread = {
        name: f"{size / max(seconds[name]):.3g} to {size / min(seconds[name]):.3g}"
        for name, (_, size) in samples.items()
    }
    first_speed = {name: samples[name][1] / statistics.median(first[name]) for name in samples}
    figures = [
        Figure(name="ours, mostly ASCII", value=speed["ours"], unit="MB/s", at_least=250, note=spread["ours"]),
        Figure(
            name="ours, CJK-heavy",
            value=speed["ours, CJK-heavy"],
            unit="MB/s",
            at_least=80,
            note=spread["ours, CJK-heavy"],
        ),
    ]
    for name, times in _TIMES.items():
        figures.append(Figure(name=name, value=speed[name], unit="MB/s", note=f"{spread[name]}; {_WORK[name]}"))
        figures.append(Figure(name=f"ours / {name}", value=speed["ours"] / speed[name], unit="times", at_least=times))
    return Report(
        name="signatures",
        figures=tuple(figures),
        notes=(
            f"medians and ranges of {ROUNDS} interleaved rounds, each contestant in its own process on one core",
            "a turn is two passes of which the second counts, for every contestant; on the first passes, after idling, "
            f"ours has {first_speed['ours']:.4g} MB/s, gaoya {first_speed['gaoya']:.4g} (all in details)",
            "ours takes UTF-8 in Arrow buffers and normalises (NFC, full case fold); peers take Python strings",
            "slow peers take a smaller seeded sample of the same documents: "
            + ", ".join(f"{name} {size:.1f} MB" for name, (_, size) in samples.items()),
            f"{corpora.ascii_share(english):.1%} of the bytes are ASCII in the first set, "
            f"{corpora.ascii_share(cjk):.1%} in the CJK-heavy one",
        ),
        details={"first_pass_mb_s": first_speed},
        versions={
            line.partition("==")[0]: line.partition("==")[2] for peer in _TIMES for line in REQUIREMENTS[peer][:1]
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
    texts, truth = _known_pairs()
    path = folder / "parity.json"
    path.write_text(json.dumps(texts))
    expected = statistics.mean(true * (1 - true) / peer_signatures.NUM_PERM for true in truth) ** 0.5
    for name, worker in workers.items():
        found = worker.ask(texts=str(path), parity=True)["equal"]
        if name == "gaoya":
            # It answers only whether the pair is above its threshold.
            _check_hits(name, found, truth)
            continue
        errors = [guess - true for guess, true in zip(found, truth, strict=True)]
        mean, spread = statistics.mean(errors), statistics.mean(error**2 for error in errors) ** 0.5
        if abs(mean) > _MEAN_ERROR or spread > _SPREAD * expected:
            raise BenchmarkError(
                f"parity: over {_PAIRS} known pairs {name} is {mean:+.4f} off on average and {spread:.4f} in spread; "
                f"128 permutations allow {_MEAN_ERROR} and {_SPREAD} times {expected:.4f}"
            )


def _check_hits(name: str, found: list[float], truth: list[float]) -> None:
    """Pairs far above and far below the threshold of 0.8 are told apart."""
    above = statistics.mean(hit for hit, true in zip(found, truth, strict=True) if true >= 0.92)
    below = statistics.mean(hit for hit, true in zip(found, truth, strict=True) if true <= 0.65)
    if above < 0.95 or below > 0.05:
        raise BenchmarkError(
            f"parity: {name} finds {above:.0%} of pairs at similarity 0.92 and above, {below:.0%} at 0.65 and below"
        )


def _known_pairs() -> tuple[list[str], list[float]]:
    """Real text and the same with some words changed, one after the other, and the exact similarity of each pair.

    Only letters, so that no tokenizer sees other words than another.
    """
    rng = random.Random(3)
    source = [text for text in corpora.texts("sotu").to_pylist() if text.isascii()]
    texts: list[str] = []
    truth: list[float] = []
    for _ in range(_PAIRS):
        words = re.findall(r"[a-z]+", rng.choice(source).lower())
        start = rng.randrange(max(1, len(words) - 400))
        mine = words[start : start + 400]
        other = list(mine)
        for place in rng.sample(range(len(other)), rng.randint(1, 30)):
            other[place] = "changed"
        pair = [" ".join(mine), " ".join(other)]
        texts += pair
        a, b = (set(peer_signatures.word_ngrams(text)) for text in pair)
        truth.append(len(a & b) / len(a | b))
    return texts, truth
