"""Is what dedup removes right, and does it find what its bands promise? Against all pairs of three corpora.

Exact Jaccard similarities of all pairs come from a product of sparse matrices over the same shingles. Precision is
the share of removals whose survivor is kept and within the threshold by that matrix; and what is removed must be what
the same greedy rule removes over the pairs that share a band. Recall is of pairs, by bin of similarity: the share that
falls into one bucket, beside what 14 bands of 8 rows predict. Documents with the same shingle set count once, since
they fall into the same buckets whatever the bands are.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import scipy.sparse as sp
from scipy.stats import norm

from benchmarks import corpora
from benchmarks.harness import Figure, Report, say
from benchmarks.running import run_pipeline
from dataeff import Dedup, MinHash, Pipeline, Read
from dataeff.arrow import PART_SHIFT, text_views
from dataeff.dedup.bands import detection_probability
from dataeff.kernel.minhash import bands
from dataeff.stages import documents

NAMES = ("debian_handbook", "manpages", "spdx")
BINS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)
_CONFIDENCE = 0.99
_BLOCK = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Pairs of documents, `i` before `j`, and their exact similarity: three arrays of shape (pairs,)."""

    i: Any
    j: Any
    jaccard: Any

    def where(self, chosen: Any) -> Pairs:
        """The pairs for which a mask of shape (pairs,) is true."""
        return Pairs(i=self.i[chosen], j=self.j[chosen], jaccard=self.jaccard[chosen])


def run() -> Report:
    """Compare removals and candidate pairs with the truth."""
    minhash = MinHash()
    files = corpora.files(*NAMES)
    tables = [pq.read_table(path, columns=["text"]) for path in files]
    text = pa.concat_arrays([table.column("text").combine_chunks().cast(pa.large_string()) for table in tables])
    say("all pairs, exactly")
    hashes, offsets = minhash.shingle_sets(text)
    pairs = all_pairs(hashes, offsets, BINS[0])
    say("ours")
    ours = our_removals(files, minhash)
    hit = _share_a_band(minhash, text, pairs)
    rows = _recall(minhash, _once(hashes, offsets), pairs, hit)
    return Report(
        name="truth",
        figures=(*_decisions(ours, text, pairs, hit, minhash.threshold), *map(_in_interval, rows)),
        notes=(
            f"{len(text)} documents of {', '.join(NAMES)}; {len(hit)} pairs at {BINS[0]} or above",
            f"intervals are {_CONFIDENCE:.1%} binomial ones, over pairs of which no two share a document",
        ),
        details={"recall": rows},
    )


def our_removals(files: list[Path], minhash: MinHash) -> dict[int, int]:
    """What the pipeline removes, and the survivor of each, as places of documents in the order of the files."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        run_pipeline(Pipeline(Read(*map(str, files)), Dedup(minhash=minhash)), out)
        ledger = pq.read_table(out / "removals.parquet")
        removed, survivors = (_rows(out, ledger.column(name).to_numpy()) for name in ("removed_doc", "survivor_doc"))
    return dict(zip(removed, survivors, strict=True))


def _rows(out: Path, docs: Any) -> list[int]:
    """Places of documents in the order in which the files were read."""
    folder = out / documents.STEP
    num_parts = len(list(folder.glob("*.columns.arrow")))
    starts = np.cumsum([0, *(documents.columns_of(folder, number).num_rows for number in range(num_parts))])
    parts = (docs >> np.uint64(PART_SHIFT)).astype(np.int64)
    found: list[int] = (starts[parts] + (docs & np.uint64((1 << PART_SHIFT) - 1)).astype(np.int64)).tolist()
    return found


def all_pairs(hashes: Any, offsets: Any, least: float) -> Pairs:
    """All pairs of documents with similarity at least `least`; memory is bounded by `_BLOCK` rows of the product."""
    _, columns = np.unique(hashes, return_inverse=True)
    rows = len(offsets) - 1
    shape = (rows, int(columns.max(initial=-1)) + 1)
    matrix = sp.csr_matrix((np.ones(len(columns), np.float32), columns, offsets), shape=shape)
    sizes = np.diff(offsets).astype(np.float64)
    across = matrix.T.tocsr()
    found: list[tuple[Any, Any, Any]] = []
    for start in range(0, rows, _BLOCK):
        shared = (matrix[start : start + _BLOCK] @ across).tocoo()
        i, j = shared.row + start, shared.col
        jaccard = shared.data / (sizes[i] + sizes[j] - shared.data)
        kept = (i < j) & (jaccard >= least)
        found.append((i[kept], j[kept], jaccard[kept]))
    i, j, jaccard = (np.concatenate(part) for part in zip(*found, strict=True))
    return Pairs(i=i, j=j, jaccard=jaccard)


def greedy(pairs: Pairs, text: pa.Array, threshold: float) -> set[int]:
    """Documents that the greedy rule removes when it sees these pairs, in policy order: longer first, then earlier."""
    near: dict[int, list[int]] = {}
    for i, j, value in zip(pairs.i.tolist(), pairs.j.tolist(), pairs.jaccard.tolist(), strict=True):
        if value >= threshold:
            near.setdefault(i, []).append(j)
            near.setdefault(j, []).append(i)
    lengths = np.asarray(pc.binary_length(text))
    kept: set[int] = set()
    removed: set[int] = set()
    for document in np.lexsort((np.arange(len(text)), -lengths)).tolist():
        (removed if any(other in kept for other in near.get(document, ())) else kept).add(document)
    return removed


def _decisions(ours: dict[int, int], text: pa.Array, pairs: Pairs, hit: Any, threshold: float) -> list[Figure]:
    """Precision of what we removed, and what the greedy rule removes over all pairs, and over those in one band."""
    ends = zip(pairs.i.tolist(), pairs.j.tolist(), strict=True)
    similarity = dict(zip(ends, pairs.jaccard.tolist(), strict=True))
    proved = sum(
        survivor not in ours and similarity.get((min(gone, survivor), max(gone, survivor)), 0.0) >= threshold
        for gone, survivor in ours.items()
    )
    truth = greedy(pairs, text, threshold)
    banded = greedy(pairs.where(hit), text, threshold)
    return [
        Figure(name="precision of removals", value=proved / max(1, len(ours)), unit="share", at_least=1.0),
        Figure(
            name="removals",
            value=len(ours),
            unit="documents",
            note=f"the greedy rule over all pairs removes {len(truth)}; {len(truth & set(ours))} are the same",
        ),
        Figure(
            name="removals unlike the greedy rule over pairs in one band",
            value=len(banded ^ set(ours)),
            unit="documents",
            at_most=0,
            note=f"it removes {len(banded)}",
        ),
    ]


def _share_a_band(minhash: MinHash, text: pa.Array, pairs: Pairs) -> Any:
    """Whether a pair falls into one bucket of any band, shape (pairs,)."""
    signatures, _ = minhash.sketch(*text_views(text))
    keys = bands(signatures, minhash.bands, minhash.rows)
    return (keys[pairs.i] == keys[pairs.j]).any(axis=1)


def _once(hashes: Any, offsets: Any) -> Any:
    """Whether a document is the first with its shingle set, shape (documents,)."""
    first: dict[bytes, int] = {}
    rows = range(len(offsets) - 1)
    return np.array([first.setdefault(hashes[offsets[row] : offsets[row + 1]].tobytes(), row) == row for row in rows])


def _recall(minhash: MinHash, once: Any, pairs: Pairs, hit: Any) -> list[dict[str, Any]]:
    """By bin of similarity: the share of pairs in one bucket, and the interval that the bands predict."""
    distinct = once[pairs.i] & once[pairs.j]
    pairs, hit = pairs.where(distinct), hit[distinct]
    chance: Any = detection_probability(pairs.jaccard, minhash.bands, minhash.rows)
    rows = []
    for low, high in itertools.pairwise(BINS):
        mine = (pairs.jaccard >= low) & ((pairs.jaccard < high) | (high == BINS[-1]))
        if not mine.any():
            continue
        apart = np.flatnonzero(mine)[_disjoint(pairs.where(mine))]
        mean = float(chance[apart].mean())
        deviation = float(np.sqrt((chance[apart] * (1 - chance[apart])).sum())) / len(apart)
        wide = float(norm.ppf(0.5 + _CONFIDENCE / 2)) * deviation + 0.5 / len(apart)
        rows.append(
            {
                "bin": f"{low:.2f} to {high:.2f}",
                "pairs": int(mine.sum()),
                "apart": len(apart),
                "found_of_all": float(hit[mine].mean()),
                "predicted_of_all": float(chance[mine].mean()),
                "found": float(hit[apart].mean()),
                "low": max(0.0, mean - wide),
                "high": min(1.0, mean + wide),
            }
        )
    return rows


def _disjoint(pairs: Pairs) -> list[int]:
    """Pairs, taken in a seeded order, of which no two share a document: draws that are as good as independent."""
    used: set[int] = set()
    chosen = []
    for place in np.random.default_rng(0).permutation(len(pairs.i)).tolist():
        ends = {int(pairs.i[place]), int(pairs.j[place])}
        if not used & ends:
            used |= ends
            chosen.append(place)
    return chosen


def _in_interval(row: dict[str, Any]) -> Figure:
    return Figure(
        name=f"pairs at {row['bin']} inside the interval",
        value=float(row["low"] <= row["found"] <= row["high"]),
        unit="0 or 1",
        at_least=1.0,
        note=f"{row['found']:.4f} of {row['apart']} found, {row['low']:.4f} to {row['high']:.4f} predicted; "
        f"of all {row['pairs']}: {row['found_of_all']:.4f}, {row['predicted_of_all']:.4f}",
    )
