"""Is what dedup removes right, and does it find what its bands promise? Against all pairs of three corpora.

Exact Jaccard similarities of all pairs come from a product of sparse matrices over the same shingles. Precision is
the share of removals whose survivor is kept and within the threshold by that matrix. Recall is of pairs, by bin of
similarity: the share that falls into one bucket, beside what 14 bands of 8 rows predict. Documents with the same
shingle set count once, since they fall into the same buckets whatever the bands are.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
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


def run() -> Report:
    """Compare removals and candidate pairs with the truth."""
    minhash = MinHash()
    files = corpora.files(*NAMES)
    tables = [pq.read_table(path, columns=["text"]) for path in files]
    text = pa.concat_arrays([table.column("text").combine_chunks().cast(pa.large_string()) for table in tables])
    say("all pairs, exactly")
    hashes, offsets = minhash.shingle_sets(text)
    pairs = _pairs(hashes, offsets, BINS[0])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        run_pipeline(Pipeline(Read(*map(str, files)), Dedup(minhash=minhash)), out)
        ledger = pq.read_table(out / "removals.parquet")
        removed, survivors = (_rows(out, ledger.column(name).to_numpy()) for name in ("removed_doc", "survivor_doc"))
    ours = dict(zip(removed, survivors, strict=True))
    similarity = {(int(i), int(j)): float(value) for i, j, value in zip(*pairs, strict=True)}
    proved = sum(
        survivor not in ours and similarity.get((min(gone, survivor), max(gone, survivor)), 0.0) >= minhash.threshold
        for gone, survivor in ours.items()
    )
    truth = _greedy(pairs, text, minhash.threshold)
    figures = [
        Figure(name="precision of removals", value=proved / max(1, len(ours)), unit="share", at_least=1.0),
        Figure(
            name="removals",
            value=len(ours),
            unit="documents",
            note=f"the greedy rule over all pairs removes {len(truth)}; {len(truth & set(ours))} are the same",
        ),
    ]
    rows = _recall(minhash, text, hashes, offsets, pairs)
    for row in rows:
        inside = row["low"] <= row["found"] <= row["high"]
        figures.append(
            Figure(
                name=f"pairs at {row['bin']} inside the interval",
                value=float(inside),
                unit="0 or 1",
                at_least=1.0,
                note=f"{row['found']:.4f} of {row['apart']} found, {row['low']:.4f} to {row['high']:.4f} predicted; "
                f"of all {row['pairs']}: {row['found_of_all']:.4f}, {row['predicted_of_all']:.4f}",
            )
        )
    return Report(
        name="truth",
        figures=tuple(figures),
        notes=(
            f"{len(text)} documents of {', '.join(NAMES)}; {len(similarity)} pairs at {BINS[0]} or above",
            f"intervals are {_CONFIDENCE:.1%} binomial ones, over pairs of which no two share a document",
        ),
        details={"recall": rows},
    )


def _rows(out: Path, docs: Any) -> list[int]:
    """Places of documents in the order in which the files were read."""
    folder = out / documents.STEP
    num_parts = len(list(folder.glob("*.columns.arrow")))
    starts = np.cumsum([0, *(documents.columns_of(folder, number).num_rows for number in range(num_parts))])
    parts = (docs >> np.uint64(PART_SHIFT)).astype(np.int64)
    found: list[int] = (starts[parts] + (docs & np.uint64((1 << PART_SHIFT) - 1)).astype(np.int64)).tolist()
    return found


def _pairs(hashes: Any, offsets: Any, least: float) -> tuple[Any, Any, Any]:
    """All pairs i < j of documents with similarity at least `least`, and the similarity."""
    _, columns = np.unique(hashes, return_inverse=True)
    rows = len(offsets) - 1
    matrix = sp.csr_matrix((np.ones(len(columns), np.float32), columns, offsets), shape=(rows, columns.max() + 1))
    sizes = np.diff(offsets).astype(np.float64)
    across = matrix.T.tocsr()
    found: list[tuple[Any, Any, Any]] = []
    for start in range(0, rows, _BLOCK):
        shared = (matrix[start : start + _BLOCK] @ across).tocoo()
        i, j = shared.row + start, shared.col
        jaccard = shared.data / (sizes[i] + sizes[j] - shared.data)
        kept = (i < j) & (jaccard >= least)
        found.append((i[kept], j[kept], jaccard[kept]))
    return tuple(np.concatenate(part) for part in zip(*found, strict=True))  # type: ignore[return-value]


def _greedy(pairs: tuple[Any, Any, Any], text: pa.Array, threshold: float) -> set[int]:
    """Documents that the greedy rule removes when it sees all pairs, in policy order: longer first, then earlier."""
    near: dict[int, list[int]] = {}
    for i, j, value in zip(*pairs, strict=True):
        if value >= threshold:
            near.setdefault(int(i), []).append(int(j))
            near.setdefault(int(j), []).append(int(i))
    lengths = np.diff(np.frombuffer(text.buffers()[1], np.int64, len(text) + 1, 8 * text.offset))
    kept: set[int] = set()
    removed: set[int] = set()
    for document in np.lexsort((np.arange(len(text)), -lengths)).tolist():
        (removed if any(other in kept for other in near.get(document, ())) else kept).add(document)
    return removed


def _recall(
    minhash: MinHash, text: pa.Array, hashes: Any, offsets: Any, pairs: tuple[Any, Any, Any]
) -> list[dict[str, Any]]:
    signatures, _ = minhash.sketch(*text_views(text))
    keys = bands(signatures, minhash.bands, minhash.rows)
    first: dict[bytes, int] = {}
    alike = [first.setdefault(hashes[offsets[row] : offsets[row + 1]].tobytes(), row) for row in range(len(text))]
    once = np.array([row == alike[row] for row in range(len(text))])
    i, j, value = (part[once[pairs[0]] & once[pairs[1]]] for part in pairs)
    hit = (keys[i] == keys[j]).any(axis=1)
    chance = detection_probability(value, minhash.bands, minhash.rows)
    rows = []
    for low, high in itertools.pairwise(BINS):
        mine = (value >= low) & ((value < high) | (high == BINS[-1]))
        if not mine.any():
            continue
        apart = np.flatnonzero(mine)[_disjoint(i[mine], j[mine])]
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


def _disjoint(i: Any, j: Any) -> list[int]:
    """Pairs, taken in a seeded order, of which no two share a document: draws that are as good as independent."""
    used: set[int] = set()
    chosen = []
    for place in np.random.default_rng(0).permutation(len(i)).tolist():
        if int(i[place]) not in used and int(j[place]) not in used:
            used |= {int(i[place]), int(j[place])}
            chosen.append(place)
    return chosen
