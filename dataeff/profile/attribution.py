"""From stamps to stalls by cause: arithmetic on whole nanoseconds, no clock and no device.

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

from dataeff.profile.workers import Made, Size
from dataeff.steps import CAUSES


class Span(NamedTuple):
    """A stretch of the loop's time, with the marks that the clock set in the compute stream at its ends."""

    start_ns: int
    stop_ns: int
    start_mark: Any
    stop_mark: Any


class Wait(NamedTuple):
    """One `next()` of a thread, outermost."""

    source: int
    """Which pass over which loader; another one each epoch."""
    first: bool
    """Whether it is the first of its pass."""
    span: Span
    cpu_ns: int
    """Processor time of the asking thread in it."""
    drained_ns: int
    """What the thread spent in synchronisations since its last wait."""
    trains: bool
    """Whether gradients were on."""
    made: Made | None
    """None: nobody stamped it."""
    size: Size | None
    """None: the pass was over, there was no batch."""
    pinned: bool | None = None


def stall_by_cause(wait: Wait, exposed_ns: int) -> dict[str, int]:
    """Split the part of a wait that the device noticed.

    Where the loop itself made the batch, or only had to take it, a synchronisation before it made the loop late:
    without it that work would have been done while the device was busy, so as much of the stall is `sync`'s. A batch
    that a worker had not finished would have been no earlier.

    A batch that nobody stamped is split coarsely: processor time of the asking thread is decode, the rest storage.

    Args:
        wait: What was waited for.
        exposed_ns: The device's idle time in it; taken to be its end, and at most all of it.

    Returns:
        Nanoseconds of each of `CAUSES`; they sum to the exposed part.
    """
    start, stop = wait.span.start_ns, wait.span.stop_ns
    exposed = max(0, min(exposed_ns, stop - start))
    causes = dict.fromkeys(CAUSES, 0)
    made = wait.made
    if made is None or made.worker < 0 or made.collate_stop_ns <= start:
        causes["sync"] = min(exposed, wait.drained_ns)
    begin = stop - exposed + causes["sync"]
    if made is None:
        fetch_ns, cpu_ns, of_ns = stop - begin, wait.cpu_ns, stop - start
    else:
        fetch_ns = _overlap(begin, stop, made.fetch_start_ns, made.fetch_stop_ns)
        cpu_ns, of_ns = made.fetch_cpu_ns, made.fetch_stop_ns - made.fetch_start_ns
        causes["collate"] = _overlap(begin, stop, made.collate_start_ns, made.collate_stop_ns)
        causes["handover"] = stop - begin - fetch_ns - causes["collate"]
    causes["decode"] = fetch_ns * max(0, min(cpu_ns, of_ns)) // max(of_ns, 1)
    causes["storage"] = fetch_ns - causes["decode"]
    return causes


def _overlap(start: int, stop: int, other_start: int, other_stop: int) -> int:
    return max(0, min(stop, other_stop) - max(start, other_start))


def training_sources(waits: Sequence[Wait], known: set[int], before: set[int]) -> set[int]:
    """Which passes fed the step, and not an evaluation.

    Those that are known to train; that which delivered last before the optimizer's step; and those that deliver in
    two steps running, as a second loader of the same step does. A wait with gradients off is an evaluation's, unless
    all are.

    Args:
        waits: Of the loop's thread in the step, in order.
        known: Passes that trained in earlier steps.
        before: Passes that delivered in the step before.
    """
    candidates = [wait for wait in waits if wait.trains] or list(waits)
    found = {wait.source for wait in candidates if wait.source in known or wait.source in before}
    return found | {candidates[-1].source} if candidates else found


def evaluation_ns(waits: Iterable[Wait], training: set[int], stop_ns: int) -> int:
    """Time of the loop in evaluations: of each pass from its first `next()` to its last, overlaps counted once.

    A pass that was broken off goes on until the next wait for training, or else until `stop_ns`.
    """
    spans: dict[int, list[int]] = {}
    ended: set[int] = set()
    for wait in waits:
        if wait.source in training:
            for source in spans.keys() - ended:
                spans[source][1] = wait.span.start_ns
                ended.add(source)
            continue
        spans.setdefault(wait.source, [wait.span.start_ns, 0])[1] = wait.span.stop_ns
        if wait.size is None:
            ended.add(wait.source)
        else:
            ended.discard(wait.source)
    for source in spans.keys() - ended:
        spans[source][1] = stop_ns
    total, reached = 0, 0
    for start, stop in sorted(spans.values()):
        total += max(0, stop - max(start, reached))
        reached = max(reached, stop)
    return total
