"""Run a script as it is, in an interpreter of its own, with a profiler that starts when the script imports torch.

The script sees what it would see without us: its own `__main__`, arguments, path and exit code, and a traceback that
begins with its own frames. Nothing heavy is imported before the script does, so what it sets in its environment
before `import torch` still counts. A crash takes the script's process down, not the report.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from dataeff.errors import InputError, MeasurementError, PlanError
from dataeff.steps import CAUSES, RUN_FILE, RunRecord, read_run

if TYPE_CHECKING:
    from dataeff.profile.profiler import Profiler

MIN_STEPS = 5
"""Steady steps that a share needs."""
MARKING = (
    "with dataeff.profile.Profiler(out=DIR) as profiler: for batch in profiler.watch(batches): ...; profiler.step()"
)
_INTERRUPTED = 130
_START = "from dataeff.profile.script import child; child()"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it ended."""

    exit_code: int
    out: Path
    lines: tuple[str, ...]
    """What to tell a person."""


def profile_script(
    target: str,
    arguments: Sequence[str],
    *,
    is_module: bool = False,
    out: Path | None = None,
    max_steps: int | None = None,
) -> Outcome:
    """Run a script to its end, measured.

    Args:
        target: Its file, or with `is_module` the name that `python -m` takes.
        arguments: Its own.
        out: Run directory; None makes one here, named for the script and the time.
        max_steps: End it after so many optimizer steps.

    Raises:
        InputError: There is no such file.
        PlanError: `out` holds a run; or there are several ranks and no `out` that they could share.
        MeasurementError: The script ended well, but nothing could be measured; the message says how to mark steps.
    """
    if not is_module and not Path(target).is_file():
        raise InputError(f"{target} is not a file: give a Python script, or a module's name after -m")
    plan = Plan(
        target=target,
        arguments=tuple(arguments),
        is_module=is_module,
        out=str((out or _new_directory(target)).resolve()),
        max_steps=max_steps,
    )
    _check(Path(plan.out))
    exit_code, seen = _run(plan)
    directory = Path(plan.out)
    missing = _missing(plan, seen, directory)
    lines = (missing,) if missing else summary(read_run(directory), directory)
    if exit_code == 0 and missing:
        raise MeasurementError(missing)
    return Outcome(exit_code=exit_code, out=directory, lines=() if os.environ.get("RANK", "0") != "0" else lines)


def _new_directory(target: str) -> Path:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise PlanError("several ranks are profiled and each would make its own directory: give all the same --out DIR")
    return Path(f"profile-{Path(target).stem}-{time.strftime('%Y%m%d-%H%M%S')}")


def _check(out: Path) -> None:
    if os.environ.get("RANK", "0") == "0" and (out / RUN_FILE).exists():
        raise PlanError(f"{out} holds a recorded run: give --out another directory, or remove it")


def _run(plan: Plan) -> tuple[int, dict[str, int] | None]:
    """Exit code of the script's process, and what its profiler had seen; None where it was killed."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "seen.json"
        content = json.dumps({"plan": asdict(plan), "note": str(note)})
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        with _signals_for_child() as adopt:
            process = subprocess.Popen([sys.executable, *flags, "-c", _START, content])
            adopt(process)
            code = process.wait()
        seen = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else None
    return (code if code >= 0 else 128 - code), seen


@contextmanager
def _signals_for_child() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Outlive Ctrl-C, which the script's process gets from the terminal too, and hand SIGTERM on."""
    children: list[subprocess.Popen[bytes]] = []

    def hand_on(number: int, frame: object) -> None:
        for process in children:
            process.send_signal(number)

    handlers = {signal.SIGINT: lambda number, frame: None, signal.SIGTERM: hand_on}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield children.append
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _missing(plan: Plan, seen: dict[str, int] | None, directory: Path) -> str:
    """Why nothing can be said; empty if something can."""
    if seen is None:
        seen = {"torch": 1, "batches": 1, "steps": int((directory / RUN_FILE).is_file())}
    if not seen["torch"]:
        return f"{plan.target} never imported torch, so there was nothing to measure; mark steps: {MARKING}"
    if not seen["steps"] and not seen["batches"]:
        return (
            f"{plan.target} read no torch DataLoader and stepped no torch optimizer, so there was nothing to measure; "
            f"mark both: {MARKING}"
        )
    if not seen["steps"]:
        return (
            f"{plan.target} read {seen['batches']} batches, but no torch.optim.Optimizer stepped, so no step is known; "
            f"mark steps: {MARKING}"
        )
    if not seen["batches"]:
        return (
            f"{plan.target} made {seen['steps']} steps, but read no torch DataLoader, so what it waited for is not "
            f"known; watch what it iterates over: {MARKING}"
        )
    return ""


def summary(record: RunRecord, directory: Path) -> tuple[str, ...]:
    """Three lines: steps and stall share, largest cause, what is next. Shares are of the steady steps' time.

    Evaluations and checkpoints are no part of that time.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    steps = pa.concat_tables(record.steps.values())
    steady = steps.filter(steps["steady"])
    last = f"Record: {directory}. Next: dataeff diagnose {directory}"

    def total(name: str) -> int:
        return int(pc.sum(steady[name]).as_py() or 0)

    time_ns = total("stop_ns") - total("start_ns") - total("evaluation_ns") - total("checkpoint_ns")
    if steady.num_rows < MIN_STEPS or time_ns <= 0:
        return (
            f"{steps.num_rows} steps, {steady.num_rows} of them steady; a share needs {MIN_STEPS} or more.",
            "Let it run longer.",
            last,
        )
    share = total("stall_ns") / time_ns
    by_cause = {cause: total(f"stall_{cause}_ns") / time_ns for cause in CAUSES}
    largest = max(by_cause, key=by_cause.__getitem__)
    clock = "device time" if record.info.clock == "cuda" else "the loop's time (no device was in use)"
    return (
        f"{steps.num_rows} steps, {time_ns / steady.num_rows / 1e6:.3g} ms each; {share:.1%} of {clock} was stalled: "
        "no batch was there.",
        f"Largest cause: {largest}, {by_cause[largest]:.1%} of the time." if share else "Nothing was waited for.",
        last,
    )


def child() -> None:
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
        sys.excepthook(type(error), error, _own_frames(error.__traceback__))
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
    """Calls back once, when `torch` has been imported in this process."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then, self._process = then, os.getpid()

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        # A process that the script forked is another one's to measure.
        if spec is not None and spec.loader is not None and os.getpid() == self._process:
            spec.loader = _Loader(spec.loader, self._then)
        return spec


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
