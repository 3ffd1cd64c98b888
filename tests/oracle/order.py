"""The global order, written out: the slow twin of `dataeff.loader.order` and its kernels."""

from __future__ import annotations

from fractions import Fraction
from itertools import count, islice
from typing import Any

ROUNDS = 4


def permutation(size: int, keys: list[int]) -> list[int]:
    """Where every place goes."""
    bits = (size - 1).bit_length() if size > 1 else 0
    mask = (1 << bits) - 1
    found = []
    for place in range(size):
        value = place
        while True:
            for turn in range(ROUNDS):
                value = (value + keys[2 * turn]) * (keys[2 * turn + 1] | 1) & mask
                value ^= value >> (bits + 1) // 2
            if value < size:
                break
        found.append(value)
    return found


def interleaving(weights: list[int], num: int) -> list[int]:
    """The source of each of the first rows: all rows of all sources sorted by when they are due."""
    due = [
        (Fraction(2 * row + 1, 2 * weight), source) for source, weight in enumerate(weights) for row in range(weight)
    ]
    period = [source for _, source in sorted(due)]
    return list(islice((source for _ in count() for source in period), num))


def order(sources: list[int], weights: list[int], num: int, permuted: Any) -> list[tuple[int, int]]:
    """(source, row in it) at each of the first positions.

    Args:
        sources: Rows of each source.
        weights: Of each source.
        num: How many positions.
        permuted: Called with (source, epoch); the permutation of the source's rows in that epoch.
    """
    drawn = [0] * len(sources)
    found = []
    for source in interleaving(weights, num):
        epoch, place = divmod(drawn[source], sources[source])
        found.append((source, permuted(source, epoch)[place]))
        drawn[source] += 1
    return found
