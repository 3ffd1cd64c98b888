"""The loader: batches of token rows in an order that ranks, workers, batch sizes and restarts do not change."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from dataeff.errors import PlanError
from dataeff.loader.agreement import agree, world_and_rank
from dataeff.loader.audits import AuditLog
from dataeff.loader.dataset import Batch, BatchIterator, Delivery, Dtype, Share, Tail, TokenDataset, deliver, epoch_end
from dataeff.loader.order import Change, Order, Rows, natural_weights, whole_weights
from dataeff.loader.shards import Damage, Shards

STATE_VERSION = 1


class Loader:
    """Batches of one rank, epoch after epoch; each `for` over it is what is left of an epoch.

    A batch is a dict of tensors: `tokens`, shape (rows, sequence_length); `row_ids`, shape (rows,), shard << 32 | row;
    with `boundaries` also `position_ids` (place of each token in its document) and `document_ids` (its document's
    number in the row, -1 for padding), both of the shape of `tokens`; with damage="quarantine" also `quarantined`,
    shape (rows,), whether a row is of a damaged block.

    Order: all rows of a source are shuffled by a seeded permutation, another one each time they come round, and sources
    take turns as the mixture says. An epoch is as many rows as the mixture of the manifest has, or else as the corpus
    has: with natural shares, every row once.
    Every position of the order belongs to one rank at one step, so a run may go on from any state with other ranks,
    workers or batch sizes, and no row is left out or seen twice.

    Args:
        corpus: Output directory of `dataeff run`, a folder of token shards, or an fsspec URL of either.
        batch_size: Rows a step of this rank.
        seed: Which order.
        rank, world: Of this process among all; None asks torch.distributed, or else the environment of torchrun.
        num_workers: Processes that make batches. 0 is nearly always fastest: a batch takes tens of microseconds.
        dtype: Of `tokens`: int64, or as stored (uint16 or uint32).
        boundaries: Whether to add `position_ids` and `document_ids`.
        tail: What to do where an epoch does not end with a whole step; see `Share.tail`.
        weights: Share of each source; None takes the mixture of the corpus's manifest, or else its natural shares.
        rows_share: Of each source's rows, the share that is used, in (0, 1]; they are the first ones, which the corpus
            has in random order. With a run shorter than the one that it stands for, by so much, a source is repeated as
            often as in that one.
        holdout_rows: Rows at the end of every source that are never served: those of `held_out`.
        damage: What to do with a block whose checksum does not hold: `raise`, or `quarantine`: serve its rows as
            end-of-document tokens only, and count them in `quarantined`.
        window_shards: Shuffle among so many shards of a source at a time; for corpora that are not local, with a cache
            that holds less than all. None shuffles all rows of a source together.
        cache, cache_bytes: Folder for shards that are not local, and what it may hold.
        prefetch_factor: Batches that each worker may be ahead.
        pin_memory: Copy batches to pinned memory in a thread; only with workers.
        audit: Folder in which each rank writes down what it served, for `dataeff audit`.

    Raises:
        PlanError: An argument cannot work, or ranks disagree.
        InputError, FormatError: The corpus is not there, damaged, or contradicts its manifest.
    """

    def __init__(
        self,
        corpus: str | Path,
        *,
        batch_size: int,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        num_workers: int = 0,
        dtype: Dtype = "int64",
        boundaries: bool = False,
        tail: Tail = "wrap",
        weights: Mapping[str, float] | None = None,
        rows_share: float = 1.0,
        holdout_rows: int = 0,
        damage: Damage = "raise",
        window_shards: int | None = None,
        cache: str | Path | None = None,
        cache_bytes: int = 1 << 36,
        prefetch_factor: int = 2,
        pin_memory: bool = False,
        audit: str | Path | None = None,
    ) -> None:
        if window_shards is not None and window_shards < 1:
            raise PlanError(f"window_shards is {window_shards}; it must be 1 or more, or None")
        self._shards = Shards(corpus, damage=damage, cache=cache, cache_bytes=cache_bytes)
        if not 0 < rows_share <= 1:
            raise PlanError(f"rows_share is {rows_share}; it must be in (0, 1]")
        sources = tuple(source.first(rows_share) for source in self._shards.sources(holdout_rows))
        start = whole_weights(weights, sources) if weights else natural_weights(sources, self._shards.epochs)
        self._order = Order(
            sources=sources,
            seed=seed,
            schedule=(Change(position=0, weights=start),),
            rows_per_epoch=sum(natural_weights(sources)) if weights else sum(start),
            window_shards=window_shards,
        )
        self._shards.check_cache(window_shards)
        self._share = Share(batch_size=batch_size, tail=tail, **world_and_rank(world, rank))
        self._share.check(self._order.rows_per_epoch)
        self._delivery = Delivery(dtype=dtype, boundaries=boundaries)
        self._holdout_rows = holdout_rows
        self._num_workers, self._prefetch_factor, self._pin_memory = num_workers, prefetch_factor, pin_memory
        self._position = 0
        self._skipped: list[tuple[int, int]] = []
        self._moved = False
        self._quarantined: Counter[str] = Counter()
        self._audit = AuditLog(Path(audit), self._share) if audit is not None else None
        self._noted = audit is not None or damage == "quarantine"

    @property
    def position(self) -> int:
        """Rows of all ranks that stand before the next step, skipped ones included."""
        return self._position

    @property
    def epoch(self) -> int:
        """Epochs that are over."""
        return self._position // self._order.rows_per_epoch

    @property
    def rows_per_epoch(self) -> int:
        """Rows of all ranks in an epoch."""
        return self._order.rows_per_epoch

    @property
    def sequence_length(self) -> int:
        """Tokens a row."""
        return self._shards.sequence_length

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""
        return self._shards.vocab_size

    @property
    def end_of_document(self) -> int:
        """The token that ends each document."""
        return self._shards.end_of_document

    @property
    def rows(self) -> dict[str, int]:
        """Rows of each source that are trained on."""
        return {source.name: source.rows for source in self._order.sources}

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources."""
        return tuple(self.rows)

    @property
    def drawn(self) -> dict[str, int]:
        """Rows of each source that stand before the next step, for all ranks."""
        counts = self._order.drawn(self._position).tolist()
        return dict(zip(self.sources, counts, strict=True))

    @property
    def quarantined(self) -> dict[str, int]:
        """Rows of damaged blocks that this loader served as end-of-document tokens only, by shard."""
        return dict(self._quarantined)

    @property
    def loader_settings(self) -> dict[str, Any]:
        """What a profiler writes down of it."""
        return {
            "num_workers": self._num_workers,
            "prefetch_factor": self._prefetch_factor if self._num_workers else None,
            "pin_memory": self._pin_memory,
            "batch_size": self._share.batch_size,
        }

    @property
    def fetched(self) -> int:
        """Shards that this process fetched from elsewhere; workers count their own."""
        return self._shards.fetched

    def __len__(self) -> int:
        return self._share.num_steps(self._position, epoch_end(self._order, self._position))

    def __iter__(self) -> Iterator[Batch]:
        self._check_ranks()
        end = epoch_end(self._order, self._position)
        while self._position < end:
            self._moved = False
            if self._audit:
                self._audit.state(self.state_dict())
            served, step_rows = self._position, self._share.step_rows
            last = end if self._share.tail == "short" else end + step_rows
            for batch in self._batches():
                if self._noted:
                    self._note(batch, self._share.mine(served, end)[0])
                self._position = served = min(served + step_rows, last)
                yield batch
                # The caller may have changed weights, skipped rows, or loaded a state.
                if self._moved:
                    end = epoch_end(self._order, self._position) if self._position >= end else end
                    break
            else:
                return

    def dataset(self) -> TokenDataset:
        """What is left of the epoch as a torch dataset, for a DataLoader of one's own."""
        return TokenDataset(self._shards, self._order, self._share, self._delivery, self._position)

    def state_dict(self) -> dict[str, Any]:
        """Where the run is: the same on all ranks, fit for JSON, below 1 KB unless sources are many.

        Taken while a batch is at work, it says that this batch is done.
        """
        return {
            "version": STATE_VERSION,
            "corpus": self._shards.digest,
            "sources": len(self._order.sources),
            "rows": sum(self.rows.values()),
            "sequence_length": self.sequence_length,
            "holdout_rows": self._holdout_rows,
            "window_shards": self._order.window_shards,
            "rows_per_epoch": self._order.rows_per_epoch,
            "seed": self._order.seed,
            "position": self._position,
            "schedule": [[change.position, list(change.weights)] for change in self._order.schedule],
            "skipped": [list(span) for span in self._skipped],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another loader was, whatever its ranks, workers and batch size; also while iterating.

        The mixture and the seed are those of the state.

        Raises:
            PlanError: The state is of another corpus, or of another version; the message names the difference.
        """
        if state.get("version") != STATE_VERSION:
            raise PlanError(
                f"the loader's state has the version {state.get('version')!r}; this dataeff reads {STATE_VERSION}"
            )
        mine = self.state_dict()
        names = ("corpus", "sources", "rows", "sequence_length", "holdout_rows", "window_shards")
        differing = [f"{name}: {state[name]} there, {mine[name]} here" for name in names if state[name] != mine[name]]
        if differing:
            raise PlanError(
                f"the loader's state is of another corpus or another order ({'; '.join(differing)}): give the corpus "
                "and the options that the run began with, or begin a new run without the state"
            )
        self._order = dataclasses.replace(
            self._order,
            seed=state["seed"],
            rows_per_epoch=state["rows_per_epoch"],
            schedule=tuple(Change(position=at, weights=tuple(weights)) for at, weights in state["schedule"]),
            _tables={},
        )
        self._share.check(self._order.rows_per_epoch)
        self._skipped = [(start, stop) for start, stop in state["skipped"]]
        self._position = state["position"]
        self._moved = True

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Another mixture from the next step on. Call it on all ranks between the same steps.

        Raises:
            PlanError: A weight is negative or names no source; or ranks are at different steps or want different ones.
        """
        change = Change(position=self._position, weights=whole_weights(weights, self._order.sources))
        kept = tuple(entry for entry in self._order.schedule if entry.position < self._position)
        agree("a change of weights", self._share, {"position": self._position, "weights": list(change.weights)})
        self._order = dataclasses.replace(self._order, schedule=(*kept, change), _tables={})
        self._moved = True

    def skip_rows(self, count: int) -> None:
        """Leave out the next rows of all ranks, for instance after a spike of the loss. Call it on all ranks.

        Raises:
            PlanError: The count is negative, or ranks disagree.
        """
        if count < 0:
            raise PlanError(f"skip_rows was given {count}; it must be 0 or more rows")
        agree("a skip", self._share, {"position": self._position, "rows": count})
        self._skipped.append((self._position, self._position + count))
        self._position += count
        self._moved = True

    def _note(self, batch: Batch, position: int) -> None:
        if self._audit:
            self._audit.batch(position, batch["row_ids"].numpy())
        if "quarantined" in batch:
            shards = batch["row_ids"][batch["quarantined"]] >> 32
            self._quarantined.update(self._shards.files[shard].path for shard in shards.tolist())

    def _check_ranks(self) -> None:
        facts = {name: value for name, value in self.state_dict().items() if name != "skipped"}
        facts |= {"batch_size": self._share.batch_size, "tail": self._share.tail, "batches": len(self)}
        agree("the start of an epoch", self._share, facts)

    def _batches(self) -> Iterator[Batch]:
        dataset = self.dataset()
        if self._num_workers == 0:
            return BatchIterator(dataset, self._position, 0, 1)
        return iter(
            DataLoader(
                dataset,
                batch_size=None,
                num_workers=self._num_workers,
                prefetch_factor=self._prefetch_factor,
                pin_memory=self._pin_memory,
            )
        )


def held_out(
    corpus: str | Path, source: str, *, rows: int, batch_size: int, boundaries: bool = False, dtype: Dtype = "int64"
) -> Iterator[Batch]:
    """The last `rows` rows of a source, in order: those that a `Loader` with as many `holdout_rows` never serves.

    Yields:
        Batches as a `Loader` does; the last may be smaller.

    Raises:
        PlanError: The source is not there, or has no more rows than that.
    """
    shards = Shards(corpus)
    kept = {entry.name: entry for entry in shards.sources(rows)}
    whole = {entry.name: entry for entry in shards.sources()}
    if source not in whole:
        raise PlanError(f"the corpus has no source {source!r}; it has {', '.join(whole)}")
    places = [
        (whole[source].first_shard + number, row)
        for number, (left, all_rows) in enumerate(zip(kept[source].shard_rows, whole[source].shard_rows, strict=True))
        for row in range(left, all_rows)
    ]
    for start in range(0, len(places), batch_size):
        chosen = np.array(places[start : start + batch_size], np.int64)
        found = Rows(chosen[:, 0].copy(), chosen[:, 1].copy(), np.zeros(len(chosen), np.int64))
        yield from deliver(shards, found, [len(chosen)], Delivery(dtype=dtype, boundaries=boundaries))
