"""All ranks must mean the same run: found out in a second at the start, not by a hang at the end of an epoch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypedDict

import torch.distributed as dist

from dataeff.errors import PlanError
from dataeff.loader.dataset import Share


class WorldAndRank(TypedDict):
    """A process among all."""

    world: int
    rank: int


def world_and_rank(world: int | None, rank: int | None) -> WorldAndRank:
    """What was given, or what torch.distributed says, or the environment of torchrun; alone where nobody says anything.

    Raises:
        PlanError: Only one of the two was given.
    """
    if (world is None) != (rank is None):
        raise PlanError(
            f"rank is {rank} and world is {world}; give both, or neither to take them from torch.distributed"
        )
    if world is not None and rank is not None:
        return {"world": world, "rank": rank}
    if dist.is_available() and dist.is_initialized():
        return {"world": dist.get_world_size(), "rank": dist.get_rank()}
    return {"world": int(os.environ.get("WORLD_SIZE", "1")), "rank": int(os.environ.get("RANK", "0"))}


def agree(what: str, share: Share, facts: Mapping[str, Any]) -> None:
    """Check that all ranks of torch.distributed have the same facts; nothing where it is not running or has one rank.

    Raises:
        PlanError: On every rank, where they differ; the message names what differs, and the ranks.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return
    gathered: list[dict[str, Any]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(gathered, {**facts, "world": share.world, "rank": share.rank})
    ranks = [entry["rank"] for entry in gathered]
    if share.world != len(gathered) or sorted(ranks) != list(range(len(gathered))):
        raise PlanError(
            f"{what}: torch.distributed has {len(gathered)} ranks, but their loaders were told to be the ranks {ranks} "
            f"of {share.world}: leave rank and world away, or give each its own"
        )
    for name in facts:
        values = {entry["rank"]: entry.get(name) for entry in gathered}
        if any(value != values[0] for value in values.values()):
            told = "; ".join(f"rank {rank}: {str(value)[:80]}" for rank, value in list(values.items())[:8])
            raise PlanError(
                f"{what}: ranks disagree about {name} ({told}): start all with the same arguments and state"
            )
