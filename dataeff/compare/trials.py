"""Trials: a proxy trained on a candidate with one seed, to a number of tokens, paused there and gone on with."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataeff.compare.journal import Entry, Phase
from dataeff.contest import Job
from dataeff.engine import num_cores
from dataeff.errors import MeasurementError

FOLDER = "trials"
_ATTEMPTS = 2
_LOOK_S = 1.0
_GRACE_S = 10.0
_LONGEST = 500
"""Letters kept of a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a trial of one candidate and proxy is trained; sent to the process that does it."""

    corpus: str
    validation: str
    shape: Mapping[str, Any]
    settings: Mapping[str, Any]
    """Of `TrainSettings`, all that a job does not say."""
    step_tokens: int
    domains: Mapping[str, float]
    """Weight of each source's loss; they sum to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A job, and where it is done."""

    phase: Phase
    job: Job
    plan: Plan
    out: Path
    branch_of: Path | None = None
    """The trial whose last checkpoint an annealed one begins with."""


def directory(out: Path, job: Job) -> Path:
    """Of a trial."""
    return out / FOLDER / job.size / job.candidate / f"seed-{job.seed}"


def readings(trial: Path) -> dict[int, dict[str, float]]:
    """Validation losses by step and source; of steps that were done twice, the last."""
    path = trial / "validation.jsonl"
    found: dict[int, dict[str, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # cut off by a kill: the step is done again
        found[entry["step"]] = entry["losses"]
    return dict(sorted(found.items()))


def aggregate(losses: Mapping[str, float], domains: Mapping[str, float]) -> float:
    """Nats a token, domains weighed."""
    return math.fsum(weight * losses[name] for name, weight in domains.items() if weight)


class Runner:
    """Does jobs in processes of their own, so that one that dies takes no other with it.

    Args:
        workers: Jobs at a time; on a machine without accelerators the processors are shared out among them.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = self._new_pool()
        self._running: dict[Future[Entry], Task] = {}
        self._lost: Counter[Job] = Counter()
        self._processes: list[Any] = []

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._end_processes()
        self._pool.shutdown(cancel_futures=True)

    @property
    def running(self) -> list[Job]:
        """Jobs that were started and have no result yet."""
        return [task.job for task in self._running.values()]

    @property
    def free(self) -> bool:
        """Whether another job could start."""
        return len(self._running) < self._workers

    def start(self, task: Task) -> None:
        """Begin a job."""
        try:
            future = self._pool.submit(do, task)
            self._processes = list(self._pool._processes.values())
        except BrokenProcessPool:
            future = Future()
            future.set_exception(_NotBegunError())
        self._running[future] = task

    def finished(self) -> Iterator[Entry]:
        """Wait for a job or more, and what came out of them; nothing where a process died and its jobs go on anew.

        A job is given up, as failed, when its process died twice.
        """
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        lost, not_begun = [], []
        for future in [future for future in self._running if future in done]:
            task = self._running.pop(future)
            try:
                yield future.result()
            except _NotBegunError:
                not_begun.append(task)
            except BrokenProcessPool:
                lost.append(task)
        if not lost and not not_begun:
            return
        # Nobody can say whose process it was that died: all go on from their checkpoints.
        lost += self._running.values()
        self._running.clear()
        self._end_processes()
        self._pool.shutdown(wait=False)
        self._pool = self._new_pool()
        for task in lost:
            self._lost[task.job] += 1
            if self._lost[task.job] >= _ATTEMPTS:
                yield _failed(task, f"its process was killed {_ATTEMPTS} times: is memory short?")
            else:
                self.start(task)
        for task in not_begun:
            self.start(task)

    def run(self, tasks: Sequence[Task]) -> Iterator[Entry]:
        """Do all, in order as far as there is room."""
        left = list(tasks)
        while left or self._running:
            while left and self.free:
                self.start(left.pop(0))
            yield from self.finished()

    def _end_processes(self) -> None:
        """Let them write a checkpoint and end; one that is told so between two jobs does not hear it."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(_GRACE_S)
            process.kill()

    def _new_pool(self) -> ProcessPoolExecutor:
        threads = max(1, num_cores() // self._workers)
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(
            self._workers, mp_context=context, initializer=_begin, initargs=(threads, os.getpid())
        )


class _NotBegunError(BrokenProcessPool):
    """A process had died, idle or not, before the job could be given to one."""


def _begin(threads: int, parent: int) -> None:
    from dataeff.train.loop import set_threads

    set_threads(threads)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """Stop as if told to when the process that gives out jobs is gone."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)


def do(task: Task) -> Entry:
    """Train a trial as far as its job says; what was done already is only read."""
    with _alone(task.out):
        return _do(task)


@contextlib.contextmanager
def _alone(trial: Path) -> Iterator[None]:
    """Wait until no other process trains the trial: one whose parent was killed takes a moment to notice."""
    trial.parent.mkdir(parents=True, exist_ok=True)
    with (trial.parent / f".{trial.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _do(task: Task) -> Entry:
    from dataeff.train.loop import STOPPED, train
    from dataeff.train.settings import TrainSettings

    job, plan = task.job, task.plan
    steps = -(-job.tokens // plan.step_tokens)
    if max(readings(task.out), default=0) < steps:
        options = dict(plan.settings)
        if task.branch_of is not None:
            options["anneal_steps"] = steps - _branch(task.branch_of, task.out)
        settings = TrainSettings(**{**options, "steps": steps, "seed": job.seed, "validation": plan.validation})
        try:
            if train(plan.corpus, task.out, plan.shape, settings).end == "preempted":
                os._exit(STOPPED)
        except MeasurementError as error:
            return _failed(task, str(error))
        except RuntimeError as error:  # torch: out of memory and the like
            return _failed(task, f"{type(error).__name__}: {error}"[:_LONGEST])
    losses = _reading(readings(task.out), steps)
    loss = aggregate(losses, plan.domains)
    if not math.isfinite(loss):
        return _failed(task, f"its validation loss is {loss}")
    return Entry(phase=task.phase, job=job, loss=loss, losses=losses)


def _reading(found: Mapping[int, dict[str, float]], steps: int) -> dict[str, float]:
    """Losses at a step, or at the last reading before it in a trial that was trained further at once."""
    return found[max((step for step in found if step <= steps), default=min(found))]


def _branch(trial: Path, out: Path) -> int:
    """Give a new directory the last checkpoint of a trial, unless it has one; the step that it was taken at."""
    from dataeff.train.checkpoint import FOLDER as CHECKPOINTS
    from dataeff.train.checkpoint import checkpoints
    from dataeff.train.loop import RUN_FILE

    mark = out / "branch.json"
    if not mark.is_file():
        last = checkpoints(trial)[-1]
        (out / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(trial / RUN_FILE, out / RUN_FILE)
        shutil.copyfile(last, out / CHECKPOINTS / last.name)
        mark.write_text(json.dumps({"step": int(last.stem.rpartition("-")[2])}))
    return int(json.loads(mark.read_text())["step"])


def _failed(task: Task, why: str) -> Entry:
    return Entry(phase=task.phase, job=task.job, loss=None, losses={}, failure=why)
