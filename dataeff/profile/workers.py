"""What runs in a DataLoader's worker: stamps of when a batch was fetched, put together and sent, carried with it.

The wrappers stand around what torch hands to its worker loop (index queue, collate function, result queue), so the
loop itself and the user's code are torch's and the user's own. A worker that was spawned imports this module anew and
finds torch without patches.
"""

from __future__ import annotations

import inspect
import resource
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter_ns, thread_time_ns
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data._utils import pin_memory, worker

from dataeff.profile.attribution import Made

ORIGINAL: Callable[..., None] = worker._worker_loop
"""Torch's own loop: this module is imported before anything is patched."""

_TOKENS = ("input_ids", "tokens")
"""Names under which trainers and `dataeff.loader` keep token ids in a batch."""


def size_of(batch: Any) -> tuple[int, int, int, int]:
    """Samples, bytes, tokens and tokens a sample of the tensors in dicts, lists and tuples; see `Made`."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else 1, batch.nbytes, 0, 0
    if isinstance(batch, Mapping):
        samples, num_bytes, tokens, sequence_length = _sum(batch.values())
        ids = next((batch[name] for name in _TOKENS if name in batch), None)
        if isinstance(ids, torch.Tensor) and ids.dim():
            tokens, sequence_length = ids.numel(), ids.shape[-1]
        return samples, num_bytes, tokens, sequence_length
    return _sum(batch) if isinstance(batch, (list, tuple)) else (0, 0, 0, 0)


def _sum(parts: Iterable[Any]) -> tuple[int, int, int, int]:
    samples = num_bytes = tokens = sequence_length = 0
    for part in parts:
        found = size_of(part)
        samples = samples or found[0]
        num_bytes += found[1]
        tokens += found[2]
        sequence_length = sequence_length or found[3]
    return samples, num_bytes, tokens, sequence_length


_LONG_NS = 100_000
"""A fetch that takes longer may have been kept from a processor in a way that matters."""


def _times_blocked() -> int:
    """How often this thread gave its processor up to wait for something; -1 where the system does not say."""
    return resource.getrusage(_THREAD).ru_nvcsw if _THREAD is not None else -1


_THREAD = getattr(resource, "RUSAGE_THREAD", None)


class Stamper:
    """Notes when the batch at work was asked for and put together; one a fetching thread.

    Where other programs want the processors too, a thread that computes has to wait for one. A fetch in which the
    thread never gave its processor up waited for no storage: all of it counts as processor time.
    """

    def __init__(self, worker: int, collate: Callable[[Any], Any]) -> None:
        self._worker, self._collate = worker, collate
        self._start = self._cpu = 0
        self._collated: tuple[int, int, int] | None = None
        self._counts = False
        """Whether fetches take long enough to count how often they block."""
        self._blocked = -1

    def begin(self) -> None:
        """A batch was asked for."""
        self._collated = None
        self._blocked = _times_blocked() if self._counts else -1
        self._cpu = thread_time_ns()
        self._start = perf_counter_ns()

    def collate(self, samples: Any) -> Any:
        """Put samples together as the user's function does."""
        start = perf_counter_ns()
        cpu = thread_time_ns() - self._cpu
        took = start - self._start
        self._counts = took > _LONG_NS
        if cpu < took and self._blocked >= 0 and _times_blocked() == self._blocked:
            cpu = took
        batch = self._collate(samples)
        self._collated = start, cpu, perf_counter_ns()
        return batch

    def made(self, batch: Any) -> Made | None:
        """The stamps of the batch that was asked for last; None where it was not put together."""
        if self._collated is None:
            return None
        start, cpu, stop = self._collated
        return Made(1, self._worker, self._start, start, cpu, start, stop, *size_of(batch))


class Stamped:
    """A batch on its way through the result queue."""

    __slots__ = ("batch", "made")

    def __init__(self, batch: Any, made: Made) -> None:
        self.batch, self.made = batch, made

    def __reduce__(self) -> tuple[Any, ...]:
        return Stamped, (self.batch, self.made)

    def pin_memory(self) -> Stamped:
        """What torch's pinning thread asks of a batch that is of no type it knows."""
        return Stamped(pin_memory.pin_memory(self.batch), self.made)  # type: ignore[no-untyped-call]


class _Queue:
    """Everything of a queue but what a subclass replaces."""

    def __init__(self, queue: Any, stamper: Stamper) -> None:
        self._queue, self._stamper = queue, stamper

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _IndexQueue(_Queue):
    def get(self, *args: Any, **kwargs: Any) -> Any:
        task = self._queue.get(*args, **kwargs)
        self._stamper.begin()
        return task


class _ResultQueue(_Queue):
    def put(self, result: Any, *args: Any, **kwargs: Any) -> None:
        number, batch = result
        # What torch sends instead of a batch it recognises by type.
        if not isinstance(batch, (ExceptionWrapper, worker._IterableDatasetStopIteration)):
            made = self._stamper.made(batch)
            if made is not None:
                result = number, Stamped(batch, made)
        self._queue.put(result, *args, **kwargs)


def stamped_worker_loop(*args: Any, **kwargs: Any) -> None:
    """Torch's worker loop, its batches stamped; without stamps where this torch hands its loop other things."""
    bound = inspect.signature(ORIGINAL).bind(*args, **kwargs)
    given = bound.arguments
    if {"index_queue", "data_queue", "collate_fn", "worker_id"} <= given.keys():
        stamper = Stamper(given["worker_id"], given["collate_fn"])
        given["collate_fn"] = stamper.collate
        given["index_queue"] = _IndexQueue(given["index_queue"], stamper)
        given["data_queue"] = _ResultQueue(given["data_queue"], stamper)
    ORIGINAL(*bound.args, **bound.kwargs)
