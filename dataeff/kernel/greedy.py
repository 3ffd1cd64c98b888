"""Decide, inside clusters of candidates, which documents go: each against the kept ones, in policy order."""

from __future__ import annotations

import numpy as np

from dataeff.arrow import I64, U32, U64
from dataeff.kernel.compiled import allocating, compiled

SCAN_LIMIT = 256
"""Kept members of one bucket, latest first, whose signatures are compared with a document's."""
VERIFY_LIMIT = 64
"""Nearest of those, by signature, whose shingle sets are compared exactly."""


def decide(
    clusters: I64,
    content: U64,
    buckets: I64,
    signatures: U32,
    sets: U64,
    set_bounds: I64,
    *,
    threshold: float,
    containment: bool,
    scan_limit: int = SCAN_LIMIT,
    verify_limit: int = VERIFY_LIMIT,
) -> tuple[I64, I64, int]:
    """Apply the greedy rule: a document goes if and only if a kept candidate is within the threshold.

    Documents come cluster by cluster, each cluster in policy order. Equal content needs no further proof; every
    other removal is proved by the exact overlap of shingle sets. The work a document is bounded, so a bucket with
    a million members costs a million times that bound, not its square.

    Args:
        clusters: Boundaries of clusters, shape (clusters + 1,).
        content: 128-bit content hashes, shape (documents, 2); (0, 0) is no content.
        buckets: The bucket each document fell into, by band, shape (documents, 1 + bands), -1 for a bucket of its
            own, and no number in two columns; the
            first column is for equal content, whose bucket is shared by equal `content[:, 0]`.
        signatures: Shape (documents, num_perm).
        sets: Shingle hashes of all documents, those of one sorted and distinct.
        set_bounds: Where in `sets` those of each begin and end, shape (documents, 2).
        threshold: Least Jaccard similarity, or containment, of a duplicate.
        containment: Judge by the share of the document's own shingles that the kept one has.
        scan_limit: See `SCAN_LIMIT`.
        verify_limit: See `VERIFY_LIMIT`.

    Returns:
        `(survivors, shared, skipped)`: the row of the kept document that decided, or -1 for a kept one; shingles
        shared with it; and the number of comparisons that the two limits left out.
    """
    survivors, shared, skipped = _decide(
        clusters, content, buckets, signatures, sets, set_bounds, threshold, containment, scan_limit, verify_limit
    )
    return survivors, shared, int(skipped)


@allocating
def _decide(
    clusters,
    content,
    buckets,
    signatures,
    sets,
    set_bounds,
    threshold,
    containment,
    scan_limit,
    verify_limit,
):
    documents, columns = buckets.shape
    num_perm = signatures.shape[1]
    survivors = np.full(documents, -1, np.int64)
    shared = np.zeros(documents, np.int64)
    head = np.full(buckets.max() + 1 if buckets.size else 0, -1, np.int64)
    following = np.full(documents * columns, -1, np.int64)
    stamp = np.full(documents, -1, np.int64)
    found = np.empty(columns * scan_limit, np.int64)
    near = np.empty(columns * scan_limit, np.int64)
    ranked = np.empty(columns * scan_limit, np.int64)
    skipped = 0
    for cluster in range(len(clusters) - 1):
        for row in range(clusters[cluster], clusters[cluster + 1]):
            if buckets[row, 0] >= 0:
                other = head[buckets[row, 0]]
                while other >= 0:
                    if content[other, 0] == content[row, 0] and content[other, 1] == content[row, 1]:
                        survivors[row] = other
                        shared[row] = set_bounds[row, 1] - set_bounds[row, 0]
                        break
                    other = following[other * columns]
            if survivors[row] < 0:
                num_found, missed = _candidates(row, buckets, head, following, stamp, found, scan_limit)
                skipped += missed
                _rank(row, signatures, num_perm, found, near, ranked, num_found)
                for place in range(min(num_found, verify_limit)):
                    other = ranked[place]
                    overlap = _overlap(row, other, sets, set_bounds, threshold, containment)
                    if overlap >= 0:
                        survivors[row] = other
                        shared[row] = overlap
                        break
                if survivors[row] < 0 and num_found > verify_limit:
                    skipped += num_found - verify_limit
            if survivors[row] < 0:
                for column in range(columns):
                    bucket = buckets[row, column]
                    if bucket >= 0:
                        following[row * columns + column] = head[bucket]
                        head[bucket] = row
    return survivors, shared, skipped


@compiled
def _candidates(row, buckets, head, following, stamp, found, scan_limit):
    """Distinct kept documents that share a band with `row`, into `found`."""
    columns = buckets.shape[1]
    num_found = 0
    missed = 0
    for column in range(1, columns):
        bucket = buckets[row, column]
        if bucket < 0:
            continue
        other = head[bucket]
        scanned = 0
        while other >= 0:
            if scanned == scan_limit:
                missed += 1
                break
            scanned += 1
            if stamp[other] != row:
                stamp[other] = row
                found[num_found] = other
                num_found += 1
            other = following[other * columns + column]
    return num_found, missed


@allocating
def _rank(row, signatures, num_perm, found, near, ranked, num_found):
    """Order candidates by equal signature values, most first, as found among equals: a counting sort."""
    counts = np.zeros(num_perm + 2, np.int64)
    for place in range(num_found):
        equal = 0
        other = found[place]
        for k in range(num_perm):
            equal += signatures[row, k] == signatures[other, k]
        near[place] = num_perm - equal
        counts[near[place] + 1] += 1
    for distance in range(num_perm + 1):
        counts[distance + 1] += counts[distance]
    for place in range(num_found):
        ranked[counts[near[place]]] = found[place]
        counts[near[place]] += 1


@compiled
def _overlap(row, other, sets, set_bounds, threshold, containment):
    """Shingles that both have, or -1 as soon as the threshold is out of reach."""
    i, i_end = set_bounds[row, 0], set_bounds[row, 1]
    j, j_end = set_bounds[other, 0], set_bounds[other, 1]
    own = i_end - i
    both = own + j_end - j
    if own == 0 or both == own:
        return -1
    shared = 0
    while i < i_end and j < j_end:
        best = shared + min(i_end - i, j_end - j)
        reach = best / own if containment else best / (both - best)
        if reach < threshold:
            return -1
        for _ in range(min(64, min(i_end - i, j_end - j))):
            x, y = sets[i], sets[j]
            shared += x == y
            i += x <= y
            j += y <= x
    similarity = shared / own if containment else shared / (both - shared)
    return shared if similarity >= threshold else -1
