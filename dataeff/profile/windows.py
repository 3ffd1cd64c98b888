"""What the threads of a process did, cut into steps: the bookkeeping between stamps and rows, without any clock.

The loop's thread is the one that ends steps. What other threads waited for is no wait of the loop; it is kept for a
moment, since a loop that waits for a prefetching thread waits for what that thread waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from dataeff.profile.attribution import Span, Wait, evaluation_ns, stall_by_cause, training_sources
from dataeff.profile.clocks import Clock
from dataeff.profile.workers import Made

Kind = Literal["copy", "sync", "evaluation", "checkpoint"]

PATIENCE = 64
"""Batches of a watched loop after which it is taken to have no optimizer: each batch is then a step."""
_BACKGROUND = 64
"""Waits that are kept of a thread that ends no step, while another does."""
_UNCLAIMED = 4096
"""The same, while none does."""


class Pass:
    """One pass over a loader."""

    __slots__ = ("asked", "facts", "serial", "span")

    def __init__(self, serial: int, facts: dict[str, Any] | None = None) -> None:
        self.serial, self.facts = serial, facts or {}
        self.asked = False
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
    waits: list[Wait]
    spans: list[tuple[Kind, Span]]
    enders: set[int]
    """Optimizers whose steps ended it."""
    background: list[Wait]
    """Stamped waits of other threads, where the loop has waits without stamps."""
    tokens: int | None = None
    samples: int | None = None
    loss: float | None = None

    def marks(self) -> Iterator[Any]:
        """All marks that were set in it."""
        for wait in self.waits:
            yield from wait.span[2:]
        for kind, span in self.spans:
            if kind == "copy":
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
        self.num_batches += wait.size is not None
        if self._steps_by == "batch" and watched and any(earlier.size is not None for earlier in thread.waits):
            self._close(thread, wait.span.start_ns)
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
            last.enders.add(optimizer)
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
        if self._steps_by == "batch" and watching is not None and any(wait.size for wait in watching.waits):
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
            if any(earlier.size is not None for earlier in thread.waits):
                self._close(thread, wait.span.start_ns)
            thread.waits.append(wait)

    def _extend(self, window: Window, thread: Thread, at_ns: int) -> None:
        window.stop_ns = self._reached_ns = at_ns
        window.spans += thread.spans
        thread.spans = []

    def _close(self, thread: Thread, at_ns: int, optimizer: int | None = None) -> Window:
        """End the step of a thread."""
        waits, thread.waits = thread.waits, []
        spans = [entry for entry in thread.spans if entry[1].start_ns < at_ns]
        thread.spans = thread.spans[len(spans) :]
        start_ns = self._reached_ns
        if start_ns is None:
            start_ns = waits[0].span.start_ns if waits else self._start_ns
        window = Window(
            start_ns=start_ns,
            stop_ns=at_ns,
            waits=waits,
            spans=spans,
            enders=set() if optimizer is None else {optimizer},
            background=self._background(thread, waits) if len(self._threads) > 1 else [],
        )
        self._reached_ns = at_ns
        self.num_steps += 1
        last, self._last = self._last, window
        if last is not None:
            self._on_window(last)
        return window

    def _background(self, loop: Thread, waits: list[Wait]) -> list[Wait]:
        found: list[Wait] = []
        for thread in list(self._threads.values()):
            if thread is loop:
                continue
            del thread.waits[:-_BACKGROUND], thread.spans[:-_BACKGROUND]
            found += [wait for wait in thread.waits if wait.made is not None]
        return found if any(wait.made is None for wait in waits) else []


class Rows:
    """Turns windows, in order, into rows of the record."""

    def __init__(self) -> None:
        self._training: set[int] = set()
        self._before: set[int] = set()
        self._step = self._batch = 0

    def of(self, window: Window, clock: Clock) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
        """The row of the step and those of its batches; None while the device has not come to its last mark."""
        exposed = [clock.between_ns(*wait.span[2:]) for wait in window.waits]
        copied = [clock.between_ns(*span[2:]) for kind, span in window.spans if kind == "copy"]
        if None in exposed or None in copied:
            return None
        training = training_sources(window.waits, self._training, self._before)
        self._before = {wait.source for wait in window.waits if wait.size is not None}
        # Passes end; without this the set would grow with the epochs.
        self._training = training
        fed = [
            (_with_background(wait, window.background), took or 0)
            for wait, took in zip(window.waits, exposed, strict=True)
            if wait.source in training
        ]
        step = self._step_row(window, fed, sum(entry or 0 for entry in copied), training)
        batches = self._batch_rows(window, [wait for wait, _ in fed if wait.size is not None])
        self._step += 1
        self._batch += len(batches)
        return step, batches

    def _step_row(
        self, window: Window, fed: list[tuple[Wait, int]], copied_ns: int, training: set[int]
    ) -> dict[str, Any]:
        causes = {"copy": copied_ns}
        for wait, exposed_ns in fed:
            for cause, took_ns in stall_by_cause(wait, exposed_ns).items():
                causes[cause] = causes.get(cause, 0) + took_ns
        sizes = [wait.size for wait, _ in fed if wait.size is not None]
        took = {kind: _total_ns(window, kind) for kind in ("copy", "sync", "evaluation", "checkpoint")}
        took["evaluation"] += evaluation_ns(window.waits, training, window.stop_ns)
        return {
            "step": self._step,
            "start_ns": window.start_ns,
            "stop_ns": window.stop_ns,
            "micro_batches": len(sizes),
            "samples": sum(size.samples for size in sizes) if window.samples is None else window.samples,
            "tokens": sum(size.tokens for size in sizes) if window.tokens is None else window.tokens,
            "loss": window.loss,
            "wait_ns": sum(wait.span.stop_ns - wait.span.start_ns for wait, _ in fed),
            **{f"{kind}_ns": took_ns for kind, took_ns in took.items()},
            "stall_ns": sum(causes.values()),
            **{f"stall_{cause}_ns": took_ns for cause, took_ns in causes.items()},
            "steady": self._step > 0 and not any(wait.first or wait.size is None for wait, _ in fed),
        }

    def _batch_rows(self, window: Window, waits: list[Wait]) -> list[dict[str, Any]]:
        rows = []
        copies = [span for kind, span in window.spans if kind == "copy"]
        for number, wait in enumerate(waits):
            row: dict[str, Any] = {
                "step": self._step,
                "batch": self._batch + number,
                "wait_start_ns": wait.span.start_ns,
                "wait_stop_ns": wait.span.stop_ns,
                "pinned": wait.pinned,
            }
            if wait.made is not None:
                row |= wait.made._asdict()
                del row["size"]
            if wait.size is not None:
                row["samples"], row["num_bytes"] = wait.size.samples, wait.size.num_bytes
            if copies:
                stop = waits[number + 1].span.start_ns if number + 1 < len(waits) else window.stop_ns
                mine = [span for span in copies if wait.span.stop_ns <= span.start_ns < stop]
                if mine:
                    row["copy_start_ns"], row["copy_stop_ns"] = mine[0].start_ns, mine[-1].stop_ns
            rows.append(row)
        return rows


def _total_ns(window: Window, kind: Kind) -> int:
    return sum(span.stop_ns - span.start_ns for entry, span in window.spans if entry == kind)


def _with_background(wait: Wait, background: list[Wait]) -> Wait:
    """The wait with the stamps of the batch that a prefetching thread had last when it ended.

    While the loop waits for the thread's queue, the queue is empty, so what the loop gets is what the thread got last.
    """
    if wait.made is not None or 2 * wait.cpu_ns > wait.span.stop_ns - wait.span.start_ns:
        return wait
    earlier = [other for other in background if other.span.stop_ns <= wait.span.stop_ns]
    if not earlier:
        return wait
    made = max(earlier, key=lambda other: other.span.stop_ns).made
    assert made is not None
    # To the loop it was made elsewhere even where the thread is of the same process.
    return wait._replace(made=made._replace(worker=max(made.worker, 0)))
