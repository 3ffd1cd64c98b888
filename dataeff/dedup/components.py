"""Connected components of a graph whose edges do not fit in memory.

Alternating large-star and small-star steps (Kiveris, Lattanzi, Mirrokni, Rastogi, Vassilvitskii: Connected
Components in MapReduce and Beyond, SoCC 2014). Each step sees the neighbours of some nodes at a time, so it runs
over ranges of an exchange; the steps end with every node linked to the smallest of its component.
"""

from __future__ import annotations

import numpy as np

from dataeff.arrow import U64


def large_star(rows: U64) -> U64:
    """Link every larger neighbour of a node to the smallest of the node and its neighbours.

    Args:
        rows: Both directions of every edge of some nodes, sorted by node: shape (2, edges), node over neighbour.

    Returns:
        Edges without repeats, larger node over smaller, shape (2, edges).
    """
    node, neighbour = rows
    starts = _starts(node)
    smallest = np.minimum(np.minimum.reduceat(neighbour, starts), node[starts]) if len(node) else neighbour
    least = np.repeat(smallest, np.diff(np.append(starts, len(node))))
    larger = neighbour > node
    return distinct(neighbour[larger], least[larger])


def small_star(rows: U64) -> U64:
    """Link a node and its smaller neighbours to the smallest of them.

    Args:
        rows: Edges from larger to smaller node, sorted by the larger: shape (2, edges).

    Returns:
        Edges without repeats, larger node over smaller, shape (2, edges).
    """
    node, neighbour = rows
    if not len(node):
        return rows
    starts = _starts(node)
    smallest = np.minimum.reduceat(neighbour, starts)
    least = np.repeat(smallest, np.diff(np.append(starts, len(node))))
    upper = np.concatenate([node[starts], neighbour])
    lower = np.concatenate([smallest, least])
    return distinct(upper[upper != lower], lower[upper != lower])


def converged(edges: U64) -> U64:
    """Every node of edges that are all in memory linked to the smallest of its component, shape (2, edges)."""
    while True:
        larger = large_star(_by_node(both_ways(edges)))
        linked = small_star(larger)
        if np.array_equal(linked, edges):
            return linked
        edges = linked


def both_ways(edges: U64) -> U64:
    """Every edge in both directions, shape (2, 2 x edges)."""
    return np.concatenate([edges, edges[::-1]], axis=1)


def distinct(upper: U64, lower: U64) -> U64:
    """Edges sorted and without repeats, shape (2, edges)."""
    order = np.lexsort((lower, upper))
    edges = np.stack([upper[order], lower[order]])
    if edges.shape[1] == 0:
        return edges
    new = np.append(True, (edges[:, 1:] != edges[:, :-1]).any(axis=0))
    return edges[:, new]


def _by_node(rows: U64) -> U64:
    return rows[:, np.argsort(rows[0], kind="stable")]


def _starts(sorted_keys: U64) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    if not len(sorted_keys):
        return np.zeros(0, np.intp)
    return np.flatnonzero(np.append(True, sorted_keys[1:] != sorted_keys[:-1]))
