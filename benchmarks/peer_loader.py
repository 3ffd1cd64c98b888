"""One contestant of the benchmark `loader`, in its own interpreter: writes the rows in its format, reads epochs.

Started as `python peer_loader.py NAME`; reads lines of JSON from standard input: first
`{"prepare": FOLDER, "rows": FILE.npy}`, then `{"epoch": number}` as often as wanted. An epoch is 16 rows a batch, in
shuffled order, every token summed as int64.
"""

from __future__ import annotations

import io
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np

BATCH_SIZE = 16


def total(tokens: Any) -> int:
    """The sum of a batch, of numpy arrays or torch tensors."""
    array = tokens if isinstance(tokens, np.ndarray) else tokens.numpy()
    return int(array.sum(dtype=np.int64))


class Raw:
    """No loader at all: memory-mapped rows gathered into one buffer."""

    def __init__(self, folder: Path, rows: Path) -> None:
        self.rows = np.load(rows, mmap_mode="r")
        self.buffer = np.empty((BATCH_SIZE, self.rows.shape[1]), self.rows.dtype)

    def epoch(self, number: int) -> int:
        """The sum of all tokens."""
        order = np.random.default_rng(number).permutation(len(self.rows))
        found = 0
        for start in range(0, len(order), BATCH_SIZE):
            np.take(self.rows, order[start : start + BATCH_SIZE], axis=0, out=self.buffer, mode="clip")
            found += total(self.buffer)
        return found


class Ours:
    """dataeff.loader.Loader over Arrow token shards."""

    def __init__(self, folder: Path, rows: Path) -> None:
        from token_rows import write_shards  # beside this script

        from dataeff.loader import Loader

        write_shards(folder / "ours", np.load(rows, mmap_mode="r"))
        next(iter(Loader(folder / "ours", batch_size=BATCH_SIZE)))  # kernels are loaded once a process
        self.loader = Loader(folder / "ours", batch_size=BATCH_SIZE, dtype="stored")

    def epoch(self, number: int) -> int:
        """The sum of all tokens."""
        return sum(total(batch["tokens"]) for batch in self.loader)


class Torch:
    """torch.utils.data.DataLoader, map-style, over memory-mapped rows, no workers."""

    def __init__(self, folder: Path, rows: Path) -> None:
        import torch
        from torch.utils.data import DataLoader, Dataset

        class Rows(Dataset):
            def __init__(self) -> None:
                self.rows = np.load(rows, mmap_mode="r+")

            def __len__(self) -> int:
                return len(self.rows)

            def __getitem__(self, row: int) -> Any:
                return torch.from_numpy(self.rows[row])

        self.loader = DataLoader(Rows(), batch_size=BATCH_SIZE, shuffle=True)

    def epoch(self, number: int) -> int:
        """The sum of all tokens."""
        return sum(total(batch) for batch in self.loader)


class Webdataset:
    """webdataset: a tar of .npy members, shuffled through a buffer."""

    def __init__(self, folder: Path, rows: Path) -> None:
        import webdataset

        (folder / "tar").mkdir()
        with webdataset.ShardWriter(str(folder / "tar" / "%06d.tar"), maxcount=4000, verbose=0) as writer:
            for number, row in enumerate(np.load(rows, mmap_mode="r")):
                content = io.BytesIO()
                np.save(content, row)
                writer.write({"__key__": f"{number:08d}", "tokens.npy": content.getvalue()})
        names = sorted(map(str, (folder / "tar").glob("*.tar")))
        self.make = lambda: (
            webdataset.WebDataset(names, shardshuffle=len(names), seed=0)
            .shuffle(1000)
            .decode()
            .to_tuple("tokens.npy")
            .batched(BATCH_SIZE)
        )

    def epoch(self, number: int) -> int:
        """The sum of all tokens."""
        return sum(total(np.asarray(batch)) for (batch,) in self.make())


class Litdata:
    """litdata: optimised chunks, StreamingDataLoader without workers."""

    def __init__(self, folder: Path, rows: Path) -> None:
        from litdata import StreamingDataLoader, StreamingDataset
        from litdata.streaming.writer import BinaryWriter

        (folder / "litdata").mkdir()
        writer = BinaryWriter(str(folder / "litdata"), chunk_bytes="64MB")
        for number, row in enumerate(np.load(rows, mmap_mode="r")):
            writer[number] = np.asarray(row)
        writer.done()
        writer.merge()
        dataset = StreamingDataset(str(folder / "litdata"), shuffle=True)
        self.loader = StreamingDataLoader(dataset, batch_size=BATCH_SIZE)

    def epoch(self, number: int) -> int:
        """The sum of all tokens."""
        return sum(total(batch) for batch in self.loader)


class Mosaicml:
    """mosaicml-streaming: MDS shards, torch DataLoader without workers."""

    def __init__(self, folder: Path, rows: Path) -> None:
        import transformers.feature_extraction_utils  # noqa: F401 (looks for the true torchvision)

        # It imports torchvision for image datasets that are not used here; the one from the package index does not
        # import beside a torch without CUDA.
        for name in ("", ".transforms", ".transforms.functional", ".datasets"):
            module = types.ModuleType(f"torchvision{name}")
            module.__getattr__ = _stand_in
            sys.modules[module.__name__] = module
        from streaming import MDSWriter, StreamingDataset
        from torch.utils.data import DataLoader

        every = np.load(rows, mmap_mode="r")
        with MDSWriter(out=str(folder / "mds"), columns={"tokens": f"ndarray:uint16:{every.shape[1]}"}) as writer:
            for row in every:
                writer.write({"tokens": np.asarray(row)})
        self.dataset = StreamingDataset(local=str(folder / "mds"), shuffle=True, batch_size=BATCH_SIZE)
        self.loader = DataLoader(self.dataset, batch_size=BATCH_SIZE)

    def epoch(self, number: int) -> int:
        """The sum of all tokens."""
        return sum(total(batch["tokens"]) for batch in self.loader)


def _stand_in(name: str) -> type:
    """Something by that name that is never used."""
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


CONTESTANTS = {
    "raw": Raw,
    "ours": Ours,
    "torch": Torch,
    "webdataset": Webdataset,
    "litdata": Litdata,
    "mosaicml-streaming": Mosaicml,
}


def main() -> None:
    """Answer one line at a time."""
    contestant: Any = None
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        question = json.loads(line)
        began = time.perf_counter()
        if "prepare" in question:
            contestant = CONTESTANTS[sys.argv[1]](Path(question["prepare"]), Path(question["rows"]))
            found = 0
        else:
            found = contestant.epoch(question["epoch"])
        print(json.dumps({"seconds": time.perf_counter() - began, "sum": found}), file=answers, flush=True)


if __name__ == "__main__":
    main()
