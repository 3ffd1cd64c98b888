"""What another loader setting would do: a queue model of torch's DataLoader, driven by the times of a recorded run.

A worker reads (waits for storage), computes the samples, puts them together (both need a processor), and sends the
batch off. Batch k belongs to worker k mod W; W x prefetch_factor batches are outstanding; each batch that the loop
takes lets one more begin. The loop receives batches first come, first served, each for a little of its own time, and
puts by what came too early, so it takes them in order. Without workers, the loop does all of it itself.

Where more processes want a processor than there are, each gets an equal share of what there is: work takes longer,
waiting for storage does not. And a loop that wakes while all processors are taken waits for one to be given up, once
when its own rest ends, and twice for each batch that it receives: its worker must answer before it can go on.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from dataeff.arrow import F64
from dataeff.errors import PlanError

MIN_REPLAYED = 256
"""Batches that a replay measures, the record's own repeated where there are fewer."""
MAX_REPLAYED = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a run asks of its loader and its loop, whatever the settings; one entry a batch, in order."""

    storage_ns: F64
    """Waiting for storage, shape (batches,)."""
    decode_ns: F64
    """Processor time to compute the samples, alone on a processor, shape (batches,)."""
    collate_ns: F64
    """Processor time to put them together, shape (batches,)."""
    loop_ns: F64
    """The loop's own time a batch, without any wait for data, shape (batches,)."""
    send_ns: float
    """From a worker's finished batch until the loop can see it; the worker goes on meanwhile."""
    receive_ns: float
    """The loop's time to take one batch out of the queue."""
    inline_ns: float = 0.0
    """The loop's time around a batch that it made itself: sampler and iterator."""
    hidden_ns: float = 0.0
    """Of a wait, what the device does not notice since it still has queued work."""
    batches_per_step: float = 1.0

    def __post_init__(self) -> None:
        shapes = {len(self.storage_ns), len(self.decode_ns), len(self.collate_ns), len(self.loop_ns)}
        if len(shapes) != 1 or not shapes.pop():
            raise PlanError("a workload needs the same number of times, at least one, of each kind")

    @property
    def service_ns(self) -> float:
        """Mean time to make a batch, alone on a processor."""
        return float(np.mean(self.storage_ns + self.decode_ns + self.collate_ns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a loader is set, on which machine, and how fast the parts are compared with the record."""

    num_workers: int
    """0: the loop makes its batches itself."""
    prefetch_factor: int = 2
    """Batches that each worker may be ahead."""
    pin_memory: bool = False
    """A thread of the loop's process receives and pins, beside the loop."""
    cores: float = 1e9
    """Processors for the loop and its workers together."""
    loop_processor_share: float = 1.0
    """Of the loop's own time, the share in which it needs a processor: 0 where it waits for a device."""
    wake_ns: float = 0.0
    """What a process that has waited for something else waits for a processor, where all are taken."""
    batch_scale: float = 1.0
    """Samples a batch, over those of the record; the loop's own time grows alike."""
    storage_scale: float = 1.0
    """Waiting for storage, over that of the record: 0.5 is storage twice as fast, 0 a cache."""
    decode_scale: float = 1.0
    """Computing samples, over that of the record: 0 where shards hold finished samples."""

    def __post_init__(self) -> None:
        if self.num_workers < 0:
            raise PlanError.out_of_range(self, "num_workers", "0 or more")
        if self.prefetch_factor < 1:
            raise PlanError.out_of_range(self, "prefetch_factor", "1 or more")
        if not self.cores > 0:
            raise PlanError.out_of_range(self, "cores", "more than 0")
        if not 0 <= self.loop_processor_share <= 1:
            raise PlanError.out_of_range(self, "loop_processor_share", "in [0, 1]")
        if not self.batch_scale > 0:
            raise PlanError.out_of_range(self, "batch_scale", "more than 0")


def step_times(workload: Workload, settings: Settings, num_batches: int | None = None) -> F64:
    """Time from one batch taken to the next once the run is under way, times batches a step.

    The mean is the step time; single entries are steps only where a step takes one batch.

    Args:
        workload: Times of the record, gone over again and again.
        settings: What to play.
        num_batches: How many to measure; as many as the record has, within bounds, if not given.

    Returns:
        Nanoseconds, shape (num_batches,).
    """
    batches = num_batches or min(max(len(workload.loop_ns), MIN_REPLAYED), MAX_REPLAYED)
    scaled = _scaled(workload, settings)
    if settings.num_workers == 0:
        taken = _without_workers(scaled)
        return np.resize(taken, batches) * workload.batches_per_step
    warm = 4 * settings.num_workers * settings.prefetch_factor
    took = _Machine(scaled, settings, warm + batches + 1).play()
    return np.diff(took)[warm:] * workload.batches_per_step


def step_ns(workload: Workload, settings: Settings) -> float:
    """Mean time of a step once the run is under way; see `step_times`."""
    return float(np.mean(step_times(workload, settings)))


def _scaled(workload: Workload, settings: Settings) -> Workload:
    scale = settings.batch_scale
    return dataclasses.replace(
        workload,
        storage_ns=workload.storage_ns * settings.storage_scale * scale,
        decode_ns=workload.decode_ns * settings.decode_scale * scale,
        collate_ns=workload.collate_ns * scale,
        loop_ns=workload.loop_ns * scale,
    )


def _without_workers(workload: Workload) -> F64:
    wait = workload.storage_ns + workload.decode_ns + workload.collate_ns + workload.inline_ns
    return workload.loop_ns + np.maximum(wait - workload.hidden_ns, 0.0)


class _Machine:
    """Workers, a loop and perhaps a pinning thread, on processors that they share: one event after another."""

    def __init__(self, workload: Workload, settings: Settings, num_batches: int) -> None:
        self._workload, self._settings = workload, settings
        self._wanted = num_batches
        self._workers = settings.num_workers
        self._loop, self._pinner = self._workers, self._workers + 1
        self._period = len(workload.loop_ns)
        self._storage = workload.storage_ns.tolist()
        self._compute = (workload.decode_ns + workload.collate_ns).tolist()
        self._own = workload.loop_ns.tolist()
        self._now = 0.0
        self._timers: list[tuple[float, int, str, int]] = []
        self._sequence = 0
        self._computing: dict[int, float] = {}
        """Processor time that each computing process still needs."""
        self._queues: list[deque[int]] = [deque() for _ in range(self._workers)]
        self._making: list[int | None] = [None] * self._workers
        self._arrived: deque[int] = deque()
        self._pinned: deque[int] = deque()
        self._in_hand: dict[int, int] = {}
        """The batch that the loop or the pinning thread is receiving."""
        self._put_by: set[int] = set()
        self._issued = 0
        self._next = 0
        self._asked = 0.0
        self._waiting = True
        self._resting = 0.0
        self.taken: list[float] = []

    def play(self) -> F64:
        """When the loop took each batch, shape (num_batches,)."""
        for _ in range(self._workers * self._settings.prefetch_factor):
            self._issue()
        while len(self.taken) < self._wanted:
            self._advance()
        return np.array(self.taken)

    def _advance(self) -> None:
        """Go on to the next event."""
        rate, soonest, first = 1.0, float("inf"), -1
        if self._computing:
            rate = min(1.0, self._settings.cores / len(self._computing))
            first = min(self._computing, key=self._computing.__getitem__)
            soonest = self._now + self._computing[first] / rate
        due = self._timers[0][0] if self._timers else float("inf")
        moment = min(soonest, due)
        worked = (moment - self._now) * rate
        for process in self._computing:
            self._computing[process] -= worked
        self._now = moment
        if soonest <= due:
            del self._computing[first]
            self._computed(first)
        else:
            _, _, event, subject = heapq.heappop(self._timers)
            self._happened(event, subject)

    def _later(self, delay: float, event: str, subject: int) -> None:
        self._sequence += 1
        heapq.heappush(self._timers, (self._now + delay, self._sequence, event, subject))

    def _after(self, delay: float, event: str, subject: int) -> None:
        if delay:
            self._later(delay, event, subject)
        else:
            self._happened(event, subject)

    def _wake(self, times: int) -> float:
        """What so many wakings cost just now."""
        return times * self._settings.wake_ns if len(self._computing) >= self._settings.cores else 0.0

    def _issue(self) -> None:
        """Let the next batch begin, at the worker whose turn it is."""
        worker = self._issued % self._workers
        self._queues[worker].append(self._issued)
        self._issued += 1
        if self._making[worker] is None:
            self._begin(worker)

    def _begin(self, worker: int) -> None:
        if not self._queues[worker]:
            self._making[worker] = None
            return
        batch = self._queues[worker].popleft()
        self._making[worker] = batch
        self._later(self._storage[batch % self._period], "stored", worker)

    def _happened(self, event: str, subject: int) -> None:
        if event == "stored":
            batch = self._making[subject]
            assert batch is not None
            self._computing[subject] = self._compute[batch % self._period]
        elif event == "arrived":
            self._arrived.append(subject)
            self._receive()
        elif event == "receiving":
            self._computing[subject] = self._workload.receive_ns
        elif event == "rested":
            self._after(self._wake(1), "asked", 0)
        else:
            self._ask()

    def _computed(self, process: int) -> None:
        if process < self._workers:
            batch = self._making[process]
            assert batch is not None
            self._later(self._workload.send_ns, "arrived", batch)
            self._begin(process)
        elif process == self._pinner:
            self._pinned.append(self._in_hand.pop(process))
            self._receive()
        elif process in self._in_hand:
            self._put_by.add(self._in_hand.pop(process))
            self._take_or_receive()
        else:
            self._later(self._resting, "rested" if self._resting else "asked", 0)

    def _ask(self) -> None:
        self._waiting, self._asked = True, self._now
        self._take_or_receive()

    def _receive(self) -> None:
        """Whoever receives takes what came first, if free to."""
        if self._settings.pin_memory:
            if self._arrived and self._pinner not in self._in_hand:
                self._in_hand[self._pinner] = self._arrived.popleft()
                self._after(self._wake(2), "receiving", self._pinner)
            if self._waiting and self._pinned:
                self._take_or_receive()
        elif self._waiting and self._arrived and self._loop not in self._in_hand:
            self._in_hand[self._loop] = self._arrived.popleft()
            self._after(self._wake(2), "receiving", self._loop)

    def _take_or_receive(self) -> None:
        self._put_by.update(self._pinned)
        self._pinned.clear()
        if self._next not in self._put_by:
            self._receive()
            return
        self._put_by.remove(self._next)
        waited = self._now - self._asked
        self.taken.append(self._now)
        self._waiting = False
        own = max(self._own[self._next % self._period] - min(waited, self._workload.hidden_ns), 0.0)
        self._next += 1
        self._issue()
        share = self._settings.loop_processor_share
        self._resting = own * (1 - share)
        if share:
            self._computing[self._loop] = own * share
        else:
            self._later(own, "rested", 0)
