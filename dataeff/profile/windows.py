"""What the threads of a process did, cut into steps: the bookkeeping between stamps and rows, without any clock.

The loop's thread is the one that ends steps. What other threads waited for is no wait of the loop; it is kept for a
moment, since a loop that waits for a prefetching thread waits for what that thread waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from dataeff.arrow import I64
from dataeff.profile.attribution import WHOLE, Made, Wait, evaluations, stall_by_cause, training_sources
from dataeff.profile.clocks import Clock
from dataeff.steps import BATCHES, STEPS

Kind = Literal["copy", "sync", "evaluation", "checkpoint"]

PATIENCE = 64
"""Batches of a watched loop after which it is taken to have no optimizer: each batch is then a step."""
_BACKGROUND = 64
"""Waits that are kept of a thread that ends no step, while another does."""
_UNCLAIMED = 4096
"""The same, while none does."""


class Span(NamedTuple):
    """A stretch of the loop's time, with the marks that the clock set in the compute stream at its ends."""

    start_ns: int
    stop_ns: int
    start_mark: Any = None
    stop_mark: Any = None


class Pass:
    """One pass over a loader."""

    __slots__ = ("asked", "facts", "serial", "span", "stamped")

    def __init__(self, serial: int, facts: dict[str, Any] | None = None) -> None:
        self.serial, self.facts = serial, facts or {}
        self.asked = False
        self.stamped = False
        """Whether its last batch had stamps."""
        self.span: tuple[Span, int] | None = None
        """Of the `iter()` that began it, with the processor time in it."""


@dataclass(slots=True)
class Thread:
    """What a thread did since its last step."""

    waits: list[Wait] = field(default_factory=list)
    spans: list[tuple[Kind, Span]] = field(default_factory=list)
    drained_ns: int = 0
    """In synchronisations since the last wait."""
    inside: bool = False
    """Whether it is in a `next()` that is being timed: what happens in there is part of it."""
    made: Made | None = None
    """Stamps of the batch that it fetched last."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Settings of the loader that it fetched from last."""


@dataclass(slots=True)
class Window:
    """A step as it was seen."""

    start_ns: int
    stop_ns: int
    waits: Sequence[Wait]
    spans: Sequence[tuple[Kind, Span]]
    enders: tuple[int, ...]
    """Optimizers whose steps ended it."""
    background: Sequence[Wait]
    """Stamped waits of other threads, where the loop has waits without stamps."""
    tokens: int | None = None
    samples: int | None = None
    loss: float | None = None

    def marks(self) -> Iterator[Any]:
        """All marks that were set in it."""
        for wait in self.waits:
            yield from wait[WHOLE:]
        for _, span in self.spans:
            yield from span[2:]


class Timeline:
    """Cuts what threads did into windows.

    A step ends with an optimizer's step; or, once `step` was called, there and only there; or, where a watched loop
    has neither, with the request for the next batch. An optimizer that steps before anything was asked of a loader,
    after another one did, belongs to the same step (models with two optimizers).

    Args:
        start_ns: Where the first step begins at the earliest.
        on_window: Given each window when nothing can be added to it.
    """

    def __init__(self, start_ns: int, on_window: Callable[[Window], None]) -> None:
        self._on_window = on_window
        self._threads: dict[int, Thread] = {}
        self._start_ns = start_ns
        self._reached_ns: int | None = None
        self._last: Window | None = None
        self._steps_by: Literal["optimizer", "caller", "batch"] | None = None
        self.num_steps = 0
        self.num_batches = 0

    def thread(self, ident: int) -> Thread:
        """The thread of that number."""
        thread = self._threads.get(ident)
        if thread is None:
            thread = self._threads[ident] = Thread()
        return thread

    def wait(self, thread: Thread, wait: Wait, *, watched: bool = False) -> None:
        """A thread waited."""
        if not wait.ended:
            self.num_batches += 1
        if self._steps_by == "batch" and watched and any(not earlier.ended for earlier in thread.waits):
            self._close(thread, wait.start_ns)
        thread.waits.append(wait)
        thread.drained_ns = 0
        if self._steps_by is None:
            if watched and len(thread.waits) > PATIENCE:
                self._step_by_batch(thread)
            elif len(thread.waits) > _UNCLAIMED:
                del thread.waits[: _UNCLAIMED // 2]

    def span(self, thread: Thread, kind: Kind, span: Span) -> None:
        """A thread copied, synchronised, evaluated or saved."""
        thread.spans.append((kind, span))
        if kind == "sync":
            thread.drained_ns += span.stop_ns - span.start_ns
        if len(thread.spans) > _UNCLAIMED and self._steps_by is None:
            del thread.spans[: _UNCLAIMED // 2]

    def optimizer_step(self, thread: Thread, at_ns: int, optimizer: int) -> None:
        """An optimizer stepped."""
        if self._steps_by == "caller":
            return
        last = self._last
        if last is not None and last.enders and optimizer not in last.enders and not thread.waits:
            self._extend(last, thread, at_ns)
            last.enders += (optimizer,)
            return
        self._steps_by = "optimizer"
        self._close(thread, at_ns, optimizer)

    def step(
        self,
        thread: Thread,
        at_ns: int,
        tokens: int | None = None,
        samples: int | None = None,
        loss: float | None = None,
    ) -> None:
        """The caller says that a step is over, and what it held."""
        window = self._last
        if window is not None and window.enders and self._steps_by != "caller" and not thread.waits:
            self._extend(window, thread, at_ns)
        else:
            window = self._close(thread, at_ns)
        self._steps_by = "caller"
        window.tokens, window.samples, window.loss = tokens, samples, loss

    def finish(self, at_ns: int) -> None:
        """Nothing more will come."""
        watching = next((thread for thread in self._threads.values() if thread.waits), None)
        if self._steps_by is None and self._watched and watching is not None:
            self._step_by_batch(watching)
        if self._steps_by == "batch" and watching is not None and any(not wait.ended for wait in watching.waits):
            self._close(watching, at_ns)
        if self._last is not None:
            self._on_window(self._last)
            self._last = None

    _watched = False

    def watching(self) -> None:
        """A loop is watched, so that batches may be steps."""
        self._watched = True

    def _step_by_batch(self, thread: Thread) -> None:
        self._steps_by = "batch"
        waits, thread.waits = thread.waits, []
        for wait in waits:
            if any(not earlier.ended for earlier in thread.waits):
                self._close(thread, wait.start_ns)
            thread.waits.append(wait)

    def _extend(self, window: Window, thread: Thread, at_ns: int) -> None:
        window.stop_ns = self._reached_ns = at_ns
        window.spans = [*window.spans, *thread.spans]
        thread.spans = []

    def _close(self, thread: Thread, at_ns: int, optimizer: int | None = None) -> Window:
        """End the step of a thread."""
        waits, thread.waits = thread.waits, []
        # Thousands of windows are kept for a while: empty tuples are no work for the garbage collector.
        spans: Sequence[tuple[Kind, Span]] = ()
        if thread.spans:
            spans = [entry for entry in thread.spans if entry[1].start_ns < at_ns]
            thread.spans = thread.spans[len(spans) :]
        start_ns = self._reached_ns
        if start_ns is None:
            start_ns = waits[0].start_ns if waits else self._start_ns
        window = Window(
            start_ns=start_ns,
            stop_ns=at_ns,
            waits=waits,
            spans=spans,
            enders=() if optimizer is None else (optimizer,),
            background=self._background(thread, waits) if len(self._threads) > 1 else (),
        )
        self._reached_ns = at_ns
        self.num_steps += 1
        last, self._last = self._last, window
        if last is not None:
            self._on_window(last)
        return window

    def _background(self, loop: Thread, waits: Sequence[Wait]) -> Sequence[Wait]:
        found: list[Wait] = []
        for thread in list(self._threads.values()):
            if thread is loop:
                continue
            del thread.waits[:-_BACKGROUND], thread.spans[:-_BACKGROUND]
            found += [wait for wait in thread.waits if wait.stamped]
        return found if any(not wait.stamped for wait in waits) else ()


class Rows:
    """Turns windows, in order, into rows of the record."""

    def __init__(self) -> None:
        self._training: set[int] = set()
        self._before: set[int] = set()
        self._step = self._batch = 0

    def of(self, windows: Sequence[Window], clock: Clock) -> tuple[int, pa.Table, pa.Table]:
        """Rows of as many windows as the device has come to the last mark of.

        Returns:
            How many windows; their `STEPS`; their `BATCHES`.
        """
        waits: list[Wait] = []
        exposed: list[int] = []
        ends: list[int] = []
        beside: list[Mapping[str, int]] = []
        for window in windows:
            idle = _idle_ns(window, clock)
            if idle is None:
                break
            evaluated = self._evaluations(window)
            for wait, exposed_ns in zip(window.waits, idle, strict=True):
                if wait.source in self._training:
                    waits.append(_with_background(wait, window.background) if window.background else wait)
                    exposed.append(exposed_ns)
            ends.append(len(waits))
            beside.append(_beside(window, evaluated, clock) if window.spans or evaluated else _NOTHING)
        done = windows[: len(ends)]
        whole = np.array([wait[:WHOLE] for wait in waits], np.int64).reshape(-1, WHOLE)
        field = dict(zip(Wait._fields, whole.T, strict=False))
        step_of: I64 = np.searchsorted(np.array(ends, np.int64), np.arange(len(waits)), side="right")
        steps = self._steps(done, field, stall_by_cause(whole, np.array(exposed, np.int64)), step_of, beside)
        batches = self._batches(done, waits, field, step_of)
        self._step += steps.num_rows
        self._batch += batches.num_rows
        return len(done), steps, batches

    def _evaluations(self, window: Window) -> list[tuple[int, int]]:
        """Where the loop evaluated; decides which passes train."""
        training = self._training
        if all(wait.source in training for wait in window.waits):
            self._before = training
            return []
        # Passes end: those that this window does not know are forgotten.
        self._training = training_sources(window.waits, training, self._before)
        self._before = {wait.source for wait in window.waits if not wait.ended}
        return evaluations(window.waits, self._training, window.stop_ns)

    def _steps(
        self,
        windows: Sequence[Window],
        field: Mapping[str, I64],
        causes: Mapping[str, I64],
        step_of: I64,
        beside: Sequence[Mapping[str, int]],
    ) -> pa.Table:
        count = len(windows)

        def total(values: I64) -> I64:
            sums = np.zeros(count, np.int64)
            np.add.at(sums, step_of, values)
            return sums

        stalls = {cause: total(took_ns) for cause, took_ns in causes.items()}
        stalls["copy"] = np.array([entry.get("exposed", 0) for entry in beside], np.int64)
        columns: dict[str, Any] = {
            "step": np.arange(self._step, self._step + count),
            "start_ns": [window.start_ns for window in windows],
            "stop_ns": [window.stop_ns for window in windows],
            "micro_batches": total(1 - field["ended"]),
            "samples": _said([window.samples for window in windows], total(field["samples"])),
            "tokens": _said([window.tokens for window in windows], total(field["tokens"])),
            "loss": [window.loss for window in windows],
            "wait_ns": total(field["stop_ns"] - field["start_ns"]),
            **{f"{kind}_ns": [entry.get(kind, 0) for entry in beside] for kind in get_args(Kind)},
            "stall_ns": sum(stalls.values()),
            **{f"stall_{cause}_ns": took_ns for cause, took_ns in stalls.items()},
            # The first step of a run also compiles, allocates and so on.
            "steady": (total(field["first"] | field["ended"]) == 0) & (np.arange(count) + self._step > 0),
        }
        return pa.table([pa.array(columns[name.name], name.type) for name in STEPS], schema=STEPS)

    def _batches(
        self, windows: Sequence[Window], waits: Sequence[Wait], field: Mapping[str, I64], step_of: I64
    ) -> pa.Table:
        taken = field["ended"] == 0
        unstamped = field["stamped"][taken] == 0
        count = int(taken.sum())
        columns: dict[str, Any] = {
            "step": step_of[taken] + self._step,
            "batch": np.arange(self._batch, self._batch + count),
            "wait_start_ns": field["start_ns"][taken],
            "wait_stop_ns": field["stop_ns"][taken],
            "samples": field["samples"][taken],
            "num_bytes": field["num_bytes"][taken],
            "pinned": pa.array(field["pinned"][taken] > 0, mask=field["pinned"][taken] < 0),
        }
        for name in Made._fields[Made._fields.index("worker") : Made._fields.index("samples")]:
            columns[name] = pa.array(field[name][taken], mask=unstamped)
        columns["copy_start_ns"], columns["copy_stop_ns"] = _copies(windows, waits, step_of)
        return pa.table([pa.array(columns[name.name], name.type) for name in BATCHES], schema=BATCHES)


_NOTHING: Mapping[str, int] = {}


def _said(values: Sequence[int | None], counted: I64) -> list[int]:
    """What the caller said, or else what was counted."""
    return [int(count) if value is None else value for value, count in zip(values, counted, strict=True)]


def _idle_ns(window: Window, clock: Clock) -> list[int] | None:
    """Of each wait what the device noticed; None while it has not come to the last mark of the window."""
    found: list[int] = []
    for wait in window.waits:
        idle = clock.between_ns(wait.start_mark, wait.stop_mark)
        if idle is None:
            return None
        found.append(idle)
    for kind, span in window.spans:
        if kind == "copy" and clock.between_ns(span.start_mark, span.stop_mark) is None:
            return None
    return found


def _beside(window: Window, evaluated: Sequence[tuple[int, int]], clock: Clock) -> dict[str, int]:
    """Time of the loop by kind, beside waits, and `exposed`, what of the copies the device noticed.

    What is done in an evaluation is part of that.
    """
    took: dict[str, int] = {"evaluation": sum(stop - start for start, stop in evaluated)}
    for kind, span in window.spans:
        if any(start <= span.start_ns < stop for start, stop in evaluated):
            continue
        took[kind] = took.get(kind, 0) + span.stop_ns - span.start_ns
        if kind == "copy":
            took["exposed"] = took.get("exposed", 0) + (clock.between_ns(span.start_mark, span.stop_mark) or 0)
    return took


def _copies(
    windows: Sequence[Window], waits: Sequence[Wait], step_of: I64
) -> tuple[list[int | None], list[int | None]]:
    """When each batch was copied: between its wait and the next one, or the end of its step."""
    starts: list[int | None] = []
    stops: list[int | None] = []
    for number, wait in enumerate(waits):
        if wait.ended:
            continue
        window = windows[step_of[number]]
        mine: list[Span] = []
        if window.spans:
            later = number + 1 < len(waits) and step_of[number + 1] == step_of[number]
            until = waits[number + 1].start_ns if later else window.stop_ns
            mine = [span for kind, span in window.spans if kind == "copy" and wait.stop_ns <= span.start_ns < until]
        starts.append(mine[0].start_ns if mine else None)
        stops.append(mine[-1].stop_ns if mine else None)
    return starts, stops


def _with_background(wait: Wait, background: Sequence[Wait]) -> Wait:
    """The wait with the stamps of the batch that a prefetching thread had last when it ended.

    While the loop waits for the thread's queue, the queue is empty, so what the loop gets is what the thread got last.
    A wait in which the loop's thread computed was for no queue.
    """
    if wait.stamped or wait.ended or 2 * wait.cpu_ns > wait.stop_ns - wait.start_ns:
        return wait
    earlier = [other for other in background if other.stop_ns <= wait.stop_ns]
    if not earlier:
        return wait
    latest = max(earlier, key=lambda other: other.stop_ns)
    stamps = {name: getattr(latest, name) for name in _STAMPS}
    return wait._replace(elsewhere=1, **stamps)


_STAMPS = Made._fields[: Made._fields.index("samples")]
