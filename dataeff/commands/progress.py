"""The progress bar: parts done, megabytes a second, time left; a plain line a step where nobody watches."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

_SLOW_S = 2.0


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        done, elapsed = task.fields["num_bytes"], task.elapsed or 0.0
        return Text(f"{done / 1e6 / elapsed:7.1f} MB/s" if done and elapsed > 0 else "")


class ProgressBar:
    """Shows steps on standard error; a context manager and a `dataeff.stages.tasks.Observer`."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(bar_width=28),
            TextColumn("{task.completed:>5.0f}/{task.total:.0f} parts"),
            _Rate(),
            TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._began_s: dict[str, float] = {}
        self._num_bytes: dict[str, int] = {}

    def started(self, step: str, num_tasks: int, num_bytes: int) -> None:
        """A step begins, with this much left to do."""
        self._began_s[step] = time.monotonic()
        self._num_bytes[step] = 0
        if num_tasks:
            self._tasks[step] = self._bar.add_task(step, total=num_tasks, num_bytes=0)

    def advanced(self, step: str, num_bytes: int) -> None:
        """One more task of the step is done."""
        self._num_bytes[step] += num_bytes
        self._bar.update(self._tasks[step], advance=1, num_bytes=self._num_bytes[step])

    def finished(self, step: str, num_reused: int) -> None:
        """The step is committed; so many of its tasks were already there."""
        task = self._tasks.pop(step, None)
        if task is not None:
            self._bar.remove_task(task)
        wall_s = time.monotonic() - self._began_s[step]
        reused = f", {num_reused} parts already there" if num_reused else ""
        if wall_s >= _SLOW_S or num_reused:
            rate = f", {self._num_bytes[step] / 1e6 / wall_s:.1f} MB/s" if self._num_bytes[step] else ""
            self._console.print(f"{step}: {wall_s:.1f} s{rate}{reused}", highlight=False)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._console.print(line, highlight=False, markup=False)

    def __enter__(self) -> Self:
        """Start drawing."""
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop drawing."""
        self._bar.stop()
