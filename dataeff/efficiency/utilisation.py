"""What the devices say of themselves, through NVML where it is there (`pip install nvidia-ml-py`).

NVML's utilisation says that some kernel ran in its window, not that the device was full: a device can be idle half of
the time and read 97 %. So it serves to find devices that do nothing at all; how well one is used, MFU says.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Protocol

from dataeff.errors import PlanError


class Nvml(Protocol):
    """The functions of `pynvml` that are asked."""

    # Their names, and what they do, are pynvml's.
    def nvmlInit(self) -> None: ...  # noqa: D102, N802
    def nvmlShutdown(self) -> None: ...  # noqa: D102, N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...  # noqa: D102, N802
    def nvmlDeviceGetName(self, handle: Any) -> str | bytes: ...  # noqa: D102, N802
    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any: ...  # noqa: D102, N802
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...  # noqa: D102, N802
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]: ...  # noqa: D102, N802


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process on a device."""

    pid: int
    memory_bytes: int | None
    """Device memory that it holds; None where the driver does not tell, as in containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One reading of one device."""

    index: int
    name: str
    busy_share: float
    """Of the last sampling window, when any kernel ran, in [0, 1]. Says nothing of how full the device was."""
    memory_bytes: int
    total_memory_bytes: int
    holders: tuple[Holder, ...]


def nvml() -> Nvml | None:
    """NVML, or None where its Python package or its driver is not there."""
    try:
        found: Nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        found.nvmlInit()
    except Exception:  # Its errors are classes made at run time; any means that there is nothing to ask.
        return None
    found.nvmlShutdown()
    return found


def read_devices(library: Nvml) -> tuple[Device, ...]:
    """One reading of every device.

    Raises:
        PlanError: The driver refuses.
    """
    try:
        library.nvmlInit()
        try:
            return tuple(_read(library, index) for index in range(library.nvmlDeviceGetCount()))
        finally:
            library.nvmlShutdown()
    except Exception as error:
        raise PlanError(f"the driver does not answer ({error}): look at it with nvidia-smi") from error


def _read(library: Nvml, index: int) -> Device:
    handle = library.nvmlDeviceGetHandleByIndex(index)
    name = library.nvmlDeviceGetName(handle)
    memory = library.nvmlDeviceGetMemoryInfo(handle)
    return Device(
        index=index,
        name=name.decode() if isinstance(name, bytes) else name,
        busy_share=library.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        memory_bytes=int(memory.used),
        total_memory_bytes=int(memory.total),
        holders=tuple(
            Holder(pid=int(process.pid), memory_bytes=_known(process.usedGpuMemory))
            for process in library.nvmlDeviceGetComputeRunningProcesses(handle)
        ),
    )


def _known(num_bytes: int | None) -> int | None:
    """NVML says "not available" as None, or as the largest number."""
    return None if num_bytes is None or num_bytes >= 2**63 else int(num_bytes)


def idle_holders(readings: tuple[tuple[Device, ...], ...]) -> tuple[tuple[Device, Holder], ...]:
    """Processes that hold memory of a device on which no kernel ran in any of several readings."""
    if not readings:
        return ()
    busy = {device.index for reading in readings for device in reading if device.busy_share > 0}
    stayed = set.intersection(
        *({(device.index, holder.pid) for device in reading for holder in device.holders} for reading in readings)
    )
    return tuple(
        (device, holder)
        for device in readings[-1]
        for holder in device.holders
        if device.index not in busy and (device.index, holder.pid) in stayed
    )
