"""Which source each position of training takes its row from, spread as evenly as whole rows can be."""

from __future__ import annotations

import numpy as np

from dataeff.arrow import I64
from dataeff.kernel.compiled import allocating


def interleaved(weights: I64, taken: I64, count: int) -> tuple[I64, I64]:
    """The next rows of a schedule in which every source has its share at all times.

    Row k of a source with weight w is due at (2k + 1) / 2w, and rows stand in the order in which they are due, a tie to
    the source that comes first (Webster's method, as seats are given to parties). So of the first p rows each
    source has its share p * w / sum(weights) to within the number of sources, and exactly `weights` of each
    sum(weights) rows.

    Args:
        weights: Rows of each source in one period, not negative, with a sum in [1, 2**31), shape (sources,).
        taken: Rows of each source that stand before, in this period and those before it, shape (sources,); not changed.
        count: How many rows.

    Returns:
        `(sources, ordinals)`: the source of each row, and how many rows of that source stand before it. Shape (count,).
    """
    sources, ordinals = np.empty(count, np.int64), np.empty(count, np.int64)
    _interleave(weights, taken.copy(), sources, ordinals)
    return sources, ordinals


def taken_before(weights: I64, position: int) -> I64:
    """Rows of each source among the first `position` of the schedule, shape (sources,); as fast anywhere."""
    total = int(weights.sum())
    periods, inside = divmod(position, total)
    # All rows that are due before (inside - sources) / total: at most `inside`, and at least `inside` less two for
    # each source. Big numbers, so that nothing overflows.
    due = max(0, inside - len(weights))
    listed = [int(weight) for weight in weights]
    counts = [min(weight, (2 * due * weight + total - 1) // (2 * total)) if due else 0 for weight in listed]
    taken = np.array(counts, np.int64)
    sources, _ = interleaved(weights, taken, inside - sum(counts))
    taken += np.bincount(sources, minlength=len(weights))
    return taken + periods * weights


@allocating
def _interleave(weights, taken, sources, ordinals):
    total = np.int64(0)
    for source in range(len(weights)):
        total += weights[source]
    # Within the current period.
    inside = np.empty(len(weights), np.int64)
    left = total
    first = np.int64(0)
    while weights[first] == 0:
        first += 1
    periods = taken[first] // weights[first]
    for source in range(len(weights)):
        periods = min(periods, taken[source] // weights[source]) if weights[source] else periods
    for source in range(len(weights)):
        inside[source] = taken[source] - periods * weights[source]
        left -= inside[source]
    for at in range(len(sources)):
        if left == 0:
            inside[:] = 0
            left = total
        best = -1
        for source in range(len(weights)):
            if inside[source] < weights[source] and (
                best < 0 or (2 * inside[source] + 1) * weights[best] < (2 * inside[best] + 1) * weights[source]
            ):
                best = source
        sources[at], ordinals[at] = best, taken[best]
        inside[best] += 1
        taken[best] += 1
        left -= 1
