"""The layers and homes of the design: imports go down only, and each heavy library has one home."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dataeff"
LAYERS = (
    ("errors",),
    ("kernel",),
    (
        "arrow checksums columns cuts engine exchange files inputs json_rows manifest mixture pieces registry segments shuffle "
        "streams tokenizer_json"
    ).split(),
    ("dedup", "editors", "filters", "formats", "mixers", "readers", "tokenizers"),
    ("stages",),
    ("pipeline", "recipes", "reports", "verify"),
    ("commands", "__main__"),
)
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
HOMES = {
    "numba": ("kernel",),
    "llvmlite": ("kernel",),
    "dask": ("engine",),
    "distributed": ("engine",),
    "webdataset": ("formats",),
    "bokeh": ("reports",),
    "jinja2": ("reports",),
    "typer": ("commands", "__main__"),
    "torch": ("loader", "train", "profile"),
}
KERNEL_MAY_KNOW = {"arrow"}
"""Type names of arrays, which every layer shares."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[str]:
    """Dotted names that a module imports, also inside functions, but not for type checking only."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(module: str) -> str | None:
    """The layer member that a module of ours belongs to; the facade belongs to none."""
    pieces = module.split(".")
    return pieces[1] if pieces[0] == "dataeff" and len(pieces) > 1 else None


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_imports_go_down_and_heavy_libraries_stay_at_home(path: Path):
    own = part_of(name_of(path))
    if own is None:
        return
    assert own in LAYER, f"{name_of(path)} belongs to no layer: give it one in LAYERS"
    for imported in imports(path):
        home = HOMES.get(imported.split(".")[0])
        assert home is None or own in home, f"{name_of(path)} imports {imported}, whose home is {home}"
        other = part_of(imported)
        if other is None or other not in LAYER or other == own:
            continue
        if own == "kernel" and other in KERNEL_MAY_KNOW:
            continue
        assert LAYER[other] <= LAYER[own], f"{name_of(path)} (layer {LAYER[own] + 1}) imports {imported} above it"


def test_no_import_cycle():
    names = {name_of(path): path for path in modules()}
    graph = {name: {entry for entry in imports(path) if entry in names} - {name} for name, path in names.items()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_no_module_is_named_for_having_no_subject():
    vague = {"utils", "util", "common", "helpers", "base", "core", "misc"}
    assert not [path for path in modules() if path.stem in vague or path.parent.name in vague]


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import dataeff", ("numpy", "pyarrow", "numba", "dask", "distributed", "typer")),
        ("import dataeff.__main__", ("numpy", "pyarrow", "numba", "dask", "distributed", "bokeh", "fsspec")),
    ],
)
def test_importing_costs_nothing_before_it_is_needed(code: str, heavy: tuple[str, ...]):
    check = f"{code}\nimport sys\nprint([name for name in {heavy!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
