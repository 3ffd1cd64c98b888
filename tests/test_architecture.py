"""The layers and homes of the design: imports go down only, and each heavy library has one home.

Read from the sources, so that nothing heavy is imported here, and an import inside a function or for type checking
counts like any other.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dataeff"
KINDS = ("editors", "filters", "formats", "mixers", "readers", "screeners", "surrogates", "tokenizers")
"""Open sets, one member a file; their `__init__` is the contract of the members."""
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("kernel",),
    (
        *("arrays", "arrow", "checksums", "columns", "contest", "cuts", "engine", "exchange", "files", "inputs"),
        *("json_rows", "ledger", "manifest", "mixture", "mixture_fit", "mixture_optimum", "pieces", "proxy_runs"),
        *("registry", "rungs", "segments", "shuffle", "steps", "streams", "tokenizer_json"),
    ),
    ("accounts", "dedup", "prices", *KINDS),
    ("stages", "loader", "train", "profile", "efficiency"),
    ("compare", "pipeline", "recipes", "reports", "verify"),
    ("commands", "__main__"),
)
LAYER = {name: number for number, names in enumerate(LAYERS, 1) for name in names}
HOMES: Mapping[str, tuple[str, ...]] = {
    "numba": ("kernel",),
    "llvmlite": ("kernel",),
    "dask": ("engine",),
    "distributed": ("engine",),
    "webdataset": ("formats",),
    "bokeh": ("reports",),
    "jinja2": ("reports",),
    "typer": ("commands", "__main__"),
    "torch": ("loader", "train", "profile"),
    "lightgbm": ("surrogates",),
    "optuna": ("compare",),
    "mlflow": ("compare",),
}
KERNEL_MAY_KNOW = "arrow"
"""Type names of arrays, which every layer shares."""
VAGUE = {"utils", "util", "common", "helpers", "base", "core", "misc"}
HEAVY = (
    *("numpy", "pyarrow", "numba", "dask", "distributed", "scipy", "pandas", "torch"),
    *("bokeh", "jinja2", "datasketch", "webdataset", "tokenizers", "fsspec"),
)


def modules() -> dict[str, Path]:
    """Files of the package by dotted name; a package's `__init__` goes by the package's name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str, source: str, *, is_package: bool = False) -> Iterator[str]:
    """Dotted names that a module imports anywhere; of `from a import b` both `a` and, if a module, `a.b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".")
            parent = parts[: len(parts) - node.level + is_package] if node.level else []
            module = ".".join([*parent, *filter(None, [node.module])])
            members = [f"{module}.{alias.name}" for alias in node.names]
            # What is taken from the package itself is always a member of it, a module or a name of the facade.
            yield from ([] if module == "dataeff" else [module])
            yield from (entry for entry in members if entry in MODULES or module == "dataeff")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (entry.value for entry in node.args if isinstance(entry, ast.Constant))


def faults(name: str, source: str, *, is_package: bool = False) -> Iterator[str]:
    """What the module called `name` does against the design, a sentence each."""
    own = name.split(".")[1]
    if own not in LAYER:
        yield f"{name} belongs to no layer: give it one in LAYERS"
        return
    for imported in imports(name, source, is_package=is_package):
        top, _, rest = imported.partition(".")
        if own not in HOMES.get(top, (own,)):
            yield f"{name} imports {imported}, whose home is {' '.join(HOMES[top])}"
        other, _, member = rest.partition(".")
        if top != "dataeff" or other == own or (own, other) == ("kernel", KERNEL_MAY_KNOW):
            continue
        if other not in LAYER:
            yield f"{name} imports {imported}, which is in no layer: import it from where it is defined"
        elif LAYER[other] > LAYER[own]:
            yield f"{name} (layer {LAYER[own]}) imports {imported} (layer {LAYER[other]}): imports go down only"
        elif {own, other} <= set(KINDS) and member:
            yield f"{name} imports {imported}: of another kind only the contract, dataeff.{other}, may be known"


@pytest.mark.parametrize("name", [name for name in MODULES if name != "dataeff"])
def test_imports_go_down_and_heavy_libraries_stay_at_home(name: str):
    path = MODULES[name]
    assert list(faults(name, path.read_text(encoding="utf-8"), is_package=path.stem == "__init__")) == []


@pytest.mark.parametrize(
    ("name", "source", "fault"),
    [
        ("dataeff.filters.mine", "import numba", "whose home is kernel"),
        ("dataeff.stages.mine", "from dask.distributed import Client", "whose home is engine"),
        ("dataeff.exchange", "def lazy():\n    from dataeff.stages import read", "imports go down only"),
        ("dataeff.filters.mine", "if TYPE_CHECKING:\n    from dataeff.pipeline import Pipeline", "go down only"),
        ("dataeff.arrow", "from .stages import read", "imports go down only"),
        ("dataeff.arrow", "from . import stages", "imports go down only"),
        ("dataeff.filters.mine", "from ..stages.read import Read", "imports go down only"),
        ("dataeff.stages.mine", "from dataeff import Pipeline", "in no layer"),
        ("dataeff.stages.mine", "import importlib\nimportlib.import_module('torch')", "whose home is loader"),
        ("dataeff.readers.mine", "from dataeff.formats.text_parquet import TextParquet", "only the contract"),
        ("dataeff.stray", "", "belongs to no layer"),
    ],
)
def test_a_planted_fault_is_found(name: str, source: str, fault: str):
    found = list(faults(name, source))
    assert found
    assert all(fault in entry for entry in found)


def test_what_the_design_allows_is_no_fault():
    source = "import numpy\nfrom dataeff import manifest\nfrom dataeff.filters import Bounds\nfrom .read import Read"
    assert list(faults("dataeff.stages.mine", source)) == []
    assert list(faults("dataeff.kernel.mine", "import numba\nfrom dataeff.arrow import U8")) == []
    assert list(faults("dataeff.editors", "from dataeff.filters import Signals", is_package=True)) == []


def cycle(graph: Mapping[str, set[str]]) -> list[str]:
    """Names along one cycle, the first again at the end; empty where there is none."""
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph[name]):
            if found := visit(other, [*trail, name]):
                return found
        done.add(name)
        return []

    return next(filter(None, (visit(name, []) for name in graph)), [])


def test_no_import_cycle():
    graph = {
        name: {
            entry
            for entry in imports(name, path.read_text(encoding="utf-8"), is_package=path.stem == "__init__")
            if entry in MODULES and entry != name
        }
        for name, path in MODULES.items()
    }
    assert cycle(graph) == []
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_no_module_is_named_for_having_no_subject():
    assert [name for name in MODULES if VAGUE & set(name.split("."))] == []


def heavy_after(code: str) -> str:
    """Heavy libraries that running `code` in a fresh interpreter loads."""
    check = f"{code}\nimport sys\nprint('loaded:', *(name for name in {HEAVY!r} if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()[-1].removeprefix("loaded:").strip()


def test_importing_the_package_costs_nothing():
    assert heavy_after("import dataeff\nassert 'Pipeline' in dataeff.__all__") == ""
    assert "numpy" in heavy_after("import dataeff\ndataeff.Pipeline")


def test_help_of_every_command_loads_nothing_heavy():
    assert not heavy_after(
        """
from typer.main import get_command
from typer.testing import CliRunner
from dataeff.__main__ import app
names = sorted(get_command(app).commands)
assert names
for arguments in ([], *([name] for name in names)):
    done = CliRunner().invoke(app, [*arguments, "--help"])
    assert done.exit_code == 0 and "Usage" in done.output, done.output
"""
    )
