"""The inside of `dataeff profile`: runs a script as `python` would, a profiler starting when it imports torch.

The script sees what it would see without us: its own `__main__`, arguments, path and exit code, and a traceback that
begins with its own frames. Nothing heavy is imported before the script does, so what it sets in its environment
before `import torch` still counts.
"""

from __future__ import annotations

import builtins
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataeff.profile.profiler import Profiler

_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run."""

    target: str
    """A file, or the name of a module."""
    arguments: tuple[str, ...]
    is_module: bool
    out: str
    max_steps: int | None

    @property
    def command(self) -> str:
        """As a person would type it."""
        return " ".join(["python", *(["-m"] if self.is_module else []), self.target, *self.arguments])


def main() -> None:
    """In the script's process: run it, and leave with its exit code."""
    content = json.loads(sys.argv[1])
    plan = Plan(**content["plan"])
    profilers: list[Profiler] = []
    sys.meta_path.insert(0, _AfterTorch(lambda: _start(plan, profilers)))
    code: Any = 0
    try:
        (_run_module if plan.is_module else _run_file)(plan)
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        error.__traceback__ = _own_frames(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        code = _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    finally:
        # A second Ctrl-C must not lose what the first one kept.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        seen = {"torch": len(profilers), "steps": 0, "batches": 0}
        for profiler in profilers:
            profiler.close()
            seen |= {"steps": profiler.num_steps, "batches": profiler.num_batches}
        Path(content["note"]).write_text(json.dumps(seen), encoding="utf-8")
    sys.exit(code)


def _start(plan: Plan, profilers: list[Profiler]) -> None:
    from dataeff.profile.profiler import Profiler

    profiler = Profiler(plan.out, command=plan.command, max_steps=plan.max_steps)
    profiler.start()
    profilers.append(profiler)


def _run_file(plan: Plan) -> None:
    """As `python FILE` does."""
    path = plan.target
    module = ModuleType("__main__")
    module.__file__ = path
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    sys.argv = [path, *plan.arguments]
    sys.path[0] = str(Path(path).resolve().parent)
    with io.open_code(str(Path(path).resolve())) as source:
        code = compile(source.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)


def _run_module(plan: Plan) -> None:
    """As `python -m MODULE` does."""
    sys.argv = [plan.target, *plan.arguments]
    sys.path[0] = str(Path.cwd())
    runpy.run_module(plan.target, run_name="__main__", alter_sys=True)


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without our frames, as the script alone would leave it."""
    ours = (__file__, runpy.__file__, "<frozen runpy>")
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return trace


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Calls back once, when `torch` has been imported in this process.

    Where our own profiler imports it, since the script has a use for one, not before that is imported too.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        self._then, self._process = then, os.getpid()
        self._awaited = {"torch", _PROFILER}

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        # A process that the script forked is another one's to measure.
        if name not in self._awaited or os.getpid() != self._process:
            return None
        self._awaited.remove(name)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, functools.partial(self._imported, name))
        return spec

    def _imported(self, name: str) -> None:
        importing = _PROFILER in sys.modules and name == "torch"
        if not importing and self in sys.meta_path:
            sys.meta_path.remove(self)
            self._then()


_PROFILER = "dataeff.profile.profiler"


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Nothing of us stays in what torch's own code can see.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
