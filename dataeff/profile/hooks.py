"""Patches of torch that tell a profiler what a script does which knows nothing of it.

Each wrapper calls what it replaces with the same arguments and returns the same object. All are taken back when the
profiler closes. Only one profiler is at work in a process.

What cannot be seen in a script without changes: batches that come from no torch DataLoader (watch them), the wait of
a loop for a prefetching thread of its own (watch what the loop iterates over), copies by libraries that do not call
`Tensor.to` or `Tensor.cuda`, a compute stream that waits for copies by other means than `Stream.wait_stream`, steps of
optimizers that are no `torch.optim.Optimizer` (call `Profiler.step`), and processes that the script itself starts as
ranks (profile each: torchrun ... -m dataeff profile).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, _utils, dataloader

from dataeff.errors import PlanError
from dataeff.profile.attribution import Made
from dataeff.profile.windows import Kind, Pass
from dataeff.profile.workers import Stamped, Stamper, stamped_worker_loop

_PASS = "_dataeff_pass"


class Measuring(Protocol):
    """What the patches tell: a `Profiler`."""

    def begin_pass(self, iterate: Callable[[], Any], facts: dict[str, Any] | None = None) -> tuple[Any, Pass]:
        """A pass over a loader begins."""

    def take(self, source: Pass, fetch: Callable[[], Any]) -> Any:
        """A batch is asked for."""

    def made(self, made: Made) -> None:
        """It was made so."""

    def optimizer_step(self, optimizer: object, args: object, kwargs: object) -> None:
        """An optimizer stepped."""

    def copy(self, call: Callable[[], Any]) -> Any:
        """A copy, perhaps to the device, perhaps of a batch."""

    def span(self, kind: Kind) -> AbstractContextManager[None]:
        """Something else begins that counts."""


class _Installed:
    """The profiler at work, and how to take its patches back."""

    profiler: Measuring | None = None
    undo: list[Callable[[], None]] = []  # noqa: RUF012


def install(profiler: Measuring) -> None:
    """Patch torch for this profiler.

    Raises:
        PlanError: Another one is at work.
    """
    if _Installed.profiler is not None:
        raise PlanError(
            "a profiler is at work in this process already: run the script without `dataeff profile`, or take its "
            "own Profiler out"
        )
    _Installed.profiler = profiler
    base = dataloader._BaseDataLoaderIter
    _patch(DataLoader, "__iter__", functools.partial(_iter, profiler))
    _set(base, "__next__", _timed_next(profiler, base.__next__))
    _patch(dataloader._MultiProcessingDataLoaderIter, "_process_data", functools.partial(_process_data, profiler))
    _patch(dataloader._SingleProcessDataLoaderIter, "__init__", functools.partial(_single_process, profiler))
    _patch(torch, "save", functools.partial(_spanned, profiler, "checkpoint"))
    _set(_utils.worker, "_worker_loop", stamped_worker_loop)
    _Installed.undo.append(register_optimizer_step_post_hook(profiler.optimizer_step).remove)


def install_device(profiler: Measuring) -> None:
    """Patch what copies to a CUDA device or waits for it too; only where there is one, for it costs each call."""
    for name in ("item", "tolist", "cpu", "numpy"):
        _patch(torch.Tensor, name, functools.partial(_reading, profiler))
    for owner in (torch.cuda, torch.cuda.Event, torch.cuda.Stream):
        _patch(owner, "synchronize", functools.partial(_spanned, profiler, "sync"))
    streams = _Streams()
    for name in ("to", "cuda"):
        _patch(torch.Tensor, name, functools.partial(_copying, profiler, streams))
    _patch(torch.cuda.Stream, "wait_stream", functools.partial(_waiting, profiler, streams))
    _Installed.undo.append(register_optimizer_step_post_hook(streams.stepped).remove)


def remove(profiler: Measuring) -> None:
    """Take the patches of this profiler back, if it is at work."""
    if _Installed.profiler is profiler:
        _forget()


def _forget() -> None:
    while _Installed.undo:
        _Installed.undo.pop()()
    _Installed.profiler = None


# A forked worker or rank has the loop's patches, but is not the loop.
os.register_at_fork(after_in_child=_forget)


def _set(owner: Any, name: str, value: Any) -> None:
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, value)
    _Installed.undo.append(lambda: setattr(owner, name, before) if own else delattr(owner, name))


def _patch(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Put `wrapper(original, ...)` in the place of a function."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    _set(owner, name, patched)


def _iter(profiler: Measuring, original: Callable[..., Any], loader: Any) -> Any:
    facts = {
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "batch_size": loader.batch_size,
    }
    iterator, begun = profiler.begin_pass(lambda: original(loader), facts)
    setattr(iterator, _PASS, begun)
    return iterator


def _timed_next(profiler: Measuring, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Called each batch, so with as few layers as can be."""
    take = profiler.take

    @functools.wraps(original)
    def patched(iterator: Any) -> Any:
        source: Pass | None = iterator.__dict__.get(_PASS)
        if source is None:
            source = profiler.begin_pass(lambda: None)[1]
            setattr(iterator, _PASS, source)
        return take(source, functools.partial(original, iterator))

    return patched


def _process_data(profiler: Measuring, original: Callable[..., Any], iterator: Any, data: Any, *args: Any) -> Any:
    if type(data) is Stamped:
        profiler.made(data.made)
        data = data.batch
    return original(iterator, data, *args)


def _single_process(profiler: Measuring, original: Callable[..., Any], iterator: Any, loader: Any) -> None:
    """Stamp what is fetched in the loop's own process."""
    original(iterator, loader)
    fetcher = iterator._dataset_fetcher
    stamper = Stamper(-1, fetcher.collate_fn)
    fetch = fetcher.fetch

    def stamped(index: Any) -> Any:
        stamper.begin()
        batch = fetch(index)
        made = stamper.made(batch)
        if made is not None:
            profiler.made(made)
        return batch

    fetcher.collate_fn, fetcher.fetch = stamper.collate, stamped


def _spanned(profiler: Measuring, kind: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with profiler.span(kind):
        return original(*args, **kwargs)


def _reading(profiler: Measuring, original: Callable[..., Any], tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Reading a device's tensor waits for all that the device has queued."""
    if not tensor.is_cuda:
        return original(tensor, *args, **kwargs)
    with profiler.span("sync"):
        return original(tensor, *args, **kwargs)


class _Streams:
    """Which stream computes, and which only bring batches."""

    def __init__(self) -> None:
        self.compute: Any = torch.cuda.default_stream()
        self.copying: set[Any] = set()

    def stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The stream in which an optimizer steps is the one that computes."""
        self.compute = torch.cuda.current_stream()


def _copying(
    profiler: Measuring, streams: _Streams, original: Callable[..., Any], tensor: Any, *args: Any, **kwargs: Any
) -> Any:
    """A copy from the host: in the compute stream its time is exposed, in another one what is later waited for it."""
    if tensor.is_cuda or tensor.requires_grad:
        return original(tensor, *args, **kwargs)
    current = torch.cuda.current_stream()
    if current == streams.compute:
        return profiler.copy(lambda: original(tensor, *args, **kwargs))
    result = original(tensor, *args, **kwargs)
    if result.is_cuda:
        streams.copying.add(current)
    return result


def _waiting(profiler: Measuring, streams: _Streams, original: Callable[..., Any], stream: Any, other: Any) -> Any:
    """The compute stream waits for one that copies."""
    if stream != streams.compute or other not in streams.copying:
        return original(stream, other)
    with profiler.span("copy"):
        return original(stream, other)
