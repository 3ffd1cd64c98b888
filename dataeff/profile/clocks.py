"""Whose idle time is measured: the device's, by events in its compute stream, or the loop's own.

A clock sets marks in the compute stream and says, some steps later, how long the stream was without work between two
of them. Nothing here waits for the device.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import Any, Protocol


class Clock(Protocol):
    """What the profiler asks of a device."""

    name: str
    """`cuda` or `cpu`, as in `RunInfo.clock`."""

    def device(self) -> str:
        """Name of the device."""

    def now_ns(self) -> int:
        """The host's clock, that of all stamps."""

    def cpu_ns(self) -> int:
        """Processor time of this thread."""

    def mark(self) -> Any:
        """Set a mark at the end of what the compute stream has queued."""

    def between_ns(self, start: Any, stop: Any) -> int | None:
        """Time from one mark to the other as the device saw it; None while it has not come to the second."""

    def release(self, marks: Iterable[Any]) -> None:
        """These marks are not asked for again."""

    def finish(self) -> None:
        """Wait until the device has come to all marks; called once, at the end."""


class CpuClock:
    """The loop's own clock: on a processor the loop is the device, and all of a wait is a stall."""

    name = "cpu"

    def device(self) -> str:
        """Name of the processor."""
        info = Path("/proc/cpuinfo")
        lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
        models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        return next(models, "") or platform.processor() or platform.machine()

    now_ns = staticmethod(perf_counter_ns)
    cpu_ns = staticmethod(thread_time_ns)
    mark = staticmethod(perf_counter_ns)

    def between_ns(self, start: int, stop: int) -> int:
        """All of it."""
        return stop - start

    def release(self, marks: Iterable[int]) -> None:
        """Readings of a clock need no care."""

    def finish(self) -> None:
        """The loop is where its clock is."""


class CudaClock:
    """Timing events in the stream that computes, made once and used again.

    The device stamps an event when all that was queued before it is done, so between two events with nothing queued
    in between it had no work.
    """

    name = "cuda"
    now_ns = staticmethod(perf_counter_ns)
    cpu_ns = staticmethod(thread_time_ns)

    def __init__(self) -> None:
        import torch

        self._cuda: Any = torch.cuda
        # Which device is current is known to the loop's thread only.
        self._name = str(self._cuda.get_device_name())
        self._free: list[Any] = []

    def device(self) -> str:
        """Name of the device."""
        return self._name

    def mark(self) -> Any:
        """An event on the current stream; None while a graph is captured, when timing events are not allowed."""
        if self._cuda.is_current_stream_capturing():
            return None
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_ns(self, start: Any, stop: Any) -> int | None:
        """Nanoseconds, to about half a microsecond."""
        if start is None or stop is None:
            return 0
        return round(start.elapsed_time(stop) * 1e6) if stop.query() else None

    def release(self, marks: Iterable[Any]) -> None:
        """Use them again."""
        self._free.extend(mark for mark in marks if mark is not None)

    def finish(self) -> None:
        """Synchronise."""
        self._cuda.synchronize()
