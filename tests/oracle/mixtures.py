"""Slow, obvious mixtures: the formulas as printed, in floats."""

from __future__ import annotations


def unimax(tokens: dict[str, int], budget: float, max_epochs: float) -> dict[str, float]:
    """Algorithm 1 of arXiv:2304.09151, line by line."""
    used: dict[str, float] = {}
    left = float(budget)
    languages = sorted(tokens, key=lambda name: tokens[name])
    for position, name in enumerate(languages):
        even = left / (len(languages) - position)
        used[name] = tokens[name] * max_epochs if even > tokens[name] * max_epochs else even
        left -= used[name]
    total = sum(used.values())
    return {name: amount / total for name, amount in used.items()}


def filled(
    weights: dict[str, float], tokens: dict[str, int], budget: int, max_epochs: float | None
) -> dict[str, float]:
    """Hand out the budget by weight; what a source cannot take is handed out again, until nothing can be."""
    cap = {
        name: (float("inf") if count else 0.0) if max_epochs is None else float(int(max_epochs * count))
        for name, count in tokens.items()
    }
    used = dict.fromkeys(tokens, 0.0)
    left = float(budget)
    while left > 1e-9:
        takers = [name for name in tokens if weights[name] > 0 and used[name] < cap[name]]
        if not takers:
            break
        total = sum(weights[name] for name in takers)
        handed = {name: min(left * weights[name] / total, cap[name] - used[name]) for name in takers}
        for name, amount in handed.items():
            used[name] += amount
        left -= sum(handed.values())
        if all(used[name] < cap[name] for name in takers):
            break
    return used
