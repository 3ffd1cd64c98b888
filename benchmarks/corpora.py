"""The shared corpora: where they are, and ten times as much made from them."""

from __future__ import annotations

import json
import shutil
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
"""In a copy, about one word in so many is another: a copy and its original are about 0.48 similar in word 5-grams, two
copies 0.27, below any threshold for duplicates."""
_LONG_WORD = 16
"""Where there are more characters a space, text is taken for one without spaces between words."""
_BATCH_ROWS = 512
_EDITS = ("one word or unspaced character in", _WORD_EVERY, _LONG_WORD, _BATCH_ROWS)
"""What edits depend on: with another, repeated corpora are made anew."""


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


def cjk_texts() -> pa.Array:
    """Texts in Chinese, Japanese, Korean and Thai, those left out of which half or more is ASCII."""
    text = texts("debian_handbook", "linux_doc", "manpages", "xquad", languages=CJK)
    # Of 3 bytes a character all but one are more than the character counts.
    far = pc.multiply(pc.cast(pc.subtract(pc.binary_length(text), pc.utf8_length(text)), pa.float64()), 1.5)
    return text.filter(pc.greater(far, pc.multiply(pc.cast(pc.binary_length(text), pa.float64()), 0.5)))


def ascii_share(text: pa.Array) -> float:
    """Share of bytes that are ASCII, in [0, 1]."""
    first, last = np.frombuffer(text.buffers()[1], np.int64, len(text) + 1, 8 * text.offset)[[0, -1]]
    return float((np.frombuffer(text.buffers()[2], np.uint8)[first:last] < 128).mean())


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

    Made once and kept until the corpora or the edits change; a batch of a file is in memory at a time.
    """
    folder = DATA / f"times-{times}"
    done = folder / "done"
    made_of = json.dumps([_EDITS, [(path.name, path.stat().st_size) for path in files()]])
    if done.is_file() and done.read_text() == made_of:
        return folder
    say(f"making {times} times the corpora (once)")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in files():
        for copy in range(times):
            rng = np.random.default_rng([copy, *path.name.encode()])
            with pq.ParquetWriter(folder / f"{path.stem}-{copy}.parquet", pq.read_schema(path)) as writer:
                for batch in pq.ParquetFile(path).iter_batches(_BATCH_ROWS):
                    writer.write_batch(_changed(batch, copy, rng) if copy else batch)
    done.write_text(made_of)
    return folder


def _changed(batch: pa.RecordBatch, copy: int, rng: np.random.Generator) -> pa.RecordBatch:
    made = [edited(text, rng) for text in batch.column("text").to_pylist()]
    ids = [f"{entry}~{copy}" for entry in batch.column("id").to_pylist()]
    batch = batch.set_column(
        batch.schema.get_field_index("text"), batch.schema.field("text"), pa.array(made, pa.large_string())
    )
    return batch.set_column(batch.schema.get_field_index("id"), batch.schema.field("id"), pa.array(ids, pa.string()))


def edited(text: str, rng: np.random.Generator) -> str:
    """The text with about one word in `_WORD_EVERY` replaced, at least one; of text without spaces, one character."""
    words = text.split(" ")
    spaced = len(words) * _LONG_WORD >= len(text)
    pieces = words if spaced else list(text)
    places = np.flatnonzero(rng.random(len(pieces)) < 1 / _WORD_EVERY)
    if not len(places):
        places = rng.integers(len(pieces), size=1) if text else places
    for place, number in zip(places.tolist(), rng.integers(1 << 40, size=len(places)).tolist(), strict=True):
        # A rare Han character stands for a word where words are characters.
        pieces[place] = f"w{number:x}" if spaced else chr(0x3400 + number % 0x19B0)
    return (" " if spaced else "").join(pieces)
