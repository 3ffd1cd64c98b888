"""Real ranks under torch.distributed: they agree at the start or say at once what they disagree about."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import torch.distributed as dist
import torch.multiprocessing as mp

from dataeff.errors import PlanError
from dataeff.loader import Loader
from tests.token_corpus import whole_corpus, write_corpus

SHARDS = {"code": [30], "web": [31, 32]}


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def work(rank: int, world: int, port: int, corpus: str, out: str, options: list[dict], change: list[dict]) -> None:
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    try:
        loader = Loader(corpus, **options[rank])
        rows = []
        for number, batch in enumerate(loader):
            rows += batch["row_ids"].tolist()
            if number == 1 and change:
                loader.set_weights(change[rank])
        found = {"rows": rows, "state": loader.state_dict()}
    except PlanError as error:
        found = {"error": str(error)}
    Path(out, f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def on_ranks(corpus, out, options, change=()):
    world = len(options)
    mp.spawn(work, (world, free_port(), str(corpus), str(out), options, list(change)), nprocs=world)
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(world)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), SHARDS)


def test_ranks_take_their_place_from_torch_distributed_and_share_an_epoch(corpus, tmp_path):
    found = on_ranks(corpus, tmp_path, [{"batch_size": 4, "tail": "short"}] * 3)
    assert len({json.dumps(entry["state"]) for entry in found}) == 1
    seen = sorted(row for entry in found for row in entry["rows"])
    assert seen == [shard << 32 | row for shard, row in whole_corpus(SHARDS)]


def test_ranks_that_disagree_all_fail_at_the_start_and_name_what_differs(corpus, tmp_path):
    found = on_ranks(corpus, tmp_path, [{"batch_size": 4}, {"batch_size": 5}])
    assert all("ranks disagree about batch_size (rank 0: 4; rank 1: 5)" in entry["error"] for entry in found)
    found = on_ranks(corpus, tmp_path, [{"batch_size": 4, "seed": 0}, {"batch_size": 4, "seed": 1}])
    assert all("disagree about seed" in entry["error"] for entry in found)
    found = on_ranks(corpus, tmp_path, [{"batch_size": 4, "rank": 0, "world": 2}] * 2)
    assert all("the ranks [0, 0] of 2" in entry["error"] for entry in found)


def test_a_change_of_weights_is_the_same_on_all_ranks_or_none(corpus, tmp_path):
    options = [{"batch_size": 4}] * 2
    found = on_ranks(corpus, tmp_path, options, [{"code": 1, "web": 3}] * 2)
    assert found[0]["state"]["schedule"] == found[1]["state"]["schedule"]
    assert found[0]["state"]["schedule"][-1] == [16, [1, 3]]
    found = on_ranks(corpus, tmp_path, options, [{"code": 1, "web": 3}, {"code": 1, "web": 2}])
    assert all("a change of weights: ranks disagree about weights" in entry["error"] for entry in found)
