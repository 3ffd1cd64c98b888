"""What a run would do if data cost nothing: its own first batches, served again and again."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from dataeff.errors import EmptyError, PlanError

Batch = TypeVar("Batch")


class Headroom(Generic[Batch]):
    """A loader whose first batches are kept and then served round and round, as many as the loader has.

        with Profiler(out="headroom/") as profiler:
            for batch in profiler.watch(Headroom(loader)):
                ...

    Record a run so, and give it to `dataeff diagnose RUN --headroom headroom/`: its step time is what is left when
    every batch is there already. The loop must not change batches in place.

    Args:
        loader: What the run iterates over.
        num_batches: How many of its first batches to keep; they stay in memory.
        length: Batches of a pass; None takes the loader's own length, and has no end where it has none.

    Raises:
        PlanError: `num_batches` or `length` is below 1.
    """

    def __init__(self, loader: Iterable[Batch], *, num_batches: int = 8, length: int | None = None) -> None:
        if num_batches < 1:
            raise PlanError(f"Headroom.num_batches is {num_batches!r}; it must be 1 or more")
        if length is not None and length < 1:
            raise PlanError(f"Headroom.length is {length!r}; it must be 1 or more")
        self._loader, self._num_batches, self._length = loader, num_batches, length
        self._kept: list[Batch] = []

    def __iter__(self) -> Iterator[Batch]:
        """A pass.

        Raises:
            EmptyError: The loader has no batch.
        """
        if not self._kept:
            # The loader's workers go with its iterator, before the first batch is served.
            self._kept = list(itertools.islice(self._loader, self._num_batches))
        if not self._kept:
            raise EmptyError("the loader has no batch to keep: a headroom run needs one or more")
        batches = itertools.cycle(self._kept)
        length = self._length or getattr(self._loader, "__len__", lambda: None)()
        return batches if length is None else itertools.islice(batches, length)

    def __len__(self) -> int:
        """Batches of a pass, where that is known."""
        return self._length or len(self._loader)  # type: ignore[arg-type]
