"""Run benchmarks by name: `scripts/bench [NAME...] [--check] [--json]`."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import pkgutil
import sys
from pathlib import Path

from rich.console import Console

import benchmarks
from benchmarks import harness


def names() -> list[str]:
    """Benchmarks there are: modules here that define a function `run`, found without importing any."""
    folder = Path(benchmarks.__path__[0])
    return sorted(
        module.name
        for module in pkgutil.iter_modules(benchmarks.__path__)
        if any(
            isinstance(node, ast.FunctionDef) and node.name == "run"
            for node in ast.parse((folder / f"{module.name}.py").read_text(encoding="utf-8")).body
        )
    )


def main() -> int:
    """Run; 1 where a benchmark cannot be run or, with `--check`, a figure misses its target: the last line says it."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(names())}; all if not given"
    )
    parser.add_argument("--check", action="store_true", help="exit 1 where a figure misses its target")
    parser.add_argument("--json", action="store_true", help="print results as JSON on standard output")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in names()]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}; there are {', '.join(names())}")
    console = Console(stderr=options.json, width=None if sys.stdout.isatty() else 140)
    harness.commit()  # Before anything runs: work on the code may go on meanwhile.
    reports = []
    for name in options.names or names():
        try:
            report = importlib.import_module(f"benchmarks.{name}").run()
        except harness.BenchmarkError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        reports.append(report)
        harness.show(report, console)
        harness.write(report)
    if options.json:
        print(json.dumps([harness.content(report) for report in reports], indent=1))
    missed = [(report.name, figure) for report in reports for figure in report.figures if not figure.holds]
    if not options.check:
        return 0
    for name, figure in missed:
        message = f"{name}: {figure.name} is {figure.value:.4g} {figure.unit}; the target is {figure.target}"
        print(message, file=sys.stderr if options.json else sys.stdout, flush=True)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
