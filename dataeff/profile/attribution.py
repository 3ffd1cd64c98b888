"""From stamps to stalls by cause: arithmetic on arrays of whole nanoseconds, no clock and no device.

A wait is what the loop did in `next()`. Of it the device noticed the last part only, since queued work hid what came
before: the exposed part. Inside it, the timeline of the worker that made the batch says what was waited for:

    fetching    decode by the share of processor time, storage the rest
    collating   collate
    otherwise   handover: the worker had not been told yet, or the batch was on its way

Causes sum exactly to the stall.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dataeff.arrow import I64


class Made(NamedTuple):
    """How a batch was made, and how large it is; `_ns` are readings of one clock, but `fetch_cpu_ns` is a duration."""

    stamped: int
    """0: nobody stamped it; then only its size is known."""
    worker: int
    """-1: the loop's own process."""
    fetch_start_ns: int
    fetch_stop_ns: int
    fetch_cpu_ns: int
    """Processor time of the fetching thread, waiting for a processor included where that is known; threads that it
    starts are not in it."""
    collate_start_ns: int
    collate_stop_ns: int
    samples: int
    """Length of the first tensor's first dimension; 0 where there is none."""
    num_bytes: int
    """Of all tensors."""
    tokens: int
    """Entries of the tensor that is called like token ids; 0 where none is."""
    sequence_length: int
    """Its last dimension; 0 where none is."""


class Wait(NamedTuple):
    """One `next()` of a thread, outermost: whole numbers first, so that many are one array; then the marks.

    Truth values are 0 or 1. From `stamped` on to `sequence_length`, the fields of `Made`.
    """

    source: int
    """Which pass over which loader; another one each epoch."""
    first: int
    """Whether it is the first of its pass."""
    start_ns: int
    stop_ns: int
    cpu_ns: int
    """Processor time of the asking thread in it, where it may be needed."""
    drained_ns: int
    """What the thread spent in synchronisations since its last wait."""
    trains: int
    """Whether gradients were on."""
    ended: int
    """Whether the pass was over: there was no batch."""
    elsewhere: int
    """Whether another thread of the loop's process made it."""
    pinned: int
    """-1 where it is not known."""
    stamped: int
    worker: int
    fetch_start_ns: int
    fetch_stop_ns: int
    fetch_cpu_ns: int
    collate_start_ns: int
    collate_stop_ns: int
    samples: int
    num_bytes: int
    tokens: int
    sequence_length: int
    start_mark: Any = None
    """In the compute stream, where the wait began."""
    stop_mark: Any = None


WHOLE = Wait._fields.index("start_mark")
"""So many fields of a wait are whole numbers."""
NOT_MADE = Made(0, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def stall_by_cause(waits: I64, exposed_ns: I64) -> dict[str, I64]:
    """Split the parts of waits that the device noticed.

    A synchronisation before the wait made the loop late with what it had to do itself: without it that work would have
    been done while the device was busy, so as much of the stall is `sync`'s. Where the loop made the batch, that is
    all of the wait; where it only took a finished one, the processor time in it. A batch that a worker had not
    finished, or that was on its way, would have been no earlier.

    A batch that nobody stamped is split coarsely: processor time of the asking thread is decode, the rest storage.

    Args:
        waits: Whole numbers of `Wait`, shape (waits, WHOLE).
        exposed_ns: The device's idle time in each; taken to be its end, and at most all of it. Shape (waits,).

    Returns:
        Nanoseconds of each of `steps.CAUSES`, shape (waits,); they sum to the exposed parts.
    """
    field = dict(zip(Wait._fields, waits.T, strict=False))
    start, stop = field["start_ns"], field["stop_ns"]
    stamped = field["stamped"] != 0
    exposed = np.clip(exposed_ns, 0, stop - start)
    own = (field["worker"] < 0) & (field["elsewhere"] == 0)
    taking = np.where(field["collate_stop_ns"] <= start, field["cpu_ns"], 0)
    late = np.minimum(field["drained_ns"], np.where(stamped & ~own, taking, stop - start))
    sync = np.minimum(exposed, late)
    begin = stop - exposed + sync
    # Where a pass ended nothing was fetched: workers were told to stop.
    fetch_start = np.where(stamped, field["fetch_start_ns"], np.where(field["ended"], stop, start))
    fetch_stop = np.where(stamped, field["fetch_stop_ns"], stop)
    fetching = _overlap(begin, stop, fetch_start, fetch_stop)
    collating = np.where(stamped, _overlap(begin, stop, field["collate_start_ns"], field["collate_stop_ns"]), 0)
    fetch = fetch_stop - fetch_start
    cpu = np.clip(np.where(stamped, field["fetch_cpu_ns"], field["cpu_ns"]), 0, fetch)
    decode = np.rint(fetching * (cpu / np.maximum(fetch, 1))).astype(np.int64)
    return {
        "storage": fetching - decode,
        "decode": decode,
        "collate": collating,
        "handover": stop - begin - fetching - collating,
        "copy": np.zeros_like(sync),
        "sync": sync,
    }


def _overlap(start: I64, stop: I64, other_start: I64, other_stop: I64) -> I64:
    shared: I64 = np.maximum(np.minimum(stop, other_stop) - np.maximum(start, other_start), 0)
    return shared


def training_sources(waits: Sequence[Wait], known: set[int], before: set[int]) -> set[int]:
    """Which passes fed the step, and not an evaluation.

    Those that are known to train; those that deliver in two steps running, as a second loader of the same step does;
    and, where none of these went on, that which was asked last before the optimizer's step. A wait with gradients off
    is an evaluation's, unless all are.

    Args:
        waits: Of the loop's thread in the step, in order.
        known: Passes that trained in earlier steps.
        before: Passes that delivered in the step before.
    """
    candidates = [wait for wait in waits if wait.trains] or list(waits)
    found = {wait.source for wait in candidates if wait.source in known or wait.source in before}
    ended = {wait.source for wait in candidates if wait.ended}
    return found if found - ended or not candidates else found | {candidates[-1].source}


def evaluations(waits: Iterable[Wait], training: set[int], stop_ns: int) -> list[tuple[int, int]]:
    """When the loop evaluated: of each pass that does not train, from its first `next()` to the end of its last.

    A pass that was broken off goes on until the next wait for training, or else until `stop_ns`.

    Returns:
        Starts and stops, in order, none overlapping another.
    """
    spans: dict[int, list[int]] = {}
    ended: set[int] = set()
    for wait in waits:
        if wait.source in training:
            for source in spans.keys() - ended:
                spans[source][1] = wait.start_ns
                ended.add(source)
            continue
        spans.setdefault(wait.source, [wait.start_ns, 0])[1] = wait.stop_ns
        if wait.ended:
            ended.add(wait.source)
        else:
            ended.discard(wait.source)
    for source in spans.keys() - ended:
        spans[source][1] = stop_ns
    found: list[tuple[int, int]] = []
    for start, stop in sorted((start, stop) for start, stop in spans.values()):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found
