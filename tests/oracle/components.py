"""Connected components by union-find."""

from __future__ import annotations

from collections.abc import Iterable


def components(edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The smallest node of each node's component."""
    parent: dict[int, int] = {}

    def root(node: int) -> int:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for a, b in edges:
        first, second = root(a), root(b)
        parent[max(first, second)] = min(first, second)
    return {node: root(node) for node in parent}
