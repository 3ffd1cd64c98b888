"""Every recipe in pipelines/ runs, and what is wrong with an option is said with the valid ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataeff.engine import Engine
from dataeff.errors import PlanError
from dataeff.pipeline import Pipeline
from dataeff.recipes import Recipe, load
from dataeff.verify import problems
from tests import making

FOLDER = Path(__file__).resolve().parents[1] / "pipelines"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(threads=2) as running:
        yield running


def options_of(name: str, folder: Path) -> list[str]:
    """Options that give each recipe something small to do."""
    making.write_jsonl(folder / "in/web.jsonl", making.rows(60, seed=1, source="web"))
    making.write_jsonl(folder / "in/books.jsonl", making.rows(40, seed=2, source="books"))
    given = {
        "web": ["min_words=20"],
        "domains": ["web=web*", "prefer=books", "vocab_size=500", "sequence_length=64"],
        "dedup": ["threshold=0.7", "prefer=books,web"],
        "python_corpus": [f"gathered={folder / 'gathered'}", "max_bytes=60000", "vocab_size=500", "sequence_length=64"],
    }
    return given[name] + ([] if name == "python_corpus" else [f"inputs={folder / 'in'}"])


COMPARISONS = {"mixtures"}
"""Recipes of which a comparison comes; the others make a corpus."""


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(FOLDER.glob("*.py")) if path.stem not in COMPARISONS],
    ids=lambda path: path.stem,
)
def test_every_recipe_makes_a_corpus_that_verifies(path: Path, tmp_path: Path, engine: Engine):
    pipeline, values = load(str(path), Pipeline).make(options_of(path.stem, tmp_path))
    content, _ = making.run_here(pipeline, tmp_path / "out", engine)
    assert set(values) == set(load(str(path), Pipeline).parameters)
    assert sum(entry["documents"] for entry in content["funnel"]["kept"].values()) > 0
    assert content["shards"]
    assert problems(tmp_path / "out", engine) == []


def test_gathering_twice_leaves_the_files_as_they_are(tmp_path: Path):
    gather = load(str(FOLDER / "python_corpus.py"), Pipeline).function.__globals__["gather"]
    files = gather(tmp_path / "gathered", 50_000)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
    assert [path.stem for path in files] == ["code", "docs", "licences", "packages"]
    assert all(content for _, content in before.values())
    os.utime(files[0], ns=(1, 1))
    gather(tmp_path / "gathered", 50_000)
    assert files[0].stat().st_mtime_ns == 1
    assert {path: path.read_bytes() for path in files} == {path: content for path, (_, content) in before.items()}
    assert sys.prefix not in before[files[0]][1].decode()


def recipe(tmp_path: Path, text: str) -> Recipe[Pipeline]:
    path = tmp_path / "mine.py"
    path.write_text(
        "from typing import Literal\nfrom pathlib import Path\nfrom dataeff import Dedup, Pipeline, Read\n" + text
    )
    return load(str(path), Pipeline)


PLAIN = """
def mine(inputs: str, share: float = 0.5, num: int = 3, names: tuple[str, ...] = (), fast: bool = False,
         kind: Literal["a", "b"] = "a", most: int | None = None) -> Pipeline:
    return Pipeline(Read(inputs))
"""


def test_options_are_read_by_their_types(tmp_path: Path):
    options = ["inputs=x", "share=0.25", "num=1_000", "names=a, b", "fast=yes", "kind=b", "most=none"]
    _, values = recipe(tmp_path, PLAIN).make(options)
    assert values == {
        "inputs": "x", "share": 0.25, "num": 1000, "names": ("a", "b"), "fast": True, "kind": "b", "most": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("nmu=3", r"has no option 'nmu' \(did you mean num\?\); its options are inputs: str = required, share: float"),
        ("num=many", r"--set num='many': must be int"),
        ("fast=perhaps", r"--set fast='perhaps': must be bool"),
        ("kind=c", r"must be one of a, b"),
        ("most=x", r"must be int or none"),
        ("share", r"'share' must be name=value"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_valid(tmp_path: Path, option: str, message: str):
    with pytest.raises(PlanError, match=message):
        recipe(tmp_path, PLAIN).make(["inputs=x", option])


def test_a_file_that_is_no_recipe_says_why(tmp_path: Path):
    with pytest.raises(PlanError, match="needs --set inputs"):
        recipe(tmp_path, PLAIN).make([])
    with pytest.raises(PlanError, match="has 0 functions that are annotated to return Pipeline"):
        recipe(tmp_path, "def mine(): pass")
    with pytest.raises(PlanError, match="has 2 functions"):
        recipe(tmp_path, PLAIN + PLAIN.replace("def mine", "def other"))
    with pytest.raises(PlanError, match="fails on import: ZeroDivisionError"):
        recipe(tmp_path, "1 / 0")
    with pytest.raises(PlanError, match="has no type"):
        recipe(tmp_path, "def mine(inputs) -> Pipeline: ...")
    with pytest.raises(PlanError, match="no recipe at"):
        load(str(tmp_path / "absent.py"), Pipeline)


def test_a_recipe_may_define_its_own_filter_and_a_worker_process_knows_it(tmp_path: Path):
    making.write_jsonl(tmp_path / "in.jsonl", making.rows(20))
    made = recipe(
        tmp_path,
        """
import dataclasses
from dataeff import Filter, Shard
from dataeff.filters import Bounds
from dataeff.formats import TextParquet

@dataclasses.dataclass(frozen=True, kw_only=True)
class Even:
    def measure(self, segments):
        return {"odd": segments.chars_per_row % 2.0}
    def bounds(self):
        return {"odd": Bounds(high=0)}

def mine(inputs: str) -> Pipeline:
    return Pipeline(Read(inputs), Filter(Even()), Shard(TextParquet()))
""",
    )
    pipeline, _ = made.make([f"inputs={tmp_path / 'in.jsonl'}"])
    with Engine(workers=1, threads=1) as engine:
        making.run_here(pipeline, tmp_path / "out", engine)
    texts = pq.read_table(tmp_path / "out/shards/text_parquet").column("text").to_pylist()
    assert sorted(texts) == sorted(row["text"] for row in making.rows(20) if len(row["text"]) % 2 == 0)
