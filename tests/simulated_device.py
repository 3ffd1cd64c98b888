"""A training loop, its workers and its device on a virtual clock, with the truth about every stall.

Nothing waits for real: the loop below drives a real `Profiler`, and whatever takes time moves a number. The device
follows D_k = max(L_k, D_{k-1}) + g_k: kernel k starts when it is launched and the one before is done. The truth is
read from the device's own list of busy times and from the workers' own timelines, which the profiler never sees; it
sees stamps and event times only.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

from dataeff.profile.attribution import Made, Wait
from dataeff.profile.profiler import Profiler
from dataeff.steps import read_run

MS = 1_000_000
PREFETCHER = 999_999_999
"""Number of a thread that is not the loop's."""
RUN_AHEAD = 2
"""Steps that the loop may launch before the device must have done the first of them."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What takes how long, in milliseconds; each time varies by a fifth."""

    seed: int = 0
    steps: int = 60
    num_workers: int = 2
    prefetch_factor: int = 2
    samples: int = 32
    storage_ms: float = 0.0
    decode_ms: float = 0.0
    collate_ms: float = 0.1
    tell_ms: float = 0.05
    send_ms: float = 0.1
    receive_ms: float = 0.05
    launch_ms: float = 0.5
    compute_ms: float = 20.0
    micro_batches: int = 1
    copy: Literal["none", "inline", "side"] = "none"
    copy_ms: float = 2.0
    sync_every: int = 0
    """Steps after which the loop reads the loss; 0 never."""
    evaluate_every: int = 0
    epoch_batches: int = 10**9
    prefetcher: int = 0
    """Batches that a thread of the loop's process may be ahead; 0 without one."""

    def batch_ms(self) -> float:
        return self.storage_ms + self.decode_ms + self.collate_ms


class Mark(NamedTuple):
    at_ns: int


@dataclass
class Device:
    """A compute stream and a copy stream."""

    free_ns: int = 0
    copied_ns: int = 0
    busy: list[tuple[int, int]] = field(default_factory=list)
    """When the compute stream had something to do: kernels, copies, waiting for copies."""

    def launch(self, now_ns: int, took_ns: int) -> None:
        self.occupy(max(now_ns, self.free_ns), took_ns)

    def occupy(self, start_ns: int, took_ns: int) -> None:
        self.free_ns = start_ns + took_ns
        self.busy.append((start_ns, self.free_ns))

    def idle_in(self, start_ns: int, stop_ns: int) -> list[tuple[int, int]]:
        """Where it had nothing to do."""
        found, reached = [], start_ns
        for start, stop in self.busy:
            if stop <= reached or start >= stop_ns:
                continue
            if start > reached:
                found.append((reached, start))
            reached = max(reached, stop)
        return [*found, (reached, stop_ns)] if reached < stop_ns else found


class Clock:
    """What the profiler sees of both: the host's time, and event times once the device has come to them."""

    name = "cuda"

    def __init__(self, device: Device) -> None:
        self.now = self.cpu = 0
        self._device = device
        self.released = 0

    def device(self) -> str:
        return "simulated"

    def now_ns(self) -> int:
        return self.now

    def cpu_ns(self) -> int:
        return self.cpu

    def mark(self) -> Mark:
        return Mark(max(self.now, self._device.free_ns))

    def between_ns(self, start: Mark, stop: Mark) -> int | None:
        return stop.at_ns - start.at_ns if stop.at_ns <= self.now else None

    def release(self, marks: Iterable[Mark]) -> None:
        self.released += sum(1 for _ in marks)

    def finish(self) -> None:
        self.now = max(self.now, self._device.free_ns)


@dataclass
class Batch:
    """A batch, and when its worker did what."""

    made: Made
    states: list[tuple[str, int, int]]
    ready_ns: int


class Loader:
    """Workers that make batches, each when it was told and is free."""

    def __init__(self, run: Run, pipeline: Pipeline) -> None:
        self._run, self._pipeline = run, pipeline
        self._free = [run.clock.now] * max(pipeline.num_workers, 1)
        self._told: dict[int, int] = {}
        for number in range(pipeline.num_workers * pipeline.prefetch_factor):
            self._told[number] = run.clock.now

    def make(self, number: int, asked_ns: int) -> Batch:
        """The batch of that number, made by a worker, or from `asked_ns` on by the loop itself."""
        pipeline, time = self._pipeline, self._run.varied
        worker = number % pipeline.num_workers if pipeline.num_workers else -1
        if worker >= 0:
            now = max(self._told.pop(number) + time(pipeline.tell_ms), self._free[worker])
        else:
            now = asked_ns + time(pipeline.tell_ms)
        start, cpu, states = now, 0, []
        for _ in range(pipeline.samples):
            for state, took in (
                ("storage", time(pipeline.storage_ms / pipeline.samples)),
                ("decode", time(pipeline.decode_ms / pipeline.samples)),
            ):
                states.append((state, now, now + took))
                now += took
                cpu += took * (state == "decode")
        fetched = now
        now += time(pipeline.collate_ms)
        states.append(("collate", fetched, now))
        if worker >= 0:
            self._free[worker] = now
        made = Made(1, worker, start, fetched, cpu, fetched, now, pipeline.samples, 0, 0, 0)
        return Batch(made, states, now + (time(pipeline.send_ms) if worker >= 0 else 0))

    def taken(self, number: int, at_ns: int) -> None:
        """Whoever takes a batch lets one more begin."""
        self._told[number + self._pipeline.num_workers * self._pipeline.prefetch_factor] = at_ns


class Prefetcher:
    """A thread of the loop's process that takes batches from workers into a queue."""

    def __init__(self, run: Run, loader: Loader, pipeline: Pipeline) -> None:
        self._run, self._loader, self._pipeline = run, loader, pipeline
        self._free = run.clock.now
        self._got: list[int] = []
        self._source = 10_000

    def put(self, number: int) -> Batch:
        """The batch of that number, `ready_ns` when it is in the queue; told to the profiler as the thread's wait."""
        asked = self._free
        if number >= self._pipeline.prefetcher:
            asked = max(asked, self._got[number - self._pipeline.prefetcher])
        batch = self._loader.make(number, asked)
        stop = max(asked, batch.ready_ns) + self._run.varied(self._pipeline.receive_ms)
        self._loader.taken(number, stop)
        self._free = stop
        timeline = self._run.profiler._timeline
        wait = Wait(self._source, 0, asked, stop, 0, 0, 1, 0, 0, -1, *batch.made, Mark(0), Mark(0))
        timeline.wait(timeline.thread(PREFETCHER), wait)
        return replace(batch, ready_ns=stop)

    def got(self, at_ns: int) -> None:
        """The loop took one out of the queue."""
        self._got.append(at_ns)


class Run:
    """One rank: its clock, device and loop, and the truth about its stalls."""

    def __init__(self, out: Path, pipeline: Pipeline, rank: int = 0, world: int = 1) -> None:
        self.pipeline, self.out, self.rank = pipeline, out, rank
        self.device = Device()
        self.clock = Clock(self.device)
        self.profiler = Profiler(out, clock=self.clock, rank=rank, world=world)
        self._random = random.Random(pipeline.seed)
        self._slept_ns = 0
        self._optimizer = object()
        self.truth: Counter[str] = Counter()
        """Stall of steady steps by cause."""
        self.time_ns = 0
        """Of steady steps, evaluations not counted."""

    def varied(self, ms: float) -> int:
        return round(ms * MS * self._random.uniform(0.8, 1.2))

    def loop(self) -> Generator[Device, None, None]:
        """Train; yields its device at the end of each step, when ranks may exchange gradients."""
        pipeline, clock, device = self.pipeline, self.clock, self.device
        batches = self._batches()
        done: list[int] = []
        started = clock.now
        for step in range(pipeline.steps):
            found: Counter[str] = Counter()
            steady = step > 0
            for _ in range(pipeline.micro_batches):
                first, causes = next(batches)
                steady = steady and not first
                found += causes
                found["copy"] += self._copied()
                clock.now += self.varied(pipeline.launch_ms)
                device.launch(clock.now, self.varied(pipeline.compute_ms))
            yield device
            self.profiler.optimizer_step(self._optimizer)
            if steady:
                self.truth += found
                self.time_ns += clock.now - started - self._evaluated_ns
            started, self._evaluated_ns = clock.now, 0
            self._slept_ns = 0
            if pipeline.sync_every and step % pipeline.sync_every == 0:
                before = clock.now
                with self.profiler.synchronizing():
                    clock.now = max(clock.now, device.free_ns)
                self._slept_ns = clock.now - before
            if pipeline.evaluate_every and step % pipeline.evaluate_every == 1:
                self._evaluate()
            done.append(device.free_ns)
            if len(done) > RUN_AHEAD:
                clock.now = max(clock.now, done[-1 - RUN_AHEAD])
        clock.now = max(clock.now, device.free_ns)

    _evaluated_ns = 0

    def _batches(self) -> Iterator[tuple[bool, Counter[str]]]:
        """Batch after batch, epoch after epoch: whether it is the first, and the stall that it cost by cause."""
        while True:
            loader = Loader(self, self.pipeline)
            prefetcher = Prefetcher(self, loader, self.pipeline) if self.pipeline.prefetcher else None
            waited: list[tuple[int, int, Batch]] = []

            def fetches(
                loader: Loader = loader,
                prefetcher: Prefetcher | None = prefetcher,
                waited: list[tuple[int, int, Batch]] = waited,
            ) -> Iterator[int]:
                for number in range(self.pipeline.epoch_batches):
                    asked = self.clock.now
                    batch = prefetcher.put(number) if prefetcher else loader.make(number, asked)
                    self.clock.now = max(asked, batch.ready_ns)
                    if prefetcher:
                        prefetcher.got(self.clock.now)
                    else:
                        # Without workers the loop need not receive what it made.
                        took = self.varied(self.pipeline.receive_ms) if self.pipeline.num_workers else 0
                        self.clock.now += took
                        self.clock.cpu += took
                        loader.taken(number, self.clock.now)
                        self.profiler.made(batch.made)
                    waited.append((asked, self.clock.now, batch))
                    yield number

            for number in self.profiler.watch(fetches()):
                yield number == 0, self._stall(*waited.pop(), inline=not (self.pipeline.num_workers or prefetcher))

    def _stall(self, asked: int, got: int, batch: Batch, inline: bool) -> Counter[str]:
        """What a wait cost the device, by what was going on meanwhile."""
        causes: Counter[str] = Counter()
        idle = self.device.idle_in(max(asked, 0), got)
        stall = sum(stop - start for start, stop in idle)
        slept, self._slept_ns = self._slept_ns, 0
        if not stall:
            return causes
        # Had the loop not synchronised, it would have asked so much earlier, with the same device time ahead of it.
        ready = got - slept if inline else max(batch.ready_ns, asked - slept) + got - max(batch.ready_ns, asked)
        hidden = stall - max(0, ready - max(asked - slept, self.device.free_ns))
        causes["sync"] = max(0, min(stall, hidden)) if slept else 0
        left = stall - causes["sync"]
        begin = got - left
        for state, start, stop in batch.states:
            causes[state] += max(0, min(stop, got) - max(start, begin))
        causes["handover"] = left - sum(causes[state] for state in ("storage", "decode", "collate"))
        return causes

    def _copied(self) -> int:
        """Bring the batch to the device; what of it the compute stream had to wait for."""
        took, device, clock = self.varied(self.pipeline.copy_ms), self.device, self.clock
        if self.pipeline.copy == "none":
            return 0
        if self.pipeline.copy == "inline":
            with self.profiler.copying():
                device.occupy(max(clock.now, device.free_ns), took)
            return took
        device.copied_ns = max(clock.now, device.copied_ns) + took
        reached = max(clock.now, device.free_ns)
        with self.profiler.copying():
            device.occupy(reached, max(0, device.copied_ns - reached))
        return device.free_ns - reached

    def _evaluate(self) -> None:
        """A pass over a slow loader with gradients off or on, as trainers do either."""
        start, self._slept_ns = self.clock.now, 0

        def slow() -> Iterator[int]:
            for number in range(3):
                self.clock.now += 30 * MS
                yield number

        for _ in self.profiler.watch(slow()):
            self.clock.now += MS
            self.device.launch(self.clock.now, 2 * MS)
        self._evaluated_ns += self.clock.now - start


def measured(run: Run) -> tuple[dict[str, float], dict[str, float]]:
    """Shares of the steady steps' time by cause: as recorded, and in truth."""
    steps = read_run(run.out).steps[run.rank].to_pylist()
    steady = [step for step in steps if step["steady"]]
    time_ns = sum(step["stop_ns"] - step["start_ns"] - step["evaluation_ns"] for step in steady)
    causes = ("storage", "decode", "collate", "handover", "copy", "sync")
    found = {cause: sum(step[f"stall_{cause}_ns"] for step in steady) / time_ns for cause in causes}
    return found, {cause: run.truth[cause] / run.time_ns for cause in causes}


def play(out: Path, *pipelines: Pipeline, exchange_ms: float = 1.0) -> list[Run]:
    """Run ranks to their end; with several, kernels of a step end together."""
    runs = [Run(out, pipeline, rank, len(pipelines)) for rank, pipeline in enumerate(pipelines)]
    loops = [run.loop() for run in runs]
    while True:
        devices = [device for device in (next(loop, None) for loop in loops) if device is not None]
        if not devices:
            break
        if len(devices) > 1:
            latest = max(device.free_ns for device in devices) + round(exchange_ms * MS)
            for device in devices:
                device.occupy(device.free_ns, latest - device.free_ns)
    for run in runs:
        run.profiler.close()
    return runs
