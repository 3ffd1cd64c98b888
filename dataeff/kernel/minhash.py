"""MinHash signatures, equal bit for bit to those of datasketch 2.x in its scheme `affine32`."""

from __future__ import annotations

import numpy as np

from dataeff.arrow import I64, U32, U64
from dataeff.errors import PlanError
from dataeff.kernel.compiled import allocating, compiled, inlined
from dataeff.kernel.lanes import AT_ONCE, LANES, lower_lanes

BLOCK = 1024
"""Hashes that every permutation is applied to before the next ones, so that they stay in the first-level cache."""
EMPTY = np.uint32(0xFFFFFFFF)
"""Signature value of a row without shingles."""


def permutations(num_perm: int, seed: int) -> tuple[U32, U32]:
    """The permutations h -> a * h + b mod 2**32 of datasketch 2.x, scheme affine32.

    Args:
        num_perm: How many.
        seed: Of NumPy's Mersenne Twister, as datasketch uses it; its default is 1.

    Returns:
        Odd multipliers `a` and addends `b`, shape (num_perm,) each.
    """
    generator = np.random.RandomState(seed)
    a = generator.randint(0, 1 << 31, num_perm, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return a, generator.randint(0, 1 << 32, num_perm, dtype=np.uint32)


def signatures(hashes: U32, offsets: I64, a: U32, b: U32) -> U32:
    """MinHash signatures, equal bit for bit to `datasketch.MinHash` 2.x, scheme affine32, given the same hashes.

    Args:
        hashes: Shingle hashes of all rows, as datasketch's `hashfunc` returns them, shape (shingles,).
        offsets: Row boundaries into `hashes`, shape (rows + 1,).
        a: Odd multipliers, shape (num_perm,).
        b: Addends, shape (num_perm,).

    Returns:
        Shape (rows, num_perm). A row without shingles is all 2**32 - 1.
    """
    out = np.empty((len(offsets) - 1, len(a)), np.uint32)
    _signatures(hashes, offsets, *filled_up(a, b), out)
    return out


def filled_up(a: U32, b: U32) -> tuple[U32, U32]:
    """The permutations as `lower` takes them: some more at the end, whose values are to be left out."""
    more = (0, -len(a) % LANES)
    return np.pad(a, more), np.pad(b, more)


def bands(signatures: U32, num_bands: int, rows_per_band: int) -> U64:
    """A key for each band of each signature: equal where the band's values are, never between bands but by chance.

    Args:
        signatures: Shape (rows, num_perm), num_perm at least `num_bands * rows_per_band`.
        num_bands: Bands.
        rows_per_band: Signature values a band.

    Returns:
        Shape (rows, num_bands).

    Raises:
        PlanError: The signatures are too short.
    """
    if not 0 < num_bands * rows_per_band <= signatures.shape[1]:
        raise PlanError(
            f"{num_bands} bands of {rows_per_band} rows do not fit signatures of {signatures.shape[1]} values; "
            "bands and rows must be 1 or more, and their product at most that"
        )
    out = np.empty((len(signatures), num_bands), np.uint64)
    _bands(signatures, rows_per_band, out)
    return out


@allocating
def _signatures(hashes, offsets, a, b, out):
    block = np.empty(BLOCK, np.uint32)
    least = np.empty(len(a), np.uint32)
    for row in range(len(out)):
        least[:] = EMPTY
        for start in range(offsets[row], offsets[row + 1], BLOCK):
            count = min(BLOCK, offsets[row + 1] - start)
            for place in range(count):
                block[place] = mixed(hashes[start + place])
            lower(block, count, a, b, least)
        out[row] = least[: out.shape[1]]


@inlined
def mixed(h):
    """The finaliser of MurmurHash3, which datasketch puts before the permutations."""
    h ^= h >> np.uint32(16)
    h = np.uint32(h * np.uint32(0x85EBCA6B))
    h ^= h >> np.uint32(13)
    h = np.uint32(h * np.uint32(0xC2B2AE35))
    return h ^ h >> np.uint32(16)


@compiled
def lower(block, count, a, b, least):
    """Lower a signature by `block[:count]`, hashes that `mixed` has gone over.

    A few permutations at a time, each over all hashes: no minimum is ever taken across a vector.

    Args:
        block: Hashes, with room for `AT_ONCE` - 1 more, which are overwritten.
        count: How many.
        a: Multipliers, as `filled_up` returns them.
        b: Addends.
        least: The signature, shape (len(a),).
    """
    full = (count + AT_ONCE - 1) // AT_ONCE * AT_ONCE
    if count:
        block[count:full] = block[count - 1]
    for place in range(0, len(a), LANES):
        lower_lanes(least, place, a, b, block, full)


@compiled
def _bands(signatures, rows_per_band, out):
    rows, num_bands = out.shape
    for row in range(rows):
        for band in range(num_bands):
            key = np.uint64(band + 1) * np.uint64(0x9E3779B97F4A7C15)
            for place in range(band * rows_per_band, (band + 1) * rows_per_band):
                key = (key ^ np.uint64(signatures[row, place])) * np.uint64(0xD6E8FEB86659FD93)
                key ^= key >> np.uint64(32)
            out[row, band] = key
