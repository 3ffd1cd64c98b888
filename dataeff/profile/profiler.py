"""The stall profiler: times what the loop waits for, in a script that knows nothing of it or in a loop of one's own."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any, Generic, TypeVar

import torch

from dataeff.errors import PlanError
from dataeff.profile.attribution import NOT_MADE, Made, Wait
from dataeff.profile.clocks import Clock, CpuClock, CudaClock
from dataeff.profile.hooks import install, install_device, remove
from dataeff.profile.windows import Kind, Pass, Rows, Span, Thread, Timeline, Window
from dataeff.profile.workers import size_of
from dataeff.steps import RUN_FILE, RankClock, RunInfo, StepRecorder

Batch = TypeVar("Batch")

_SIZE = Made._fields[Made._fields.index("samples") :]
_TOGETHER = 4096
"""Windows that are turned into rows together."""
_SOON_NS = 1_000_000_000
"""Windows that come faster are written down at once: two threads would hinder each other more."""
_WRITE_NS = 60_000_000_000
"""Or after so long, so that a run of slow steps that is killed loses little."""
_JOINED_NS = 1_000_000
"""A first `next()` so soon after `iter()` is one wait with it."""


class Profiler:
    """Measures how long the device had no work since the loop had no batch, and why; writes a run directory.

        with Profiler() as profiler:
            for batch in profiler.watch(loader):
                ...

    `torch.utils.data.DataLoader` is timed whether watched or not, in worker processes too; anything else that is
    iterated must be watched. A step ends with `torch.optim.Optimizer.step`; or with `step`, if that is called; or, in
    a watched loop with neither, with the next request. One profiler is at work in a process at a time.

    A batch that no DataLoader stamped is split coarsely: the processor time of the loop's thread in `next()` is
    decode, the rest storage. If its loader says that it has no workers, other settings are predicted from that too.

    Args:
        out: Run directory; made if it is not there, `profile` here if nothing is given.
        clock: Whose idle time to measure; None takes the CUDA device once the script uses one, else the loop's clock.
        rank, world: Of this process; None takes torchrun's environment.
        command: To keep in the record.
        max_steps: End the program with `SystemExit` after so many.
        sequence_length: Tokens a sample; None takes it from the batches.
        flops_per_token, team, project: To keep in the record; see `RunInfo`.

    Raises:
        PlanError: The directory holds a run, or another profiler is at work.
    """

    def __init__(
        self,
        out: str | Path = "profile",
        *,
        clock: Clock | None = None,
        rank: int | None = None,
        world: int | None = None,
        command: str = "",
        max_steps: int | None = None,
        sequence_length: int | None = None,
        flops_per_token: float | None = None,
        team: str = "",
        project: str = "",
    ) -> None:
        self._out = Path(out)
        self._rank = int(os.environ.get("RANK", "0")) if rank is None else rank
        self._world = int(os.environ.get("WORLD_SIZE", "1")) if world is None else world
        self._kept: dict[str, Any] = {
            "command": command,
            "sequence_length": sequence_length,
            "flops_per_token": flops_per_token,
            "team": team,
            "project": project,
        }
        self._max_steps = max_steps
        self._chosen = clock
        self._clock: Clock = clock or CpuClock()
        self._timeline = Timeline(self._clock.now_ns(), self._closed)
        self._windows: deque[Window] = deque()
        self._rows = Rows()
        self._recorder: StepRecorder | None = None
        self._passes = 0
        self._loader: dict[str, Any] = {}
        self._writer: threading.Thread | None = None
        self._written_ns = self._clock.now_ns()
        self._check_directory()

    @property
    def num_steps(self) -> int:
        """Steps that ended."""
        return self._timeline.num_steps

    @property
    def num_batches(self) -> int:
        """Batches that were seen, in any thread and also in evaluations."""
        return self._timeline.num_batches

    def __enter__(self) -> Profiler:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if kind is None and not self.num_steps:
            warnings.warn(
                "dataeff's profiler saw no step: iterate over profiler.watch(loader), or call profiler.step()",
                stacklevel=2,
            )

    def start(self) -> None:
        """Begin; `with` does it."""
        install(self)

    def close(self) -> None:
        """Write all that is left; waits for the device, once."""
        remove(self)
        if self._writer is not None:
            self._writer.join()
        self._timeline.finish(self._clock.now_ns())
        if self._writer is not None:
            self._writer.join()
        if self._windows:
            self._clock.finish()
        self._write()

    def watch(self, batches: Iterable[Batch]) -> Watched[Batch]:
        """Iterate over anything, timed.

        Where it has an attribute `loader_settings`, a dict of `num_workers`, `prefetch_factor`, `pin_memory` and
        `batch_size`, these go into the record.
        """
        self._timeline.watching()
        return Watched(self, batches)

    def step(self, *, tokens: int | None = None, samples: int | None = None, loss: float | None = None) -> None:
        """A step is over; from the first call on, steps end here only.

        Args:
            tokens, samples: That it trained on; None counts them in the batches.
            loss: A number: to read a device's tensor would wait for the device.
        """
        thread = self._timeline.thread(get_ident())
        self._timeline.step(thread, self._clock.now_ns(), tokens, samples, loss)
        self._stepped()

    def copying(self) -> contextlib.AbstractContextManager[None]:
        """Around a copy of a batch to the device that the profiler cannot see for itself."""
        return self.span("copy")

    def synchronizing(self) -> contextlib.AbstractContextManager[None]:
        """Around a call that waits until the device has done all its work."""
        return self.span("sync")

    def evaluating(self) -> contextlib.AbstractContextManager[None]:
        """Around an evaluation that reads no watched loader."""
        return self.span("evaluation")

    def checkpointing(self) -> contextlib.AbstractContextManager[None]:
        """Around the writing of a checkpoint by other means than `torch.save`."""
        return self.span("checkpoint")

    @contextlib.contextmanager
    def span(self, kind: Kind) -> Iterator[None]:
        """Note a stretch of the loop's time; what is inside another one of this thread is part of that."""
        thread = self._timeline.thread(get_ident())
        if thread.inside:
            yield
            return
        thread.inside = True
        clock = self._clock
        mark, start = clock.mark() if kind == "copy" else None, clock.now_ns()
        try:
            yield
        finally:
            thread.inside = False
            stop = clock.now_ns()
            span = Span(start, stop, mark, clock.mark() if kind == "copy" else None)
            self._timeline.span(thread, kind, span)

    def copy(self, call: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Make a copy; timed if it turns out to be on the device, and batches are being read: not a model's."""
        thread = self._timeline.thread(get_ident())
        if thread.inside or not self._timeline.num_batches:
            return call()
        clock = self._clock
        mark, start = clock.mark(), clock.now_ns()
        result = call()
        if result.is_cuda:
            self._timeline.span(thread, "copy", Span(start, clock.now_ns(), mark, clock.mark()))
        else:
            clock.release((mark,))
        return result

    def begin_pass(self, iterate: Callable[[], Any], facts: dict[str, Any] | None = None) -> tuple[Any, Pass]:
        """Make an iterator, and the pass that its batches belong to."""
        self._passes += 1
        begun = Pass(self._passes, facts)
        clock, cpu = self._clock, self._clock.cpu_ns()
        mark, start = clock.mark(), clock.now_ns()
        iterator = self._apart(iterate)
        begun.span = Span(start, clock.now_ns(), mark, None), clock.cpu_ns() - cpu
        return iterator, begun

    def _apart(self, iterate: Callable[[], Any]) -> Any:
        """Make an iterator; batches that it takes of another loader meanwhile are part of that, as `Headroom`'s are."""
        thread = self._timeline.thread(get_ident())
        inside, thread.inside = thread.inside, True
        try:
            return iterate()
        finally:
            thread.inside = inside

    def take(self, source: Pass, fetch: Callable[[], Batch], *, watched: bool = False) -> Batch:
        """Fetch a batch, timed if this is the thread's outermost `next()`."""
        thread = self._timeline.thread(get_ident())
        if thread.inside:
            thread.facts = source.facts
            return fetch()
        if self._chosen is None and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            self._use_cuda()
        clock = self._clock
        thread.inside, thread.made = True, None
        # A batch with stamps needs no coarse rule; after a synchronisation it counts what the loop itself did.
        cpu = clock.cpu_ns() if thread.drained_ns or not source.stamped else None
        mark, start = clock.mark(), clock.now_ns()
        try:
            batch = fetch()
        except StopIteration:
            self._took(thread, source, (mark, start, cpu), None, watched)
            raise
        finally:
            thread.inside = False
        made = thread.made
        if made is None:
            made = NOT_MADE._replace(**dict(zip(_SIZE, size_of(batch), strict=True)))
        self._took(thread, source, (mark, start, cpu), made, watched)
        return batch

    def _took(
        self, thread: Thread, source: Pass, begun: tuple[Any, int, int | None], made: Made | None, watched: bool
    ) -> None:
        """Note a wait that ends now; `made` is None where the pass does."""
        clock = self._clock
        stop, stop_mark = clock.now_ns(), clock.mark()
        mark, start, cpu = begun
        cpu = 0 if cpu is None else clock.cpu_ns() - cpu
        first = not source.asked
        if first:
            source.asked = True
            source.facts = source.facts or thread.facts
            if source.span is not None and start - source.span[0].stop_ns < _JOINED_NS:
                (start, _, mark, _), more = source.span
                cpu += more
            self._loader = source.facts or self._loader
        ended = made is None
        made = made or NOT_MADE
        source.stamped = made.stamped == 1
        if not ended and not source.stamped and source.facts and source.facts.get("num_workers") == 0:
            # A loader that says it has no workers made the batch within this very wait.
            made = made._replace(
                stamped=1,
                fetch_start_ns=start,
                fetch_stop_ns=stop,
                fetch_cpu_ns=cpu,
                collate_start_ns=stop,
                collate_stop_ns=stop,
            )
        trains = torch.is_grad_enabled()
        drained = thread.drained_ns
        wait = Wait(source.serial, first, start, stop, cpu, drained, trains, ended, 0, -1, *made, mark, stop_mark)
        self._timeline.wait(thread, wait, watched=watched)

    def made(self, made: Made) -> None:
        """The batch that this thread is fetching was made so."""
        self._timeline.thread(get_ident()).made = made

    def optimizer_step(self, optimizer: object, args: object = None, kwargs: object = None) -> None:
        """An optimizer stepped in this thread; what torch calls a hook with."""
        timeline = self._timeline
        timeline.optimizer_step(timeline.thread(get_ident()), self._clock.now_ns(), id(optimizer))
        if self._max_steps is not None:
            self._stepped()

    def _stepped(self) -> None:
        if self._max_steps is not None and self._timeline.num_steps >= self._max_steps:
            raise SystemExit(0)

    def _use_cuda(self) -> None:
        """The script turned out to use a device; what was marked before is measured by the loop's clock no more."""
        self._clock = self._chosen = CudaClock()
        install_device(self)

    def _check_directory(self) -> None:
        mine = [self._out / RUN_FILE] if self._rank == 0 else []
        mine += self._out.glob(f"steps/rank-{self._rank:05d}-*")
        found = next((path for path in mine if path.exists()), None)
        if found is not None:
            raise PlanError(f"{self._out} holds a recorded run ({found.name}): give --out another directory")

    def _closed(self, window: Window) -> None:
        self._windows.append(window)
        since_ns = window.stop_ns - self._written_ns
        if len(self._windows) < _TOGETHER and since_ns < _WRITE_NS:
            return
        if self._writer is not None and self._writer.is_alive():
            return
        self._written_ns = window.stop_ns
        if since_ns < _SOON_NS:
            self._write()
            return
        # A slow disk must not make the loop wait. The thread ends when it has written, so that a loop which forks
        # workers hardly ever does so beside it.
        self._writer = threading.Thread(target=self._write, name="dataeff-profile", daemon=True)
        self._writer.start()

    def _write(self) -> None:
        """Turn windows into rows, as far as the device has come."""
        windows = [self._windows[number] for number in range(len(self._windows))]
        if not windows:
            return
        done, steps, batches = self._rows.of(windows, self._clock)
        if not done:
            return
        recorder = self._recorder or self._open(windows[0])
        recorder.add(steps, batches)
        for window in windows[:done]:
            self._clock.release(window.marks())
            self._windows.popleft()

    def _open(self, window: Window) -> StepRecorder:
        """The recorder: made late, when it is known what the loop reads and where it computes."""
        first = next((wait for wait in window.waits if not wait.ended), None)
        facts = dict(self._loader)
        kept = dict(self._kept)
        if first is not None:
            facts["batch_size"] = facts.get("batch_size") or first.samples or None
            kept["sequence_length"] = kept["sequence_length"] or first.sequence_length or None
        info = RunInfo(
            run=f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}",
            world=self._world,
            clock=self._clock.name,
            device=self._clock.device(),
            cores=len(os.sched_getaffinity(0)) / int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
            **facts,
            **kept,
        )
        self._recorder = StepRecorder(self._out, self._rank, info, RankClock.now())
        return self._recorder


class Watched(Generic[Batch]):
    """An iterable whose `next()` is timed; each `for` over it is a pass."""

    def __init__(self, profiler: Profiler, batches: Iterable[Batch]) -> None:
        self._profiler, self._batches = profiler, batches

    def __iter__(self) -> Iterator[Batch]:
        settings = getattr(self._batches, "loader_settings", None)
        iterator, source = self._profiler.begin_pass(lambda: iter(self._batches), settings)
        return _WatchedPass(self._profiler, source, iterator)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)


class _WatchedPass(Iterator[Batch]):
    def __init__(self, profiler: Profiler, source: Pass, iterator: Iterator[Batch]) -> None:
        self._take, self._source, self._fetch = profiler.take, source, iterator.__next__

    def __next__(self) -> Batch:
        return self._take(self._source, self._fetch, watched=True)
