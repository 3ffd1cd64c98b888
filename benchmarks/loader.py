"""Token rows to a loop on one core: 20,000 rows of 2,048 uint16, batches of 16, shuffled, every token summed.

The sum is part of everybody's time; `raw` is a numpy gather from a memory map with nothing around it. Ours is measured
in epochs after its first, which checks every block; that one is stated too.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import BenchmarkError, Figure, Report, say, timings
from benchmarks.peer_loader import BATCH_SIZE, CONTESTANTS
from benchmarks.peers import REQUIREMENTS, Worker, interpreter
from benchmarks.token_rows import SHARD_ROWS, random_rows, write_shards

ROWS, LENGTH = 20_000, 2_048
ROUNDS = 5
_TIMES = {"torch": 3, "litdata": 8, "webdataset": 30, "mosaicml-streaming": 30}
_BILLION_SHARDS, _ROWS_A_SHARD = 500, 2_000_000


def run() -> Report:
    """All contestants in turns, then what only ours promises."""
    rows = random_rows(ROWS, LENGTH)
    wanted = int(rows.sum(dtype=np.int64))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        np.save(folder / "rows.npy", rows)
        workers = {}
        for contestant in CONTESTANTS:
            python = interpreter(contestant) if contestant in REQUIREMENTS else Path(sys.executable)
            workers[contestant] = stack.enter_context(Worker(python, "peer_loader.py", contestant))
            say(f"{contestant} writes its shards")
            workers[contestant].ask(prepare=name, rows=str(folder / "rows.npy"))

        def epoch(contestant: str, number: int) -> float:
            answer = workers[contestant].ask(epoch=number)
            if answer["sum"] != wanted:
                raise BenchmarkError(f"parity: an epoch of {contestant} sums to {answer['sum']}, not to {wanted}")
            return float(answer["seconds"])

        first = {contestant: epoch(contestant, 0) for contestant in CONTESTANTS}
        say("timing")
        seconds = timings({contestant: functools.partial(epoch, contestant, 1) for contestant in CONTESTANTS}, ROUNDS)
        speeds = {contestant: ROWS * LENGTH / 1e6 / statistics.median(times) for contestant, times in seconds.items()}
        figures = [
            Figure(
                name=contestant,
                value=speeds[contestant],
                unit="Mtokens/s",
                at_least=600 if contestant == "ours" else None,
                note=f"first epoch {ROWS * LENGTH / 1e6 / first[contestant]:.3g}",
            )
            for contestant in CONTESTANTS
        ]
        figures += [
            Figure(name=f"ours / {peer}", value=speeds["ours"] / speeds[peer], unit="times", at_least=times)
            for peer, times in _TIMES.items()
        ]
        figures.append(Figure(name="ours / raw", value=speeds["ours"] / speeds["raw"], unit="share"))
        figures += _promises(folder / "promises", rows)
    return Report(
        name="loader",
        figures=tuple(figures),
        notes=(
            f"medians of {ROUNDS} interleaved epochs, each contestant in its own process on one core, no workers",
            "ours checks each block's CRC-32C on first touch: in its first epoch",
        ),
    )


def _promises(folder: Path, rows: Any) -> Iterator[Figure]:
    """Start, resume, state and memory."""
    from dataeff.loader import Loader, TokenDataset
    from dataeff.loader.dataset import Delivery, Share
    from dataeff.loader.order import Change, Order, Source
    from dataeff.loader.shards import Shards

    write_shards(folder, rows)

    class Simulated(Shards):
        """As if there were a billion rows: every shard is one of the few that there are."""

        def take(self, shards: Any, rows: Any) -> Any:
            return super().take(shards % len(self.files), rows % SHARD_ROWS)

    next(iter(Loader(folder, batch_size=BATCH_SIZE)))  # kernels are loaded once a process

    def first_batch(position: int) -> float:
        began = time.perf_counter()
        source = Source(name="web", first_shard=0, shard_rows=(_ROWS_A_SHARD,) * _BILLION_SHARDS)
        order = Order(
            sources=(source,),
            seed=0,
            schedule=(Change(position=0, weights=(source.rows,)),),
            rows_per_epoch=source.rows,
        )
        share = Share(batch_size=BATCH_SIZE, rank=3, world=64, tail="wrap")
        dataset = TokenDataset(Simulated(folder), order, share, Delivery(dtype="int64", boundaries=False), position)
        next(iter(dataset))
        return (time.perf_counter() - began) * 1e3

    note = f"{_BILLION_SHARDS * _ROWS_A_SHARD:.0e} rows, simulated index, rank 3 of 64"
    yield Figure(name="first batch", value=first_batch(0), unit="ms", at_most=50, note=note)
    yield Figure(
        name="first batch at 73 %",
        value=first_batch(int(0.73 * _BILLION_SHARDS * _ROWS_A_SHARD)),
        unit="ms",
        at_most=50,
        note=note,
    )
    loader = Loader(folder, batch_size=BATCH_SIZE)
    state = {**loader.state_dict(), "position": int(0.73 * ROWS)}
    began = time.perf_counter()
    resumed = Loader(folder, batch_size=BATCH_SIZE)
    resumed.load_state_dict(state)
    next(iter(resumed))
    yield Figure(name="resume at 73 %", value=(time.perf_counter() - began) * 1e3, unit="ms", at_most=50)
    yield Figure(name="state", value=len(json.dumps(state)), unit="bytes", at_most=1023)
    with _anonymous_memory() as grown:
        for _ in range(2):
            for _ in Loader(folder, batch_size=BATCH_SIZE):
                pass
    yield Figure(name="memory beyond the page cache", value=grown[0], unit="MiB", at_most=64)


@contextmanager
def _anonymous_memory() -> Iterator[list[float]]:
    """How many MiB of memory that no file backs a block adds, looked at at its end."""

    def now() -> float:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) / 1024

    before, grown = now(), [0.0]
    yield grown
    grown[0] = now() - before
