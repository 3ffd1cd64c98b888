"""The shared corpora: where they are, and ten times as much made from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import BenchmarkError, say

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT.parent / "shared" / "corpora"
DATA = Path(__file__).resolve().parent / ".data"
CJK = ("zh", "ja", "ko", "th")
_WORD_EVERY = 12
"""In a copy, about one word in so many is another, so that hardly a word 5-gram in five is left as it was."""


def files(*names: str) -> list[Path]:
    """Corpus files, all or by name.

    Raises:
        BenchmarkError: The folder or a file is absent.
    """
    if not FOLDER.is_dir():
        raise BenchmarkError(
            "the folder shared/corpora is not beside the checkout; the benchmarks measure real text and need it there"
        )
    found = [FOLDER / f"{name}.parquet" for name in names] or sorted(FOLDER.glob("*.parquet"))
    missing = [path.name for path in found if not path.is_file()]
    if missing or not found:
        raise BenchmarkError(f"shared/corpora lacks {', '.join(missing) or 'Parquet files'}")
    return found


def texts(*names: str, languages: tuple[str, ...] | None = None) -> pa.Array:
    """Texts of corpus files, of some languages only if asked, as one large_string array."""
    pieces = []
    for path in files(*names):
        table = pq.read_table(path, columns=["text", "lang"])
        if languages:
            table = table.filter(pc.is_in(pc.utf8_slice_codeunits(table.column("lang"), 0, 2), pa.array(languages)))
        pieces += table.column("text").chunks
    return pa.concat_arrays([piece.cast(pa.large_string()) for piece in pieces])


def size_mb(text: pa.Array) -> float:
    """Megabytes of UTF-8."""
    return float(pc.sum(pc.binary_length(text)).as_py()) / 1e6


def repeated(times: int) -> Path:
    """A folder with the corpora repeated under new ids, with seeded edits so that copies do not deduplicate away.

    Made once and kept; a batch of a file is in memory at a time.
    """
    folder = DATA / f"times-{times}"
    done = folder / "done"
    if done.is_file():
        return folder
    say(f"making {times} times the corpora (once)")
    folder.mkdir(parents=True, exist_ok=True)
    for path in files():
        for copy in range(times):
            rng = np.random.default_rng([copy, *path.name.encode()])
            with pq.ParquetWriter(folder / f"{path.stem}-{copy}.parquet", pq.read_schema(path)) as writer:
                for batch in pq.ParquetFile(path).iter_batches(512):
                    writer.write_batch(_changed(batch, copy, rng) if copy else batch)
    done.touch()
    return folder


def _changed(batch: pa.RecordBatch, copy: int, rng: np.random.Generator) -> pa.RecordBatch:
    made = []
    for text in batch.column("text").to_pylist():
        words = text.split(" ")
        for place in np.flatnonzero(rng.random(len(words)) < 1 / _WORD_EVERY):
            words[place] = f"w{rng.integers(1 << 40):x}"
        made.append(" ".join(words))
    ids = [f"{entry}~{copy}" for entry in batch.column("id").to_pylist()]
    batch = batch.set_column(
        batch.schema.get_field_index("text"), batch.schema.field("text"), pa.array(made, pa.large_string())
    )
    return batch.set_column(batch.schema.get_field_index("id"), batch.schema.field("id"), pa.array(ids, pa.string()))
