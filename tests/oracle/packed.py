"""Packing of documents in rows, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence

Place = tuple[int, int]
"""A document and a position in it."""


def rows(documents: Sequence[Sequence[int]], length: int, end: int) -> tuple[list[list[int]], list[list[Place | None]]]:
    """Rows of tokens, and for each token which document it is of and where in it; None for padding."""
    stream: list[tuple[int, Place | None]] = []
    for number, tokens in enumerate(documents):
        for position, token in enumerate(tokens):
            stream.append((token, (number, position)))
    while len(stream) % length:
        stream.append((end, None))
    cut = [stream[start : start + length] for start in range(0, len(stream), length)]
    return [[token for token, _ in row] for row in cut], [[place for _, place in row] for row in cut]
