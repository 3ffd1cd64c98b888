"""ASHA with one worker, as algorithm 2 of arXiv:1810.05934 keeps its state: recorded losses and promoted by rung."""

from __future__ import annotations

import math


def asha(losses: dict[str, list[float]], eta: int) -> list[tuple[str, int]]:
    """Jobs as (candidate, rung) in the order in which one worker does them; a full rung promotes ceil(n / eta**j)."""
    top = len(next(iter(losses.values()))) - 1
    waiting = list(losses)
    recorded: list[list[str]] = [[] for _ in range(top + 1)]
    promoted: list[list[str]] = [[] for _ in range(top + 1)]
    done = []

    def promotable(rung: int) -> list[str]:
        order = sorted(recorded[rung], key=lambda name: (losses[name][rung], list(losses).index(name)))
        quota = len(order) // eta
        if not waiting and all(not promotable(below) for below in range(rung)):
            quota = max(quota, math.ceil(len(losses) / eta ** (rung + 1)))
        return [name for name in order[:quota] if name not in promoted[rung]]

    def get_job() -> tuple[str, int] | None:
        for rung in reversed(range(top)):
            # Among those of one rung the paper leaves the order open; here it is that of the list.
            for name in losses:
                if name in promotable(rung):
                    promoted[rung].append(name)
                    return name, rung + 1
        return (waiting.pop(0), 0) if waiting else None

    while job := get_job():
        recorded[job[1]].append(job[0])
        done.append(job)
    return done
