"""The greedy rule over all pairs, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence


def decide(
    sets: Sequence[frozenset[int]], linked: Sequence[Sequence[bool]], threshold: float, containment: bool
) -> list[int]:
    """The kept documents that may have decided about each document are those linked to it and similar enough.

    Returns:
        For each document, in policy order, how many kept ones are similar enough: 0 means it is kept.
    """
    kept: list[int] = []
    proofs = []
    for row, own in enumerate(sets):
        near = [other for other in kept if linked[row][other] and similar(own, sets[other], threshold, containment)]
        proofs.append(len(near))
        if not near:
            kept.append(row)
    return proofs


def similar(own: frozenset[int], other: frozenset[int], threshold: float, containment: bool) -> bool:
    """Whether two shingle sets are duplicates; an empty one never is."""
    if not own or not other:
        return False
    shared = len(own & other)
    return shared / (len(own) if containment else len(own | other)) >= threshold
