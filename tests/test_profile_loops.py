"""The profiler in loops of one's own: what ends a step, what a batch is, and that nothing else changes."""

from __future__ import annotations

import threading
import time
from collections import UserDict, namedtuple
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, _utils, dataloader

from dataeff.errors import PlanError
from dataeff.profile import Profiler
from dataeff.profile.windows import PATIENCE
from dataeff.profile.workers import Stamped, size_of
from dataeff.steps import RunRecord, read_run
from tests.profiled.slow_data import spin

Point = namedtuple("Point", "x y")


class Numbers(Dataset[Any]):
    def __init__(self, count: int = 8) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Point:
        if index < 0 or index >= self._count:
            raise ValueError(f"no number {index}")
        return Point(torch.tensor(index), "odd" if index % 2 else "even")


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        # The last worker has less to give than the others.
        yield from range(worker, 10, workers)


def optimizer() -> torch.optim.Optimizer:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.zeros(2)
    return torch.optim.SGD([weight])


def record(out: Path) -> RunRecord:
    found = read_run(out)
    for table in found.steps.values():
        steps = table.to_pylist()
        assert all(earlier["stop_ns"] == later["start_ns"] for earlier, later in pairwise(steps))
        assert all(0 <= step["stall_ns"] <= step["stop_ns"] - step["start_ns"] for step in steps)
    return found


def column(out: Path, name: str) -> list[Any]:
    return record(out).steps[0][name].to_pylist()


def test_any_iterable_can_be_watched_and_each_batch_is_a_step_where_nothing_else_ends_one(tmp_path: Path):
    with Profiler(tmp_path) as profiler:
        watched = profiler.watch([torch.ones(3, 5)] * 10)
        assert len(watched) == 10
        assert sum(1 for _ in watched) == 10
    assert column(tmp_path, "micro_batches") == [1] * 10
    assert column(tmp_path, "samples") == [3] * 10
    assert column(tmp_path, "steady") == [False, *[True] * 9]
    assert record(tmp_path).batches[0]["worker"].to_pylist() == [None] * 10


def test_a_long_loop_without_optimizer_is_written_down_as_it_goes(tmp_path: Path):
    with Profiler(tmp_path) as profiler:
        for number, _ in enumerate(profiler.watch(range(PATIENCE + 30))):
            if number > PATIENCE + 2:
                assert profiler.num_steps == number
    assert column(tmp_path, "step") == list(range(PATIENCE + 30))


def test_an_optimizer_ends_steps_whatever_number_of_batches_they_took(tmp_path: Path):
    adam = optimizer()
    with Profiler(tmp_path) as profiler:
        for number, _ in enumerate(profiler.watch(range(12)), 1):
            if number % 3 == 0:
                adam.step()
    assert column(tmp_path, "micro_batches") == [3] * 4
    assert record(tmp_path).batches[0]["step"].to_pylist() == [step for step in range(4) for _ in range(3)]


def test_two_optimizers_of_a_step_are_one_step(tmp_path: Path):
    first, second = optimizer(), optimizer()
    with Profiler(tmp_path):
        for _ in DataLoader(Numbers()):
            first.step()
            second.step()
    assert column(tmp_path, "micro_batches") == [1] * 8


def test_what_the_caller_says_of_a_step_counts(tmp_path: Path):
    adam = optimizer()
    with Profiler(tmp_path) as profiler:
        for number, _ in enumerate(profiler.watch([torch.ones(2)] * 6)):
            adam.step()
            if number % 2:
                profiler.step(tokens=100 + number, loss=0.5)
            elif number:
                adam.step()
    # The first batch was stepped before the caller said that it says when.
    assert column(tmp_path, "tokens") == [0, 101, 103, 105]
    assert column(tmp_path, "micro_batches") == [1, 1, 2, 2]
    assert column(tmp_path, "samples") == [2, 2, 4, 4]
    assert column(tmp_path, "loss") == [None, 0.5, 0.5, 0.5]


def test_an_iterator_that_nobody_stamps_is_split_by_processor_time(tmp_path: Path):
    def slow() -> Iterator[int]:
        for number in range(8):
            spin(0.004) if number % 2 else time.sleep(0.004)
            yield number

    with Profiler(tmp_path) as profiler:
        for _ in profiler.watch(slow()):
            profiler.step()
    steps = record(tmp_path).steps[0].to_pylist()
    assert all(step["stall_storage_ns"] > step["stall_decode_ns"] for step in steps[2::2])
    assert sum(step["stall_decode_ns"] for step in steps[1::2]) >= 4 * 4e6


def test_the_wait_for_a_prefetching_thread_is_what_that_thread_waited_for(tmp_path: Path):
    """The queue is watched; the loader is read by another thread."""

    class Slow(Dataset[int]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            time.sleep(0.01)
            return index

    def prefetched() -> Iterator[Any]:
        queue: Queue[Any] = Queue(2)

        def fill() -> None:
            for batch in DataLoader(Slow(), batch_size=None):
                queue.put(batch)
            queue.put(None)

        thread = threading.Thread(target=fill)
        thread.start()
        yield from iter(queue.get, None)
        thread.join()

    adam = optimizer()
    with Profiler(tmp_path) as profiler:
        for _ in profiler.watch(prefetched()):
            adam.step()
    steps = record(tmp_path).steps[0].to_pylist()
    assert len(steps) == 8
    assert sum(step["stall_storage_ns"] for step in steps) > 0.5 * sum(step["stall_ns"] for step in steps)
    assert set(record(tmp_path).batches[0]["worker"].to_pylist()) == {-1}


def test_batches_of_other_threads_are_no_waits_of_the_loop(tmp_path: Path):
    adam = optimizer()
    with Profiler(tmp_path) as profiler:
        thread = threading.Thread(target=lambda: [None for _ in DataLoader(Numbers(50))])
        thread.start()
        thread.join()
        for _ in profiler.watch(range(5)):
            adam.step()
    assert column(tmp_path, "micro_batches") == [1] * 5


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_the_loop_gets_what_it_would_get_without_us(tmp_path: Path, workers: int, persistent: bool):
    def batches() -> list[Any]:
        loader = DataLoader(Numbers(), batch_size=2, num_workers=workers, persistent_workers=persistent)
        return [batch for _ in range(2) for batch in loader]

    plain = batches()
    adam = optimizer()
    with Profiler(tmp_path):
        measured = batches()
        adam.step()
    assert [type(batch) for batch in measured] == [Point] * 8
    assert [batch.x.tolist() for batch in measured] == [batch.x.tolist() for batch in plain]
    assert [batch.y for batch in measured] == [batch.y for batch in plain]
    stamped = record(tmp_path).batches[0]["worker"].to_pylist()
    # Of two passes before a step only the last can be known to train.
    assert stamped == [-1] * 4 if not workers else [0, 1, 0, 1]


def test_an_iterable_dataset_whose_workers_end_at_different_times(tmp_path: Path):
    adam = optimizer()
    with Profiler(tmp_path):
        seen = []
        for batch in DataLoader(Stream(), batch_size=None, num_workers=2):
            seen.append(batch)
            adam.step()
    assert sorted(seen) == list(range(10))
    assert set(record(tmp_path).batches[0]["worker"].to_pylist()) == {0, 1}


def test_spawned_workers_stamp_too(tmp_path: Path):
    adam = optimizer()
    with Profiler(tmp_path):
        for _ in DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context="spawn"):
            adam.step()
    assert record(tmp_path).batches[0]["worker"].to_pylist() == [0] * 4


@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_a_dataset_reach_the_loop(tmp_path: Path, workers: int):
    with Profiler(tmp_path) as profiler:
        with pytest.raises(ValueError, match="no number 9"):
            list(DataLoader(Numbers(), sampler=[1, 9, 2], num_workers=workers))
        optimizer().step()
        assert profiler.num_batches == 1


def test_evaluation_and_checkpoints_are_charged_apart(tmp_path: Path):
    adam = optimizer()
    with Profiler(tmp_path / "run") as profiler:
        for number, _ in enumerate(DataLoader(Numbers(9))):
            if number == 3:
                for _ in DataLoader(Numbers(4)):
                    spin(0.002)
            if number == 4:
                with torch.no_grad():
                    next(iter(DataLoader(Numbers(4))))
                    spin(0.005)
            if number == 5:
                torch.save(torch.ones(1000), tmp_path / "checkpoint.pt")
            if number == 6:
                with profiler.evaluating():
                    list(DataLoader(Numbers(3)))
            adam.step()
    steps = record(tmp_path / "run").steps[0].to_pylist()
    assert [step["micro_batches"] for step in steps] == [1] * 9
    # The pass that was broken off lasts until the next batch for training.
    assert [step["step"] for step in steps if step["evaluation_ns"]] == [3, 4, 6]
    assert steps[3]["evaluation_ns"] >= 8e6
    assert steps[4]["evaluation_ns"] >= 5e6
    assert [step["step"] for step in steps if step["checkpoint_ns"]] == [5]


def test_copies_and_synchronisations_that_the_caller_marks(tmp_path: Path):
    with Profiler(tmp_path) as profiler:
        for _ in profiler.watch(iter(lambda: spin(0.004), 1)):
            with profiler.copying():
                spin(0.003)
            with profiler.synchronizing():
                spin(0.002)
            profiler.step()
            if profiler.num_steps == 6:
                break
    run = record(tmp_path)
    steps = run.steps[0].to_pylist()[1:]
    assert all(step["stall_copy_ns"] >= 3e6 for step in steps)
    assert all(step["sync_ns"] >= 2e6 for step in steps)
    # Without the two milliseconds of waiting for the device, the loop would have asked so much earlier.
    assert all(step["stall_sync_ns"] == min(earlier["sync_ns"], step["wait_ns"])
               for earlier, step in pairwise(steps))  # fmt: skip
    assert all(batch["copy_stop_ns"] - batch["copy_start_ns"] >= 3e6 for batch in run.batches[0].to_pylist())


def test_patches_are_taken_back(tmp_path: Path):
    before = (
        DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__, torch.save, _utils.worker._worker_loop,
        dataloader._SingleProcessDataLoaderIter.__init__, dataloader._MultiProcessingDataLoaderIter._process_data,
    )  # fmt: skip

    def now() -> tuple[Any, ...]:
        return (
            DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__, torch.save, _utils.worker._worker_loop,
            dataloader._SingleProcessDataLoaderIter.__init__, dataloader._MultiProcessingDataLoaderIter._process_data,
        )  # fmt: skip

    with Profiler(tmp_path):
        assert not any(ours is torchs for ours, torchs in zip(now(), before, strict=True))
        optimizer().step()
    assert now() == before
    assert "__next__" not in vars(dataloader._SingleProcessDataLoaderIter)


def test_one_profiler_at_a_time_and_one_run_a_directory(tmp_path: Path):
    with Profiler(tmp_path):
        with pytest.raises(PlanError, match="at work in this process already"):
            Profiler(tmp_path / "other").start()
        optimizer().step()
    with pytest.raises(PlanError, match="holds a recorded run"):
        Profiler(tmp_path)


def test_ranks_write_beside_each_other(tmp_path: Path):
    for rank in (1, 0):
        with Profiler(tmp_path, rank=rank, world=2):
            optimizer().step()
    found = read_run(tmp_path)
    assert sorted(found.steps) == [0, 1]
    assert found.info.world == 2


def test_a_loop_that_was_never_seen_is_warned_of(tmp_path: Path):
    with pytest.warns(UserWarning, match="saw no step"), Profiler(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_sizes_of_batches_of_any_shape():
    ids = torch.ones(4, 8, dtype=torch.int64)
    assert size_of(ids) == (4, 256, 0, 0)
    assert size_of({"tokens": ids, "mask": ids}) == (4, 512, 32, 8)
    assert size_of(UserDict(input_ids=ids)) == (4, 256, 32, 8)
    assert size_of([ids, (ids, "text")]) == (4, 512, 0, 0)
    assert size_of(torch.tensor(1.0)) == (1, 4, 0, 0)
    assert size_of("text") == (0, 0, 0, 0)


def test_a_stamped_batch_is_pinned_as_torch_pins_batches():
    from torch.utils.data._utils.pin_memory import pin_memory

    from dataeff.profile.attribution import NOT_MADE

    pinned = pin_memory(Stamped({"text": ["a", "b"]}, NOT_MADE))
    assert type(pinned) is Stamped
    assert pinned.batch == {"text": ["a", "b"]}
    assert pinned.made == NOT_MADE


@pytest.mark.gpu
def test_on_a_device_a_wait_behind_queued_work_is_no_stall(tmp_path: Path):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    matrix = torch.ones(8192, 8192, device="cuda")
    adam = optimizer()

    def slow() -> Iterator[int]:
        for number in range(40):
            time.sleep(0.005)
            yield number

    for work, stalled in ((8, False), (0, True)):
        with Profiler(tmp_path / str(work)) as profiler:
            for _ in profiler.watch(slow()):
                for _ in range(work):
                    torch.mm(matrix, matrix)
                adam.step()
        run = record(tmp_path / str(work))
        assert run.info.clock == "cuda"
        steps = [step for step in run.steps[0].to_pylist() if step["steady"]]
        share = sum(step["stall_ns"] for step in steps) / sum(step["wait_ns"] for step in steps)
        assert (share > 0.9) == stalled
