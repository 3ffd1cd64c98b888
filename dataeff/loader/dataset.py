"""The batches of one rank as a torch dataset: any number of workers, each computes which steps are its own."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset, get_worker_info

from dataeff.errors import PlanError
from dataeff.loader.order import Order, Rows
from dataeff.loader.shards import Shards

Batch: TypeAlias = dict[str, torch.Tensor]
Tail: TypeAlias = Literal["wrap", "short"]
Dtype: TypeAlias = Literal["int64", "stored"]
_AHEAD_ROWS = 4096
"""Rows whose places are computed at a time."""
_TOGETHER_BYTES = 1 << 20
"""Of tokens that are copied at a time; they stay in cache until they are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Which rows of every step are one rank's."""

    batch_size: int
    """Rows a step of one rank."""
    rank: int
    world: int
    tail: Tail
    """Where an epoch does not end with a whole step: `wrap` fills the step with the first rows of the next epoch, which
    goes on behind them; `short` ends the epoch with a smaller step, dealt evenly. Either way no row is left out, none
    comes twice, and all ranks have equally many batches."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise PlanError.out_of_range(self, "batch_size", "1 or more rows")
        if not 0 <= self.rank < self.world:
            raise PlanError.out_of_range(self, "rank", f"in [0, world = {self.world})")
        if self.tail not in ("wrap", "short"):
            raise PlanError.out_of_range(self, "tail", "'wrap' or 'short'")

    @property
    def step_rows(self) -> int:
        """Rows a step of all ranks."""
        return self.batch_size * self.world

    def check(self, rows_per_epoch: int) -> None:
        """Check that every rank can have as many batches as the others.

        Raises:
            PlanError: A step has more rows than an epoch, or an epoch would end with a step too small for all ranks.
        """
        if self.step_rows > rows_per_epoch:
            raise PlanError(
                f"a step of {self.world} ranks with {self.batch_size} rows each takes {self.step_rows} rows, but an "
                f"epoch has {rows_per_epoch}: use fewer ranks, a smaller batch, or more data"
            )

    def num_steps(self, position: int, end: int) -> int:
        """Steps from a position to the end of the epoch at `end`.

        Raises:
            PlanError: The last of them has fewer rows than there are ranks.
        """
        left = (end - position) % self.step_rows
        if self.tail == "short" and 0 < left < self.world:
            raise PlanError(
                f"the epoch would end with a step of {left} rows for {self.world} ranks, and a rank without a batch "
                "would leave the others waiting: use tail='wrap', another batch size, or other ranks"
            )
        return math.ceil((end - position) / self.step_rows)

    def after(self, position: int, end: int) -> int:
        """The position after the step at `position`."""
        return min(position + self.step_rows, end) if self.tail == "short" else position + self.step_rows

    def mine(self, position: int, end: int) -> tuple[int, int]:
        """First position and number of rows that this rank has of the step at `position`."""
        size = self.after(position, end) - position
        first, stop = (rank * size // self.world for rank in (self.rank, self.rank + 1))
        return position + first, stop - first


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How a batch looks."""

    dtype: Dtype
    """Of the tokens: int64, as embeddings take them; or as they are stored, uint16 or uint32, with fewer bytes."""
    boundaries: bool
    """Add `position_ids` and `document_ids`."""

    def __post_init__(self) -> None:
        if self.dtype not in ("int64", "stored"):
            raise PlanError.out_of_range(self, "dtype", "'int64' or 'stored'")


class TokenDataset(IterableDataset[Batch]):
    """Batches of one rank from a position to the end of its epoch.

    Give it to `torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=...)`, or to torchdata's
    StatefulDataLoader: the order of batches does not depend on how many workers there are. `dataeff.loader.Loader`
    does this itself, and resumes with other workers, ranks or batch sizes too.

    Args:
        shards: The corpus.
        order: The global order.
        share: This rank's part.
        delivery: How a batch looks.
        position: Where to begin.
    """

    def __init__(self, shards: Shards, order: Order, share: Share, delivery: Delivery, position: int = 0) -> None:
        share.check(order.rows_per_epoch)
        self.shards, self.order, self.share, self.delivery = shards, order, share, delivery
        # In shared memory, so that workers that live longer than an epoch see where the next one begins.
        self._position = torch.tensor([position], dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Begin at the start of an epoch the next time, in living workers too."""
        self._position[0] = epoch * self.order.rows_per_epoch

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        return BatchIterator(self, int(self._position[0]), number, workers)

    def __len__(self) -> int:
        position = int(self._position[0])
        return self.share.num_steps(position, epoch_end(self.order, position))


def epoch_end(order: Order, position: int) -> int:
    """Where the epoch ends in which a position is."""
    return (position // order.rows_per_epoch + 1) * order.rows_per_epoch


class BatchIterator:
    """Every `stride`-th batch of an epoch; its state is how many it has given."""

    def __init__(self, dataset: TokenDataset, position: int, offset: int, stride: int) -> None:
        self._dataset = dataset
        self._start, self._offset, self._stride = position, offset, stride
        self._given = 0
        self._plan()

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Batch:
        try:
            batch = self._ready.popleft()
        except IndexError:
            self._prepare()
            batch = self._ready.popleft()
        self._given += 1
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where this iterator is; only for one with the same offset and stride, that is worker and workers."""
        return {"start": self._start, "given": self._given, "offset": self._offset, "stride": self._stride}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another iterator was.

        Raises:
            PlanError: It was another worker's, or one of another number.
        """
        if (state["offset"], state["stride"]) != (self._offset, self._stride):
            raise PlanError(
                f"the state is of worker {state['offset']} of {state['stride']}, this is worker {self._offset} of "
                f"{self._stride}: keep num_workers, or use dataeff.loader.Loader, which resumes with any"
            )
        self._start, self._given = state["start"], state["given"]
        self._plan()

    def _plan(self) -> None:
        self._end = epoch_end(self._dataset.order, self._start)
        self._num_steps = self._dataset.share.num_steps(self._start, self._end)
        self._ready = deque[Batch]()
        self._ahead = deque[tuple[Rows, list[int]]]()

    def _prepare(self) -> None:
        """Make the next few batches in one go: for small ones, calls would cost more than copies."""
        if not self._ahead:
            self._look_ahead()
        rows, sizes = self._ahead.popleft()
        self._ready.extend(deliver(self._dataset.shards, rows, sizes, self._dataset.delivery))

    def _look_ahead(self) -> None:
        """Compute the rows of the next few steps, in groups of batches that are made together.

        Raises:
            StopIteration: There are no more.
        """
        order, share, shards = self._dataset.order, self._dataset.share, self._dataset.shards
        steps = range(self._offset + self._given * self._stride, self._num_steps, self._stride)
        if not steps:
            raise StopIteration
        steps = steps[: max(1, _AHEAD_ROWS // (share.step_rows * self._stride))]
        first = self._start + steps[0] * share.step_rows
        if share.world * self._stride == 1:
            stop = share.after(self._start + steps[-1] * share.step_rows, self._end)
            sizes = [share.batch_size] * (len(steps) - 1)
            sizes.append(stop - first - sum(sizes))
            found = order.rows(first, stop - first)
        else:
            places = [share.mine(self._start + step * share.step_rows, self._end) for step in steps]
            sizes = [count for _, count in places]
            pieces = [order.rows(position, count) for position, count in places]
            found = Rows(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))
        together = max(1, _TOGETHER_BYTES // (share.batch_size * shards.row_bytes))
        edges = np.concatenate([[0], np.cumsum(sizes)])
        for first in range(0, len(sizes), together):
            group = sizes[first : first + together]
            piece = slice(edges[first], edges[first + len(group)])
            self._ahead.append((Rows(*(part[piece] for part in found)), group))


def deliver(shards: Shards, rows: Rows, sizes: list[int], delivery: Delivery) -> list[Batch]:
    """Batches of `sizes` rows: `tokens`, `row_ids` (shard << 32 | row), and what else is wanted, as tensors."""
    tokens, bad = shards.take(rows.shards, rows.rows)
    columns: dict[str, npt.NDArray[Any]] = {
        "tokens": tokens if delivery.dtype == "stored" else tokens.astype(np.int64),
        "row_ids": rows.shards << 32 | rows.rows,
    }
    if shards.damage == "quarantine":
        columns["quarantined"] = bad
    if delivery.boundaries:
        columns["position_ids"], columns["document_ids"] = shards.boundaries(rows.shards, rows.rows)
    split = [torch.from_numpy(column).split_with_sizes(sizes) for column in columns.values()]
    if len(columns) == 2:  # the usual case, written out for speed
        return [{"tokens": tokens, "row_ids": row_ids} for tokens, row_ids in zip(*split, strict=True)]
    return [dict(zip(columns, parts, strict=True)) for parts in zip(*split, strict=True)]
