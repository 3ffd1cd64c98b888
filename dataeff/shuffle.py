"""Random order as a function: a seeded key a document, which depends on its id and nothing else."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataeff.arrow import U64, text_views
from dataeff.kernel.content import content_hashes


def shuffle_keys(ids: pa.Array, seed: int, copy: int = 0) -> U64:
    """Uniform 64-bit keys: sorting by them shuffles, and does not depend on how the corpus was cut into parts.

    Args:
        ids: Document ids, strings without nulls.
        seed: Another seed is another order.
        copy: Another copy of a document gets another key.

    Returns:
        Shape (rows,).
    """
    low = content_hashes(*text_views(ids.cast(pa.large_string())))[:, 0]
    return _mixed(_mixed(low ^ _mixed(np.full(1, seed, np.uint64))) + np.uint64(copy))


def fractions(keys: U64) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Keys as numbers in [0, 1)."""
    return (keys >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def _mixed(values: U64) -> U64:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014) with its increment."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
