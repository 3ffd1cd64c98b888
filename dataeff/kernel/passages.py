"""Passages of tokens that two corpora share: n-grams by hash, one rolling hash a stream of tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dataeff.arrow import U64
from dataeff.kernel.compiled import compiled, inlined

_BASE = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)


class Passages:
    """The n-grams of some token streams, and which of them were met elsewhere.

    Args:
        streams: Token ids, any unsigned integer type, shape (tokens,) each.
        n: Tokens of an n-gram; shorter streams have none.
    """

    def __init__(self, streams: list[npt.NDArray[np.unsignedinteger]], n: int) -> None:
        self.n = n
        hashes = [ngram_hashes(stream, n) for stream in streams]
        self._known: U64 = np.unique(np.concatenate([np.zeros(0, np.uint64), *hashes]))
        self._met = np.zeros(len(self._known), np.bool_)
        slots = 1 << max(4, int(2 * len(self._known)).bit_length())
        self._slots = np.full(slots, -1, np.int64)
        _fill(self._known, self._slots)

    def meet(self, tokens: npt.NDArray[np.unsignedinteger]) -> None:
        """Mark the n-grams that stand in another stream; from several threads at once if need be."""
        if len(tokens) >= self.n:
            _meet(tokens, self.n, _power(self.n), self._known, self._slots, self._met)

    def met(self, stream: npt.NDArray[np.unsignedinteger]) -> npt.NDArray[np.bool_]:
        """Whether each token of one of the streams is inside an n-gram that was met, shape (tokens,)."""
        covered = np.zeros(len(stream), np.bool_)
        hashes = ngram_hashes(stream, self.n)
        places = np.searchsorted(self._known, hashes)
        for start in np.flatnonzero(self._met[places]) if len(hashes) else ():
            covered[start : start + self.n] = True
        return covered


def ngram_hashes(tokens: npt.NDArray[np.unsignedinteger], n: int) -> U64:
    """Hash of every n tokens in a row, shape (max(0, tokens - n + 1),)."""
    out = np.zeros(max(0, len(tokens) - n + 1), np.uint64)
    if len(out):
        _hashes(tokens, n, _power(n), out)
    return out


def _power(n: int) -> np.uint64:
    """What the token that leaves a window was multiplied by."""
    return np.uint64(pow(int(_BASE), n - 1, 1 << 64))


@inlined
def _spread(value):
    value = (value ^ value >> np.uint64(32)) * _MIX
    return value ^ value >> np.uint64(29)


@compiled
def _hashes(tokens, n, power, out):
    rolling = np.uint64(0)
    for place in range(len(tokens)):
        if place >= n:
            rolling -= (np.uint64(tokens[place - n]) + np.uint64(1)) * power
        rolling = rolling * _BASE + np.uint64(tokens[place]) + np.uint64(1)
        if place >= n - 1:
            out[place - n + 1] = _spread(rolling)


@compiled
def _fill(known, slots):
    mask = np.uint64(len(slots) - 1)
    for number in range(len(known)):
        slot = known[number] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = number


@compiled
def _meet(tokens, n, power, known, slots, met):
    mask = np.uint64(len(slots) - 1)
    rolling = np.uint64(0)
    for place in range(len(tokens)):
        if place >= n:
            rolling -= (np.uint64(tokens[place - n]) + np.uint64(1)) * power
        rolling = rolling * _BASE + np.uint64(tokens[place]) + np.uint64(1)
        if place < n - 1:
            continue
        wanted = _spread(rolling)
        slot = wanted & mask
        while slots[slot] >= 0:
            number = slots[slot]
            if known[number] == wanted:
                met[number] = True
                break
            slot = (slot + np.uint64(1)) & mask
