"""Which row stands at which position of training: a function of the corpus, the seed and the mixture, never a list.

A position is a row's number in the global order, counted over all ranks from the start of the run. The mixture says
which source a position takes its row from, and how many rows of that source stand before; a seeded permutation, another
one each time the source begins again, says which row that is. So nothing has to be stored or replayed to go on at
any position, and ranks, workers and batch sizes do not matter: they only say who asks for which positions.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dataeff.arrow import I64, U64
from dataeff.errors import PlanError
from dataeff.kernel.interleave import interleaved, taken_before
from dataeff.kernel.permutation import KEYS, permuted

PARTS = 1 << 20
"""Rows of a period when weights were given as fractions: shares are whole multiples of one in so many."""
_MAX_PERIOD = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source's shards."""

    name: str
    first_shard: int
    """Number of its first shard among those of all sources; its others follow."""
    shard_rows: tuple[int, ...]
    """Rows of each shard that are trained on."""

    @property
    def rows(self) -> int:
        """Rows of all its shards."""
        return sum(self.shard_rows)

    def first(self, share: float) -> Source:
        """A share of its rows, rounded up: those that come first."""
        left = math.ceil(share * self.rows)
        rows = []
        for there in self.shard_rows:
            rows.append(min(left, there))
            left -= rows[-1]
        return Source(name=self.name, first_shard=self.first_shard, shard_rows=tuple(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The mixture from a position on."""

    position: int
    weights: tuple[int, ...]
    """Rows of each source in every sum(weights) rows, in the order of the sources."""


class Rows(NamedTuple):
    """Some positions' rows, shape (rows,) each."""

    shards: I64
    """Number of the shard among those of all sources."""
    rows: I64
    """Place in the shard."""
    sources: I64


@dataclass(frozen=True, kw_only=True)
class Order:
    """The global order.

    Args:
        sources: All sources; the order in which they stand counts.
        seed: Which of all orders.
        schedule: The mixture, the first change at position 0, positions rising.
        rows_per_epoch: Rows of all sources that are called an epoch. With natural weights and the rows of the whole
            corpus, every row is in it once.
        window_shards: Rows are shuffled among so many shards of a source at a time, shards in shuffled order, so that
            only these must be at hand; None shuffles all rows of a source together.
    """

    sources: tuple[Source, ...]
    seed: int
    schedule: tuple[Change, ...]
    rows_per_epoch: int
    window_shards: int | None = None
    _tables: dict[tuple[int, int], tuple[I64, I64]] = field(default_factory=dict, repr=False, compare=False)

    def rows(self, position: int, count: int) -> Rows:
        """The rows at positions `position` to `position + count`."""
        found = Rows(*(np.empty(count, np.int64) for _ in range(3)))
        done = 0
        while done < count:
            number = self._change_at(position + done)
            change = self.schedule[number]
            later = [entry.position for entry in self.schedule[number + 1 :]]
            size = min(count - done, later[0] - position - done) if later else count - done
            weights = np.array(change.weights, np.int64)
            taken = taken_before(weights, position + done - change.position)
            sources, ordinals = interleaved(weights, taken, size)
            ordinals += self._before[number][sources]
            piece = slice(done, done + size)
            found.sources[piece] = sources
            for source in np.flatnonzero(np.bincount(sources)).tolist():
                mine = np.flatnonzero(sources == source)
                shards, rows = self._locate(source, int(ordinals[mine[0]]), len(mine))
                found.shards[piece][mine], found.rows[piece][mine] = shards, rows
            done += size
        return found

    def drawn(self, position: int) -> I64:
        """Rows of each source that stand before a position, shape (sources,)."""
        number = self._change_at(position)
        change = self.schedule[number]
        taken = taken_before(np.array(change.weights, np.int64), position - change.position)
        return np.asarray(self._before[number] + taken)

    def _change_at(self, position: int) -> int:
        return max(number for number, change in enumerate(self.schedule) if change.position <= position)

    @functools.cached_property
    def _before(self) -> list[I64]:
        """Rows of each source that stand before each change."""
        before = [np.zeros(len(self.sources), np.int64)]
        for change, following in zip(self.schedule, self.schedule[1:], strict=False):
            taken = taken_before(np.array(change.weights, np.int64), following.position - change.position)
            before.append(before[-1] + taken)
        return before

    def _locate(self, source: int, ordinal: int, count: int) -> tuple[I64, I64]:
        """Shards and rows of a source's rows `ordinal` to `ordinal + count`, counted over its epochs."""
        total = self.sources[source].rows
        shards, rows = np.empty(count, np.int64), np.empty(count, np.int64)
        done = 0
        while done < count:
            epoch, place = divmod(ordinal + done, total)
            order, ends = self._epoch(source, epoch)
            window_size = self.window_shards or len(order)
            window = int(np.searchsorted(ends[window_size - 1 : -1 : window_size], place, "right"))
            members = slice(window * window_size, (window + 1) * window_size)
            begin = int(ends[members.start - 1]) if window else 0
            member_ends = ends[members] - begin
            size = min(count - done, begin + int(member_ends[-1]) - place)
            places = permuted(place - begin, size, int(member_ends[-1]), self._keys(source, epoch, window))
            chosen = np.searchsorted(member_ends, places, "right")
            piece = slice(done, done + size)
            shards[piece] = self.sources[source].first_shard + order[members][chosen]
            rows[piece] = places - np.concatenate([[0], member_ends[:-1]])[chosen]
            done += size
        return shards, rows

    def _epoch(self, source: int, epoch: int) -> tuple[I64, I64]:
        """A source's shards in the order of an epoch, and their last rows' places plus one; shape (shards,) each."""
        key = (source, epoch if self.window_shards else 0)
        if key not in self._tables:
            sizes = np.array(self.sources[source].shard_rows, np.int64)
            order = np.arange(len(sizes))
            if self.window_shards:
                order = permuted(0, len(sizes), len(sizes), self._keys(source, epoch, -1))
            if len(self._tables) > 2 * len(self.sources):
                self._tables.clear()
            self._tables[key] = order, np.cumsum(sizes[order])
        return self._tables[key]

    def _keys(self, source: int, epoch: int, window: int) -> U64:
        label = json.dumps([self.seed, self.sources[source].name, epoch, window])
        return np.frombuffer(hashlib.blake2b(label.encode(), digest_size=8 * KEYS).digest(), "<u8").astype(np.uint64)


def whole_weights(weights: Mapping[str, float], sources: tuple[Source, ...]) -> tuple[int, ...]:
    """Shares as whole rows of a period of `PARTS`, by largest remainder; a source that has a weight gets at least one.

    Args:
        weights: By source, not negative, of any sum above 0; a source that is missing has none.
        sources: All sources.

    Raises:
        PlanError: A weight is negative, not finite, or of no source; or of a source without rows; or all are 0.
    """
    names = [source.name for source in sources]
    for name, weight in weights.items():
        if name not in names:
            raise PlanError(f"weights name the source {name!r}, which the corpus lacks; it has {', '.join(names)}")
        if not (math.isfinite(weight) and weight >= 0):
            raise PlanError(f"the weight of {name} is {weight}; it must be a number, 0 or more")
    total = math.fsum(weights.values())
    if total <= 0:
        raise PlanError(f"no source has a weight above 0; give one to at least one of {', '.join(names)}")
    for source in sources:
        if weights.get(source.name, 0) > 0 and source.rows == 0:
            raise PlanError(f"the source {source.name} has no rows to train on, but a weight of {weights[source.name]}")
    exact = [weights.get(name, 0.0) / total * PARTS for name in names]
    parts = [max(math.floor(share), int(share > 0)) for share in exact]
    by_remainder = sorted(range(len(names)), key=lambda number: (parts[number] - exact[number], number))
    for number in by_remainder[: max(0, PARTS - sum(parts))]:
        parts[number] += 1
    return _reduced(parts)


def natural_weights(sources: tuple[Source, ...], epochs: Mapping[str, float] | None = None) -> tuple[int, ...]:
    """Each source's rows, times how often it is to be seen in an epoch of the whole: once, if nothing is given.

    Raises:
        PlanError: An epoch would have no rows, or 2**31 or more.
    """
    rows = [source.rows * (epochs or {}).get(source.name, 0.0 if epochs else 1.0) for source in sources]
    weights = tuple(max(round(count), int(count > 0)) for count in rows)
    if not 1 <= sum(weights) <= _MAX_PERIOD:
        raise PlanError(f"an epoch has {sum(weights)} rows; it must have 1 to {_MAX_PERIOD}: use longer rows")
    return weights


def _reduced(weights: list[int]) -> tuple[int, ...]:
    divisor = math.gcd(*weights)
    return tuple(weight // divisor for weight in weights)
