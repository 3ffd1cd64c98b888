from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dataeff.dedup.components import both_ways, converged, distinct, large_star, small_star
from tests.oracle import components as oracle

graphs = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda pair: pair[0] != pair[1]), max_size=60
)


def by_node(edges):
    rows = both_ways(edges)
    return rows[:, np.argsort(rows[0], kind="stable")]


def in_pieces(step, rows, cut):
    """A step over two ranges of nodes, as two tasks would do it."""
    where = int(np.searchsorted(rows[0], cut))
    found = np.concatenate([step(rows[:, :where]), step(rows[:, where:])], axis=1)
    return found[:, np.argsort(found[0], kind="stable")]


@given(graph=graphs, cut=st.integers(0, 31))
def test_alternating_stars_link_every_node_to_the_smallest_of_its_component(graph, cut):
    upper = np.array([max(pair) for pair in graph], np.uint64)
    lower = np.array([min(pair) for pair in graph], np.uint64)
    edges = distinct(upper, lower)
    for _ in range(40):
        after = in_pieces(small_star, in_pieces(large_star, by_node(edges), cut), cut)
        after = distinct(*after)
        if np.array_equal(after, edges):
            break
        edges = after
    else:
        raise AssertionError("no convergence")
    expected = {node: least for node, least in oracle.components(graph).items() if node != least}
    assert dict(zip(edges[0].tolist(), edges[1].tolist(), strict=True)) == expected
    assert np.array_equal(converged(distinct(upper, lower)), edges)
