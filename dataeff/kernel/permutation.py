"""A seeded permutation of any length as a function: where place i goes is computed, nothing is stored."""

from __future__ import annotations

import numpy as np

from dataeff.arrow import I64, U64
from dataeff.kernel.compiled import compiled

ROUNDS = 4
KEYS = 2 * ROUNDS
"""Random 64-bit numbers that choose a permutation."""


def permuted(start: int, count: int, size: int, keys: U64) -> I64:
    """Where the places `start` to `start + count` go in a permutation of `range(size)`.

    Each round adds, multiplies by an odd number and folds the upper half of the bits into the lower one, all modulo
    the least power of two that is not below `size`: one-to-one, every step. What lands outside `range(size)` goes
    through again until it lands inside (cycle walking; Black and Rogaway 2002), less than twice on average.

    Args:
        start, count: Which places; all below `size`.
        size: Length of the permutation, at least 1.
        keys: Which permutation, shape (KEYS,).

    Returns:
        Shape (count,).
    """
    out = np.empty(count, np.int64)
    _permute(start, size, keys, out)
    return out


@compiled
def _permute(start, size, keys, out):
    bits = 0
    while np.int64(1) << bits < size:
        bits += 1
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    half = np.uint64((bits + 1) // 2)
    for at in range(len(out)):
        value = np.uint64(start + at)
        while True:
            for turn in range(ROUNDS):
                value = (value + keys[2 * turn]) * (keys[2 * turn + 1] | np.uint64(1)) & mask
                value ^= value >> half
            if value < np.uint64(size):
                break
        out[at] = np.int64(value)
