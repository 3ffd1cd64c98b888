"""The outside of `dataeff profile`: an interpreter of its own for the script, and what to say when it has ended.

A crash takes the script's process down, not the report.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dataeff.errors import InputError, MeasurementError, PlanError
from dataeff.profile.runner import Plan
from dataeff.steps import RUN_FILE, RunRecord, read_run

if TYPE_CHECKING:
    from dataeff.profile.stalls import Interval

MARKING = (
    "with dataeff.profile.Profiler(out=DIR) as profiler: for batch in profiler.watch(batches): ...; profiler.step()"
)
_START = "from dataeff.profile.runner import main; main()"


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
        if (directory / RUN_FILE).is_file():
            return ""
        return f"{plan.target} was killed before its records were written, which they are each minute"
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
    """Three lines: steps and stall share, largest cause, what is next; as `dataeff diagnose` has them."""
    from dataeff.profile.stalls import measure

    last = f"Record: {directory}. Next: dataeff diagnose {directory}"
    try:
        stalls = measure(record)
    except MeasurementError as error:
        steps = max(table.num_rows for table in record.steps.values())
        return f"{steps} steps were recorded, too few for a stall share.", f"{error}.", last
    whose = "device time" if record.info.clock == "cuda" else "the loop's time (no device was in use)"
    largest = max(stalls.causes, key=lambda cause: stalls.causes[cause].value)
    return (
        f"{stalls.num_steps} steady steps of {stalls.step_s.value * 1e3:.3g} ms; {_share(stalls.share)} of {whose} was "
        "stalled: no batch was there.",
        f"Largest cause: {largest}, {_share(stalls.causes[largest])}."
        if stalls.share.value
        else "Nothing was waited for.",
        last,
    )


def _share(interval: Interval) -> str:
    return f"{interval.value:.1%} ({interval.low:.1%} to {interval.high:.1%})"
