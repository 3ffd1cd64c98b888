"""How bands and rows turn a similarity into a chance of being found."""

from __future__ import annotations

from dataeff.errors import PlanError


def detection_probability(jaccard: float, bands: int, rows: int) -> float:
    """Chance that two documents share all values of at least one band: 1 - (1 - j**rows)**bands.

    Leskovec, Rajaraman, Ullman: Mining of Massive Datasets, section 3.4.3.
    """
    return 1 - (1 - jaccard**rows) ** bands


def optimal(threshold: float, num_perm: int) -> tuple[int, int]:
    """Bands and rows that weigh false positives and false negatives equally, as datasketch 2.x finds them.

    Args:
        threshold: Jaccard similarity above which pairs are wanted, in (0, 1).
        num_perm: Most signature values to use.

    Raises:
        PlanError: `threshold` or `num_perm` is out of range.
    """
    from datasketch import MinHashLSH

    if not 0 < threshold < 1 or num_perm < 2:
        raise PlanError(f"threshold {threshold} with {num_perm} values; must be in (0, 1), and 2 or more")
    found = MinHashLSH(threshold=threshold, num_perm=num_perm)
    return int(found.b), int(found.r)
