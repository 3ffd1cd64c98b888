"""The loader over token shards: exactly once through any chain of restarts, and clear refusals."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from dataeff.errors import FormatError, InputError, PlanError
from dataeff.loader import Loader, TokenDataset, audit, held_out
from dataeff.loader.dataset import BatchIterator
from tests.token_corpus import END, row_tokens, shard_paths, whole_corpus, write_corpus

SHARDS = {"code": [7, 30], "news": [40], "web": [25, 0, 18]}
ROWS = 120


pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:'set_vital'")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), SHARDS)


def ids(batch) -> list[tuple[int, int]]:
    return [(row_id >> 32, row_id & 0xFFFFFFFF) for row_id in batch["row_ids"].tolist()]


def take(loader, num: int | None = None) -> list[tuple[int, int]]:
    """Rows of the next batches, or of all that are left of the epoch."""
    found = []
    for number, batch in enumerate(loader, 1):
        found += ids(batch)
        if number == num:
            break
    return found


def test_a_share_of_the_rows_are_the_first_of_each_source_and_come_round_sooner(corpus):
    loader = Loader(corpus, batch_size=4, rows_share=0.25, holdout_rows=2, tail="short")
    assert loader.rows == {"code": 9, "news": 10, "web": 11}
    seen = Counter(take(loader))
    assert set(seen.values()) == {1}
    first = {(shard, row) for shard, rows in ((0, 7), (1, 2), (2, 10), (3, 11)) for row in range(rows)}
    assert set(seen) == first
    with pytest.raises(PlanError, match="rows: 30 there"):
        Loader(corpus, batch_size=4, holdout_rows=2).load_state_dict(loader.state_dict())
    with pytest.raises(PlanError, match="rows_share is 0"):
        Loader(corpus, batch_size=4, rows_share=0)


def test_an_epoch_holds_every_row_once_with_its_own_tokens(corpus):
    names = [(source, index) for source, counts in enumerate(SHARDS.values()) for index in range(len(counts))]
    seen = []
    for batch in Loader(corpus, batch_size=7, tail="short"):
        assert batch["tokens"].dtype == torch.int64
        for tokens, (shard, row) in zip(batch["tokens"].tolist(), ids(batch), strict=True):
            assert tokens == row_tokens(*names[shard], row, 8)
        seen += ids(batch)
    assert sorted(seen) == whole_corpus(SHARDS)


def test_tokens_as_stored_are_the_same_in_fewer_bytes(corpus):
    stored, wide = (next(iter(Loader(corpus, batch_size=9, dtype=dtype)))["tokens"] for dtype in ("stored", "int64"))
    assert stored.dtype == torch.uint16
    assert stored.to(torch.int64).equal(wide)


def test_epochs_go_on_where_the_last_one_ended_and_wrap_within_a_step(corpus):
    loader = Loader(corpus, batch_size=50)
    epochs = [take(loader) for _ in range(5)]
    assert [len(epoch) for epoch in epochs] == [150, 100, 150, 100, 100]
    everything = [row for epoch in epochs for row in epoch]
    for start in range(0, 600, ROWS):
        assert sorted(everything[start : start + ROWS]) == whole_corpus(SHARDS)
    assert loader.position == 600
    assert loader.epoch == 5


@pytest.mark.parametrize("tail", ["wrap", "short"])
@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_all_ranks_have_equally_many_batches_and_share_the_rows(corpus, world, tail):
    ranks = [Loader(corpus, batch_size=7, rank=rank, world=world, tail=tail) for rank in range(world)]
    batches = [[ids(batch) for batch in loader] for loader in ranks]
    assert len({len(mine) for mine in batches}) == 1
    seen = [row for step in zip(*batches, strict=True) for mine in step for row in mine]
    assert sorted(seen[:ROWS]) == whole_corpus(SHARDS)
    assert len(seen) == (ROWS if tail == "short" else len(batches[0]) * 7 * world)
    assert seen == take(Loader(corpus, batch_size=1), len(seen)) if tail == "short" else True


def test_any_number_of_workers_gives_the_same_batches(corpus):
    alone = [ids(batch) for batch in Loader(corpus, batch_size=11)]
    for workers in (1, 3):
        assert [ids(batch) for batch in Loader(corpus, batch_size=11, num_workers=workers)] == alone
    dataset = Loader(corpus, batch_size=11).dataset()
    assert [ids(batch) for batch in DataLoader(dataset, batch_size=None, num_workers=2)] == alone


def test_living_workers_begin_the_epoch_that_was_set(corpus):
    dataset = Loader(corpus, batch_size=12).dataset()
    torch_loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True)
    ours = Loader(corpus, batch_size=12)
    for epoch in range(3):
        dataset.set_epoch(epoch)
        assert [row for batch in torch_loader for row in ids(batch)] == take(ours)


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdatas_stateful_loader_resumes_it(corpus, workers):
    def torchdata_loader():
        return StatefulDataLoader(Loader(corpus, batch_size=8).dataset(), batch_size=None, num_workers=workers)

    wanted = [ids(batch) for batch in torchdata_loader()]
    assert wanted == [ids(batch) for batch in Loader(corpus, batch_size=8)]
    first, found = torchdata_loader(), []
    for batch in first:
        found.append(ids(batch))
        if len(found) == 6:
            break
    state = pickle.loads(pickle.dumps(first.state_dict()))
    second = torchdata_loader()
    second.load_state_dict(state)
    assert found + [ids(batch) for batch in second] == wanted


def worker_batches(loader, workers: int):
    """What torch's DataLoader gives with so many workers, each with its own copy, without the processes."""
    copies = [pickle.loads(pickle.dumps(loader.dataset())) for _ in range(workers)]
    iterators = [BatchIterator(copy, loader.position, at, workers) for at, copy in enumerate(copies)]
    step = 0
    while (batch := next(iterators[step % workers], None)) is not None:
        yield batch
        step += 1


@pytest.mark.parametrize("seed", range(200))
def test_a_chain_of_breaks_kills_and_changes_sees_every_row_once_in_one_order(corpus, seed):
    rng = random.Random(seed)
    window = rng.choice([None, 1, 2])
    options = {"seed": seed, "window_shards": window}
    state, served = Loader(corpus, batch_size=1, **options).state_dict(), []
    while len(served) < 3 * ROWS:
        world, batch_size, workers = rng.randint(1, 4), rng.randint(1, 9), rng.randint(0, 3)
        ranks = [Loader(corpus, batch_size=batch_size, rank=rank, world=world, **options) for rank in range(world)]
        for loader in ranks:
            loader.load_state_dict(json.loads(json.dumps(state)))
        if rng.random() < 0.4:
            weights = {name: rng.choice([0.5, 1, 2.25]) for name in SHARDS}
            for loader in ranks:
                loader.set_weights(weights)
        begun = ranks[0].state_dict()
        checkpoint = (begun, len(served))
        streams = [iter(worker_batches(loader, workers) if workers else loader) for loader in ranks]
        for step, batches in enumerate(zip(*streams, strict=False)):
            served += [row for batch in batches for row in ids(batch)]
            if workers:
                state = {**begun, "position": begun["position"] + (step + 1) * world * batch_size}
            else:
                states = [loader.state_dict() for loader in ranks]
                assert all(entry == states[0] for entry in states)
                state = states[0]
            if rng.random() < 0.1:
                checkpoint = (state, len(served))
            if rng.random() < 0.15:
                break
        if rng.random() < 0.3:
            # Killed: what came after the last checkpoint is lost, and done again.
            state, kept = checkpoint
            del served[kept:]
    assert state["position"] == len(served)
    final = Loader(corpus, batch_size=1, **options)
    final.load_state_dict(state)
    rows = final.dataset().order.rows(0, len(served))
    assert served == list(zip(rows.shards.tolist(), rows.rows.tolist(), strict=True))
    if state["schedule"] == Loader(corpus, batch_size=1).state_dict()["schedule"]:
        for start in range(0, len(served) - ROWS + 1, ROWS):
            assert sorted(served[start : start + ROWS]) == whole_corpus(SHARDS)
    for source, counts in enumerate(SHARDS.values()):
        # Within its own rounds, no row of a source comes again before all have come.
        mine = [row for row, owner in zip(served, rows.sources.tolist(), strict=True) if owner == source]
        for start in range(0, len(mine), sum(counts)):
            assert max(Counter(mine[start : start + sum(counts)]).values()) == 1


def test_a_state_says_that_the_batch_at_work_is_done_and_is_small(corpus):
    loader = Loader(corpus, batch_size=10)
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    state = loader.state_dict()
    assert state["position"] == 20
    assert len(json.dumps(state)) < 1024
    rest = take(loader)
    again = Loader(corpus, batch_size=10)
    again.load_state_dict(state)
    assert take(again) == rest


def test_a_state_that_is_loaded_while_iterating_counts_from_the_next_batch(corpus):
    loader = Loader(corpus, batch_size=10)
    start = loader.state_dict()
    wanted = take(loader)
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict(start)
    assert ids(next(iterator)) == wanted[:10]


def test_with_real_workers_a_change_takes_effect_at_once(corpus):
    found = {}
    for workers in (0, 2):
        loader, rows = Loader(corpus, batch_size=5, num_workers=workers), []
        for number, batch in enumerate(loader):
            rows += ids(batch)
            if number == 3:
                loader.set_weights({"code": 1, "web": 3})
            if number == 6:
                loader.skip_rows(13)
        found[workers] = (rows, loader.state_dict())
    assert found[0] == found[2]
    changed = [shard for shard, _ in found[0][0][20:35]]
    assert not set(changed) & {2}, "news has no weight any more"


def test_a_position_in_its_document_and_the_documents_number(tmp_path):
    corpus = write_corpus(tmp_path, {"web": [6]}, length=8)
    batch = next(iter(Loader(corpus, batch_size=6, boundaries=True)))
    assert batch["position_ids"].tolist() == [list(range(8))] * 6
    assert batch["document_ids"].tolist() == [[0] * 8] * 6


def test_held_out_rows_are_never_served_and_are_the_last_of_each_source(corpus):
    held = {
        name: [row for batch in held_out(corpus, name, rows=12, batch_size=5) for row in ids(batch)] for name in SHARDS
    }
    loader = Loader(corpus, batch_size=4, holdout_rows=12)
    assert loader.rows == {"code": 25, "news": 28, "web": 31}
    served = take(loader)
    assert not set(served) & {row for rows in held.values() for row in rows}
    assert sorted([*served, *(row for rows in held.values() for row in rows)]) == whole_corpus(SHARDS)
    assert held["web"] == [(5, row) for row in range(6, 18)]
    with pytest.raises(PlanError, match="code has only 37 rows"):
        Loader(corpus, batch_size=1, holdout_rows=40)
    with pytest.raises(PlanError, match="no source 'books'; it has code, news, web"):
        next(held_out(corpus, "books", rows=1, batch_size=1))


def test_the_mixture_of_the_manifest_is_an_epoch(tmp_path):
    corpus = write_corpus(tmp_path, {"code": [20], "web": [40]}, epochs={"code": 2.0, "web": 0.5})
    loader = Loader(corpus, batch_size=10)
    seen = Counter(shard for shard, _ in take(loader))
    assert seen == {0: 40, 1: 20}
    assert loader.drawn == {"code": 40, "web": 20}


def test_a_row_of_uneven_length_documents_is_traced(tmp_path):
    from dataeff.formats.arrow_tokens import ArrowTokens
    from tests import shards

    documents = [[1, 2, 3], [4, 5], [6] * 9, [7]]
    data, _ = shards.written(ArrowTokens(sequence_length=6, shard_tokens=1 << 10), [shards.token_batch(documents)])
    (tmp_path / "web-00000.arrow").write_bytes(data)
    batch = next(iter(Loader(tmp_path, batch_size=3, boundaries=True)))
    by_row = {
        row: (positions, numbers)
        for (_, row), positions, numbers in zip(
            ids(batch), batch["position_ids"].tolist(), batch["document_ids"].tolist(), strict=True
        )
    }
    assert by_row[0] == ([0, 1, 2, 0, 1, 0], [0, 0, 0, 1, 1, 2])
    assert by_row[1] == ([1, 2, 3, 4, 5, 6], [0] * 6)
    assert by_row[2] == ([7, 8, 0, 0, 0, 0], [0, 0, 1, -1, -1, -1])


# Damage


@pytest.fixture
def own_corpus(tmp_path):
    return write_corpus(tmp_path, {"web": [30, 30]}, length=2048)


def flip(path, byte: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


@settings(deadline=None, max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found_before_its_row_is_served(tmp_path_factory, place, bit):
    corpus = write_corpus(tmp_path_factory.mktemp("flip"), {"web": [9, 9]})
    path = shard_paths(corpus)[1]
    flip(path, int(place * path.stat().st_size), bit)
    with pytest.raises(FormatError, match="web-00001"):
        take(Loader(corpus, batch_size=6))


def test_a_damaged_block_is_named_with_its_shard_and_the_remedy(own_corpus):
    path = shard_paths(own_corpus)[0]
    flip(path, 6000, 3)
    with pytest.raises(FormatError, match=r"web-00000\.arrow: block 0 of 1 .* restore .* damage='quarantine'"):
        take(Loader(own_corpus, batch_size=6))


@pytest.mark.parametrize("workers", [0, 1])
def test_quarantine_serves_end_tokens_for_the_bad_block_only_and_counts(tmp_path, workers):
    # 300 rows of 4 KiB: two blocks, of which the first is damaged.
    corpus = write_corpus(tmp_path, {"web": [300]}, length=2048)
    flip(shard_paths(corpus)[0], 500_000, 0)
    loader = Loader(corpus, batch_size=10, damage="quarantine", num_workers=workers)
    bad = [
        row
        for batch in loader
        for tokens, (_, row) in zip(batch["tokens"], ids(batch), strict=True)
        if (tokens == END).all()
    ]
    assert sorted(bad) == list(range(256))
    assert loader.quarantined == {str(shard_paths(corpus)[0]): 256}


def test_a_shard_cut_short_is_refused(own_corpus):
    path = shard_paths(own_corpus)[0]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FormatError, match="web-00000"):
        take(Loader(own_corpus, batch_size=6))


def test_a_missing_shard_is_named_at_the_start(own_corpus):
    shard_paths(own_corpus)[1].unlink()
    with pytest.raises(InputError, match=r"1 of 2 shards are missing .* web-00001\.arrow"):
        Loader(own_corpus, batch_size=6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entry: entry.update(rows=31), "number of rows is 30, but .* say 31"),
        (lambda entry: entry.update(source="code"), "source is web, but .* say code"),
    ],
)
def test_a_manifest_that_lies_is_told_from_the_shard(own_corpus, change, message):
    path = own_corpus / "manifest.json"
    content = json.loads(path.read_text())
    change(content["shards"]["arrow_tokens"][1])
    path.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=message):
        take(Loader(own_corpus, batch_size=6))


def test_a_manifest_that_is_no_manifest_is_damaged(own_corpus):
    (own_corpus / "manifest.json").write_text('{"shards": {"arrow_tokens": [{"file": ')
    with pytest.raises(FormatError, match=r"manifest\.json is damaged"):
        Loader(own_corpus, batch_size=6)


def test_a_shard_of_another_run_is_refused(own_corpus, tmp_path_factory):
    other = write_corpus(tmp_path_factory.mktemp("other"), {"web": [30, 30]}, length=2048, fingerprint="f" * 32)
    shard_paths(own_corpus)[1].write_bytes(shard_paths(other)[1].read_bytes())
    with pytest.raises(FormatError, match="fingerprint is ffff"):
        take(Loader(own_corpus, batch_size=6))


def test_a_folder_without_token_rows_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no token rows"):
        Loader(tmp_path, batch_size=1)
    with pytest.raises(InputError, match="cannot be read"):
        Loader(tmp_path / "nowhere", batch_size=1)


# Arguments and states that cannot work


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; it must be 1 or more"),
        ({"batch_size": 8, "rank": 4, "world": 4}, r"rank is 4; it must be in \[0, world = 4\)"),
        ({"batch_size": 8, "rank": 0}, "give both, or neither"),
        ({"batch_size": 1, "rank": 0, "world": 121}, "takes 121 rows, but an epoch has 120"),
        ({"batch_size": 8, "tail": "drop"}, "'wrap' or 'short'"),
        ({"batch_size": 8, "dtype": "int8"}, "'int64' or 'stored'"),
        ({"batch_size": 8, "damage": "ignore"}, "'raise' or 'quarantine'"),
        ({"batch_size": 8, "weights": {"books": 1.0}}, "the corpus lacks; it has code, news, web"),
        ({"batch_size": 8, "window_shards": 0}, "window_shards is 0"),
    ],
)
def test_arguments_that_cannot_work_are_refused_at_once(corpus, options, message):
    with pytest.raises(PlanError, match=message):
        Loader(corpus, **options)


def test_an_epoch_that_would_leave_a_rank_without_a_batch_is_refused_before_it_begins(corpus):
    # 120 rows in steps of 4 x 7 leave 8 rows, enough; in steps of 59 x 2 they leave 2, for 59 ranks.
    assert len(Loader(corpus, batch_size=7, rank=0, world=4, tail="short")) == 5
    with pytest.raises(PlanError, match="a step of 2 rows for 59 ranks"):
        len(Loader(corpus, batch_size=2, rank=0, world=59, tail="short"))


def test_a_state_of_another_corpus_is_refused_with_the_difference(corpus, own_corpus):
    state = Loader(own_corpus, batch_size=1).state_dict()
    with pytest.raises(PlanError, match=r"sources: 1 there, 3 here; rows: 60 there, 120 here; sequence_length: 2048"):
        Loader(corpus, batch_size=1).load_state_dict(state)
    with pytest.raises(PlanError, match="holdout_rows: 3 there, 0 here"):
        Loader(corpus, batch_size=1).load_state_dict(Loader(corpus, batch_size=1, holdout_rows=3).state_dict())
    with pytest.raises(PlanError, match="version None"):
        Loader(corpus, batch_size=1).load_state_dict({})


def test_a_worker_refuses_the_state_of_another_number_of_workers(corpus):
    dataset = Loader(corpus, batch_size=8).dataset()
    state = BatchIterator(dataset, 0, 1, 2).state_dict()
    with pytest.raises(PlanError, match="worker 1 of 2, this is worker 0 of 3"):
        BatchIterator(dataset, 0, 0, 3).load_state_dict(state)


def test_a_negative_skip_is_refused(corpus):
    with pytest.raises(PlanError, match="-1; it must be 0 or more"):
        Loader(corpus, batch_size=8).skip_rows(-1)


# Audit


def test_the_audit_proves_every_row_once_over_ranks_restarts_and_skips(corpus, tmp_path):
    state = Loader(corpus, batch_size=1).state_dict()
    for world, steps in ((2, 4), (3, 2), (1, 5)):
        ranks = [Loader(corpus, batch_size=4, rank=rank, world=world, audit=tmp_path) for rank in range(world)]
        for loader in ranks:
            loader.load_state_dict(state)
            take(loader, steps)
            loader.skip_rows(6)
        state = ranks[0].state_dict()
    take(loader)
    found = audit(corpus, tmp_path)
    assert found.holds
    assert (found.ranks, found.start, found.stop) == (3, 0, loader.position)
    assert sum(stop - start for start, stop in found.skipped) == 18


def test_the_audit_names_what_is_missing_what_came_twice_and_what_is_wrong(corpus, tmp_path):
    first, second = (Loader(corpus, batch_size=5, rank=rank, world=2, audit=tmp_path) for rank in range(2))
    take(first, 6)
    take(second, 3)
    found = audit(corpus, tmp_path)
    assert not found.holds
    assert found.missing == ((35, 40), (45, 50))
    again = Loader(corpus, batch_size=10, audit=tmp_path)
    again.load_state_dict({**again.state_dict(), "position": 20})
    take(again, 3)
    found = audit(corpus, tmp_path)
    assert (found.missing, found.repeated) == ((), ((20, 35), (40, 45)))
    path = sorted(tmp_path.glob("*.jsonl"))[0]
    lines = path.read_text().splitlines()
    entry = json.loads(lines[2])
    lines[2] = json.dumps([*entry[:2], "0" * 16])
    path.write_text("\n".join([*lines, '[50, 5, "00']))
    found = audit(corpus, tmp_path)
    assert found.wrong == (entry[0],)
    assert found.torn_lines == 1


_KILLED = """
import json, os, sys
from pathlib import Path
from dataeff.loader import Loader
corpus, folder = sys.argv[1:]
loader = Loader(corpus, batch_size=3, num_workers=1, audit=Path(folder, "audit"))
for number, batch in enumerate(loader):
    Path(folder, "next").write_text(json.dumps(loader.state_dict()))
    os.replace(Path(folder, "next"), Path(folder, "state"))
    print(number, flush=True)
"""


def test_a_process_that_is_killed_loses_no_row(corpus, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _KILLED, str(corpus), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if int(line) == 9:
            break
    process.kill()
    process.wait()
    loader = Loader(corpus, batch_size=5, audit=tmp_path / "audit", tail="short")
    loader.load_state_dict(json.loads((tmp_path / "state").read_text()))
    assert loader.position >= 30
    take(loader)
    found = audit(corpus, tmp_path / "audit")
    assert (found.start, found.stop, found.missing, found.wrong) == (0, ROWS, (), ())
    # At most the batch that was being handed over when the kill came is seen again.
    assert sum(stop - start for start, stop in found.repeated) <= 3


def test_the_audit_command_says_what_is_proved_and_fails_where_it_is_not(corpus, tmp_path):
    command = [sys.executable, "-m", "dataeff", "audit", str(corpus), str(tmp_path)]
    loader = Loader(corpus, batch_size=5, rank=0, world=2, audit=tmp_path)
    take(loader, 2)
    other = Loader(corpus, batch_size=5, rank=1, world=2, audit=tmp_path)
    take(other, 1)
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0
    assert "3 batches of 2 ranks, positions 0 to 15" in found.stdout
    assert "every row of the order was served once" in found.stdout
    take(loader, 1)
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 1
    assert "5 positions were served by no rank: 15 to 20" in found.stdout


def test_the_audit_of_nothing_says_so(corpus, own_corpus, tmp_path):
    with pytest.raises(InputError, match="no audit logs"):
        audit(corpus, tmp_path / "none")
    take(Loader(corpus, batch_size=5, audit=tmp_path / "log"), 1)
    with pytest.raises(FormatError, match="is of the corpus"):
        audit(own_corpus, tmp_path / "log")


def test_a_dataset_is_a_torch_dataset_with_a_length(corpus):
    dataset = Loader(corpus, batch_size=7).dataset()
    assert isinstance(dataset, TokenDataset)
    assert len(dataset) == 18
    assert np.isclose(len(DataLoader(dataset, batch_size=None)), 18)


def test_without_torch_the_extra_is_named():
    code = "import sys; sys.modules['torch'] = None; from dataeff.loader import Loader"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "PlanError: the loader needs torch, which is not installed: pip install 'dataeff[train]'" in found.stderr
