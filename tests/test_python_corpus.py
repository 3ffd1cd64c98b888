"""Gathering text from a Python installation: what is taken, what is left out, and that nothing changes by itself."""

from __future__ import annotations

import ast
import json
import os
import sys
import warnings
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Any

import pytest

from pipelines import python_corpus

LONG = "Says what it does in a sentence that is long enough to be a document of its own, and then some."
MODULES = {
    "alpha.py": f'"""{LONG}"""\nclass Box:\n    """{LONG} Box."""\n    def open(self):\n        """{LONG} Open."""\n',
    "json/decoder.py": f'if True:\n    try:\n        pass\n    except Exception:\n        def late(): "{LONG} Late."\n',
    "test/test_alpha.py": '"""Too short."""\nassert True\n',
    "test/bad_syntax.py": "def broken(:\n",
    "test/escape.py": '"""A regular expression \\d in no raw string, which newer Pythons warn about when parsed."""\n',
    "empty.py": " \n",
    "site-packages/other/code.py": "not_ours = 1\n",
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    root = tmp_path / "lib"
    for name, text in MODULES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "test/latin.py").write_bytes(b"# \xe9\n")
    (root / "LICENSE.txt").write_text("A licence of Python.")
    (root / "site-packages/other/LICENSE").write_text("Not Python's.")
    return root


def package(
    folder: Path, name: str, files: dict[str, str], metadata: str = "", listed: tuple[str, ...] = ()
) -> Distribution:
    """A package as pip leaves it: its files, metadata, and a record of its files."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n\nAbout {name}.\n")
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, *listed)))
    return PathDistribution(info)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_code_is_every_module_that_is_text_and_of_the_library(library: Path):
    found = {entry["id"]: entry for entry in python_corpus.code(library)}
    left_out = ("empty.py", "site-packages/other/code.py")
    assert list(found) == sorted(f"code/{name}" for name in MODULES if name not in left_out)
    assert found["code/alpha.py"]["text"] == MODULES["alpha.py"]
    assert found["code/alpha.py"]["package"] == "alpha"
    assert found["code/json/decoder.py"]["package"] == "json"


def test_docs_are_the_docstrings_of_modules_classes_and_functions_however_nested(library: Path):
    found = {entry["id"]: (entry["text"], entry["kind"]) for entry in python_corpus.docs(library)}
    mine = {name: entry for name, entry in found.items() if not name.startswith("docs/topic/")}
    assert mine == {
        "docs/alpha.py/module:0": (LONG, "module"),
        "docs/alpha.py/Box:2": (f"{LONG} Box.", "class"),
        "docs/alpha.py/open:4": (f"{LONG} Open.", "function"),
        "docs/json/decoder.py/late:5": (f"{LONG} Late.", "function"),
        "docs/test/escape.py/module:0": (MODULES["test/escape.py"].strip('"\n'), "module"),
    }
    assert {"topic"} == {kind for name, (_, kind) in found.items() if name not in mine}


def test_parsing_old_code_warns_nobody(library: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(python_corpus.docs(library))


def test_statements_are_all_that_a_full_walk_finds(library: Path):
    for _, text in python_corpus._modules(library):
        tree = python_corpus._parsed(text)
        walked = {id(node) for node in ast.walk(tree) if isinstance(node, ast.stmt)}
        assert {id(node) for node in python_corpus._statements(tree)} == walked | {id(tree)} | {
            id(node) for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)
        }


def test_licences_repeat_as_they_do_in_packages(library: Path, tmp_path: Path):
    mit = {"one/LICENSE": "MIT", "two/COPYING.txt": "MIT", "two/license.py": "code = 1"}
    found = python_corpus.installed(
        [
            package(tmp_path / "a", "two", {name: text for name, text in mit.items() if name.startswith("two")}),
            package(tmp_path / "b", "one", {"one/LICENSE": "MIT", "one/NOTICE": "Note.", "one/main.py": "x = 1"}),
        ]
    )
    documents = list(python_corpus.licences(library, found))
    assert [(entry["id"], entry["kind"], entry["text"]) for entry in documents] == [
        ("licences/python/LICENSE.txt", "licence", "A licence of Python."),
        ("licences/one/one/LICENSE", "licence", "MIT"),
        ("licences/one/one/NOTICE", "notice", "Note."),
        ("licences/two/two/COPYING.txt", "licence", "MIT"),
    ]


def test_a_package_is_described_by_its_metadata_and_its_readme(tmp_path: Path):
    old = "Metadata-Version: 1.0\nName: old\nDescription: First line\n        second line\n"
    unknown = "Metadata-Version: 2.1\nName: silent\nVersion: 1.0\n\nUNKNOWN\n"
    found = python_corpus.installed(
        [
            package(tmp_path, "silent", {}, unknown),
            package(tmp_path, "old", {"old/README.rst": "Read me.", "old/NEWS": "New."}, old),
        ]
    )
    documents = list(python_corpus.descriptions(found))
    assert [(entry["id"], entry["kind"]) for entry in documents] == [
        ("packages/old/description", "description"),
        ("packages/old/old/NEWS", "changes"),
        ("packages/old/old/README.rst", "readme"),
    ]
    assert documents[0]["text"].split() == ["First", "line", "second", "line"]


def test_of_two_packages_of_one_name_the_first_on_the_path_counts(tmp_path: Path):
    first, second = (package(tmp_path / at, "twice", {"LICENSE": at}) for at in ("a", "b"))
    assert python_corpus.installed([first, second]) == {"twice": first}


def test_broken_packages_are_left_out(tmp_path: Path):
    nameless = package(tmp_path, "nameless", {}, "Metadata-Version: 2.1\n\n")
    garbled = package(tmp_path, "garbled", {})
    (tmp_path / "garbled-1.0.dist-info/METADATA").write_bytes(b"Name: \xff\xfe\n")
    gone = package(tmp_path, "gone", {}, listed=("gone/LICENSE",))
    whole = package(tmp_path, "whole", {"whole/LICENSE": "MIT"})
    (tmp_path / "whole/COPYING").write_bytes(b"\xff\xfe")
    found = python_corpus.installed([nameless, garbled, gone, whole])
    assert list(found) == ["gone", "whole"]
    (tmp_path / "empty").mkdir()
    documents = python_corpus.licences(tmp_path / "empty", found)
    assert [entry["id"] for entry in documents] == ["licences/whole/whole/LICENSE"]


def test_ids_hold_no_path_of_the_machine_and_no_file_counts_twice(tmp_path: Path):
    outside = tmp_path / "outside/LICENSE"
    outside.parent.mkdir()
    outside.write_text("Elsewhere.")
    found = python_corpus.installed(
        [package(tmp_path / "site", "odd", {"odd/LICENSE": "MIT"}, listed=(str(outside), "odd/LICENSE"))]
    )
    (tmp_path / "empty").mkdir()
    documents = list(python_corpus.licences(tmp_path / "empty", found))
    assert {entry["id"]: entry["text"] for entry in documents} == {
        "licences/odd/LICENSE": "Elsewhere.",
        "licences/odd/odd/LICENSE": "MIT",
    }
    assert len(documents) == 2


def document(name: str, text: str) -> python_corpus.Document:
    return {"id": name, "text": text, "package": "p", "kind": "k"}


def test_a_source_is_bounded_in_bytes_not_in_letters(tmp_path: Path):
    documents = [document("a", "é" * 10), document("b", "b" * 10), document("c", "c")]
    kept = lines(python_corpus._write(tmp_path / "x.jsonl", "s", documents, 29))
    assert [row["id"] for row in kept] == ["a"]
    kept = lines(python_corpus._write(tmp_path / "x.jsonl", "s", documents, 30))
    assert kept == [{"source": "s", **entry} for entry in documents[:2]]


def test_half_a_character_is_no_text(tmp_path: Path):
    documents = [document("a", "\ud83d"), document("b", "\U0001f600")]
    assert [row["id"] for row in lines(python_corpus._write(tmp_path / "x.jsonl", "s", documents, 99))] == ["b"]


def test_this_installation_gives_four_sources_and_a_second_run_touches_nothing(tmp_path: Path):
    files = python_corpus.gather(tmp_path / "new/folder", 200_000)
    assert [path.name for path in files] == ["code.jsonl", "docs.jsonl", "licences.jsonl", "packages.jsonl"]
    rows = [row for path in files for row in lines(path)]
    assert {tuple(row) for row in rows} == {("source", "id", "text", "package", "kind")}
    assert len({row["id"] for row in rows}) == len(rows)
    assert not any(sys.prefix in row["id"] or sys.base_prefix in row["id"] for row in rows)
    assert all(sum(len(row["text"].encode()) for row in lines(path)) <= 200_000 for path in files)
    for path in files:
        os.utime(path, ns=(1, 1))
    with files[1].open("a") as torn:
        torn.write('{"source": "docs", "id": "half')
    assert python_corpus.gather(tmp_path / "new/folder", 200_000) == files
    assert [path.stat().st_mtime_ns == 1 for path in files] == [True, False, True, True]
    assert [row for path in files for row in lines(path)] == rows
