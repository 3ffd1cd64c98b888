"""Why the device waits for data: measure a training loop, say what it waited for, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataeff.profile.profiler import Profiler

__all__ = ["Profiler"]


def __getattr__(name: str) -> Any:
    """Import the profiler, which needs torch, when it is asked for."""
    if name == "Profiler":
        from dataeff.profile.profiler import Profiler

        return Profiler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
