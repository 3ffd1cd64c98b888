"""Small corpora with known duplicates, made from a seed, for tests of whole pipelines."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dataeff.engine import Engine
from dataeff.pipeline import Pipeline, run
from dataeff.stages.tasks import Context

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")


class Silent:
    """An observer that counts tasks done and reused, by step."""

    def __init__(self) -> None:
        self.done: dict[str, int] = {}
        self.reused: dict[str, int] = {}

    def started(self, step: str, num_tasks: int, num_bytes: int) -> None:
        self.done[step] = 0

    def advanced(self, step: str, num_bytes: int) -> None:
        self.done[step] += 1

    def finished(self, step: str, num_reused: int) -> None:
        self.reused[step] = num_reused


def sentence(rng: random.Random, num_words: int) -> str:
    """Words of a made-up vocabulary with some English stop words, as one sentence."""
    words = [
        rng.choice(STOP_WORDS) if rng.random() < 0.3 else "".join(rng.choices("abcdefghijklmnop", k=rng.randint(3, 9)))
        for _ in range(num_words)
    ]
    return " ".join(words).capitalize() + "."


def document(rng: random.Random, num_sentences: int = 12) -> str:
    return "\n".join(sentence(rng, rng.randint(8, 16)) for _ in range(num_sentences))


def edited(rng: random.Random, text: str, num_edits: int = 1) -> str:
    """The text with some words replaced."""
    words = text.split(" ")
    for _ in range(num_edits):
        words[rng.randrange(len(words))] = "edited"
    return " ".join(words)


def rows(num: int, seed: int = 0, source: str = "web") -> list[dict[str, Any]]:
    """Documents of which every fifth is a near copy and every seventh an exact copy of an earlier one."""
    rng = random.Random(seed)
    made: list[dict[str, Any]] = []
    for number in range(num):
        text = document(rng)
        kind = "fresh"
        if number and number % 5 == 0:
            text, kind = edited(rng, made[rng.randrange(number)]["text"]), "near"
        elif number and number % 7 == 0:
            text, kind = made[rng.randrange(number)]["text"], "exact"
        made.append({"id": f"{source}-{number}", "text": text, "source": source, "kind": kind, "rank": number})
    return made


def write_jsonl(path: Path, entries: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries), encoding="utf-8")
    return path


def run_here(pipeline: Pipeline, out: Path, engine: Engine) -> tuple[dict[str, Any], Silent]:
    """Run a pipeline; returns the corpus's manifest and what was done."""
    observer = Silent()
    content = run(pipeline, Context(out=out.resolve(), engine=engine, observer=observer, seed=pipeline.seed))
    return content, observer


def all_bytes(out: Path) -> dict[str, bytes]:
    """Every output file but the run log and the report, which tell what a run cost."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.name not in ("run_log.jsonl", "report.html")
    }
