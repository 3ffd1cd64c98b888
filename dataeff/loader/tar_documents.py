"""Documents out of WebDataset shards: read through `webdataset`, dealt so that all ranks have equally many."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from dataeff.errors import FormatError, InputError, PlanError
from dataeff.formats.webdataset_tar import WebdatasetTar, read_samples
from dataeff.loader.agreement import world_and_rank

_FORMAT = "webdataset_tar"
_MANIFEST = "manifest.json"


class _Shard(NamedTuple):
    path: Path
    documents: int


class TarDocuments(IterableDataset[dict[str, Any]]):
    """Documents of a corpus's WebDataset shards, for a DataLoader with any number of workers.

    The shards hold the mixture and were shuffled when they were written; each epoch takes them in another seeded order.
    Their documents are one sequence, of which each rank has a stretch, all equally long, and each worker a stretch of
    that: so no rank runs out before the others, however few shards there are. Of N documents the last N % world are
    left out; `left_out` says how many.

    A document is a dict as `webdataset` decodes it: `__key__`, `json` (id, source and the input's other columns), and
    `txt` or `tokens.npy`. Each shard's checksums are checked before its first document is given.

    Args:
        corpus: Output directory of `dataeff run`.
        seed: Of the order of shards.
        rank, world: Of this process; None asks torch.distributed, or else the environment of torchrun.

    Raises:
        InputError: There are no such shards, or one is missing.
        PlanError: There are fewer documents than ranks.
    """

    def __init__(self, corpus: str | Path, *, seed: int = 0, rank: int | None = None, world: int | None = None) -> None:
        self._shards = _find(Path(corpus))
        self._seed, self._epoch = seed, 0
        place = world_and_rank(world, rank)
        self._rank, self._world = place["rank"], place["world"]
        if len(self) == 0:
            raise PlanError(f"{self._documents} documents for {self._world} ranks: use fewer ranks, or more data")

    @property
    def _documents(self) -> int:
        return sum(shard.documents for shard in self._shards)

    @property
    def left_out(self) -> int:
        """Documents that no rank is given in an epoch."""
        return self._documents % self._world

    def set_epoch(self, epoch: int) -> None:
        """Take the shards in the order of this epoch, in workers that are started from now on."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._documents // self._world

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        first, stop = (self._rank * len(self) + place * len(self) // workers for place in (number, number + 1))
        at = 0
        for index in np.random.default_rng([self._seed, self._epoch]).permutation(len(self._shards)):
            shard = self._shards[index]
            low, high = max(first - at, 0), min(stop - at, shard.documents)
            if low < high:
                yield from _documents_of(shard, low, high)
            at += shard.documents


def _documents_of(shard: _Shard, low: int, high: int) -> Iterator[dict[str, Any]]:
    problems = WebdatasetTar().verify(shard.path)
    if problems:
        raise FormatError(f"{shard.path}: {problems[0]}")
    number = -1
    for number, document in enumerate(read_samples(str(shard.path))):
        if number >= high:
            return
        if number >= low:
            yield document
    if number + 1 != shard.documents:
        raise FormatError(
            f"{shard.path} holds {number + 1} documents, but the manifest says {shard.documents}: the manifest is of "
            "another run; run the recipe again"
        )


def _find(corpus: Path) -> list[_Shard]:
    try:
        entries = json.loads((corpus / _MANIFEST).read_text(encoding="utf-8"))["shards"].get(_FORMAT, [])
        shards = [_Shard(corpus / "shards" / _FORMAT / entry["file"], entry["documents"]) for entry in entries]
    except OSError as error:
        raise InputError(f"{corpus} holds no finished corpus ({error}): give the --out of a `dataeff run`") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{corpus / _MANIFEST} is damaged ({error}): run the recipe again") from error
    if not shards:
        raise InputError(
            f"{corpus} has no WebDataset shards: let its recipe end with Shard(WebdatasetTar()), run it again"
        )
    missing = [shard.path for shard in shards if not shard.path.is_file()]
    if missing:
        raise InputError(f"{len(missing)} of {len(shards)} shards are missing, the first is {missing[0]}: restore it")
    return shards
