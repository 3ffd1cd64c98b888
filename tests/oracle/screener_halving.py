"""Successive halving over a table in which every loss is known beforehand."""

from __future__ import annotations

import math

Table = dict[str, list[list[float | None]]]
"""Losses by candidate, rung and seed; None for a failure."""


def found(losses: list[float | None]) -> list[float]:
    return [loss for loss in losses if loss is not None]


def mean(losses: list[float | None]) -> float:
    return math.fsum(found(losses)) / len(found(losses)) if found(losses) else math.inf


def deviation(table: Table, field: list[str], rung: int) -> float | None:
    several = [name for name in field if len(found(table[name][rung])) > 1]
    if len(several) < 3:
        return None
    squares = [(loss - mean(table[name][rung])) ** 2 for name in several for loss in found(table[name][rung])]
    return math.sqrt(math.fsum(squares) / sum(len(found(table[name][rung])) - 1 for name in several))


def field_by_rung(
    table: Table, baseline: str, *, eta: int, sigma: float | None, z: float, max_extra_share: float
) -> list[list[str]]:
    """Who is trained to each rung, the baseline always among them."""
    num_challengers = len(table) - 1
    fields = [list(table)]
    for rung in range(len(table[baseline]) - 1):
        alive = [name for name in fields[-1] if name != baseline and found(table[name][rung])]
        order = sorted(alive, key=lambda name: mean(table[name][rung]))
        quota = math.ceil(num_challengers / eta ** (rung + 1))
        spread = deviation(table, fields[-1], rung) if sigma is None else sigma
        kept = order[:quota]
        for name in order[quota:]:
            if spread is None or len(kept) >= quota + int(max_extra_share * quota):
                break
            cut = mean(table[order[quota - 1]][rung])
            if mean(table[name][rung]) <= cut + z * spread * math.sqrt(2 / len(table[name][rung])):
                kept.append(name)
        fields.append([name for name in table if name in kept or name == baseline])
    return fields
