"""Run a step's tasks, skip those that are already committed, and commit the step."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dataeff import manifest
from dataeff.engine import Engine
from dataeff.errors import FormatError
from dataeff.manifest import FileRecord

RUN_LOG = "run_log.jsonl"
STEP_MANIFEST = "_manifest.json"
"""A step is committed when this is in its folder."""
_TASKS = "_tasks"
"""Folder of the tasks' manifests; readers of data sets pass over names that begin so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of a step's work, which writes files of its own."""

    name: str
    """Prefix of its files, unique in the step: `part-00012`."""
    fingerprint: str
    """Of all that determines its files."""
    arguments: Any
    num_bytes: int = 0
    """Size of the work, for the progress bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a task did, as its own manifest keeps it."""

    files: dict[str, FileRecord] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """Counts and whatever the step needs to know of the task, as JSON."""

    @property
    def digest(self) -> str:
        """Equal where the task's output is equal."""
        return manifest.fingerprint(self.files, self.facts)


class Observer(Protocol):
    """Who wants to see the progress of long steps."""

    def started(self, step: str, num_tasks: int, num_bytes: int) -> None:
        """A step begins, with this much left to do."""

    def advanced(self, step: str, num_bytes: int) -> None:
        """One more task of the step is done."""

    def finished(self, step: str, num_reused: int) -> None:
        """The step is committed; so many of its tasks were already there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Where a run works and with what."""

    out: Path
    engine: Engine
    observer: Observer
    seed: int
    run_id: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    """Names the run in the run log; in no other output."""


def run_step(
    context: Context, step: str, tasks: Sequence[Task], function: Callable[[Path, Any], Outcome]
) -> list[Outcome]:
    """Run the tasks whose output is not there yet, each committed by its own manifest written last.

    Args:
        context: Where and with what.
        step: The step's folder below the output directory.
        tasks: The work.
        function: Called with (folder, arguments) on a worker; must be safe to repeat.

    Returns:
        The outcomes in the order of the tasks.
    """
    folder = context.out / step
    outcomes: list[Outcome | None] = [_committed_outcome(folder, task) for task in tasks]
    left = [index for index, outcome in enumerate(outcomes) if outcome is None]
    left.sort(key=lambda index: -tasks[index].num_bytes)  # the longest first, so that all threads end together
    num_bytes = sum(tasks[index].num_bytes for index in left)
    began_s, cpu_s = time.monotonic(), 0.0
    context.observer.started(step, len(left), num_bytes)
    work = functools.partial(_execute, folder, function)
    for position, (outcome, task_cpu_s) in context.engine.map(work, [tasks[index] for index in left]):
        index = left[position]
        outcomes[index] = outcome
        cpu_s += task_cpu_s
        context.observer.advanced(step, tasks[index].num_bytes)
    _remove_strangers(folder, {task.name for task in tasks})
    log(
        context,
        step=step,
        tasks=len(left),
        reused=len(tasks) - len(left),
        wall_s=round(time.monotonic() - began_s, 3),
        cpu_s=round(cpu_s, 3),
        bytes=num_bytes,
    )
    context.observer.finished(step, len(tasks) - len(left))
    return [outcome for outcome in outcomes if outcome is not None]


def commit_step(context: Context, step: str, facts: Mapping[str, Any]) -> None:
    """Commit the step as a whole: its manifest is the sign that every task is there."""
    manifest.write(context.out / step / STEP_MANIFEST, facts)


def committed_step(context: Context, step: str) -> dict[str, Any] | None:
    """What `commit_step` wrote, or None."""
    return manifest.read(context.out / step / STEP_MANIFEST)


def committed_files(folder: Path) -> Iterator[tuple[Path, FileRecord]]:
    """Every file that a step's tasks committed, with what must be true of it."""
    for path in sorted((folder / _TASKS).glob("*.json")):
        found = read_outcome(folder, path.stem)
        if found is not None:
            yield from ((folder / name, record) for name, record in found[1].files.items())


def remove_outcome(folder: Path, name: str) -> None:
    """Remove a task's manifest, so that the task is not taken for done."""
    (folder / _TASKS / f"{name}.json").unlink(missing_ok=True)


def log(context: Context, **entry: Any) -> None:
    """Append to the run log: what each step of each run cost."""
    with manifest.storage_errors(context.out), (context.out / RUN_LOG).open("a") as log:
        log.write(json.dumps({"run": context.run_id, **entry}) + "\n")


def _execute(folder: Path, function: Callable[[Path, Any], Outcome], task: Task) -> tuple[Outcome, float]:
    began_s = time.thread_time()
    outcome = function(folder, task.arguments)
    content = {"fingerprint": task.fingerprint, "facts": outcome.facts}
    files = {name: dataclasses.asdict(record) for name, record in outcome.files.items()}
    manifest.write(folder / _TASKS / f"{task.name}.json", {**content, "files": files})
    return outcome, time.thread_time() - began_s


def read_outcome(folder: Path, name: str) -> tuple[str, Outcome] | None:
    """A task's fingerprint and outcome from its manifest, or None where there is none."""
    path = folder / _TASKS / f"{name}.json"
    found = manifest.read(path)
    if found is None:
        return None
    try:
        files = {name: FileRecord(**record) for name, record in found["files"].items()}
        return found["fingerprint"], Outcome(files=files, facts=found["facts"])
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path} is not a task's manifest of this version; remove it and run again") from error


def _committed_outcome(folder: Path, task: Task) -> Outcome | None:
    found = read_outcome(folder, task.name)
    if found is None or found[0] != task.fingerprint:
        return None
    for name, record in found[1].files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != record.num_bytes:
            return None
    return found[1]


def _remove_strangers(folder: Path, names: set[str]) -> None:
    """Remove what an earlier run with other tasks, or a killed one, left in the step's folder."""
    if not folder.is_dir():
        return
    for path in [*folder.iterdir(), *(folder / _TASKS).glob("*")]:
        if path.is_file() and path.name != STEP_MANIFEST and path.name.partition(".")[0] not in names:
            path.unlink()
