"""The stopping rule of asynchronous halving as Optuna has it: judged once, on arrival, among those before."""

from __future__ import annotations

import math
from collections import defaultdict


class StoppingRule:
    """Remembers the losses reported at each rung."""

    def __init__(self, eta: int) -> None:
        self.eta = eta
        self.competing: defaultdict[int, list[float]] = defaultdict(list)

    def goes_on(self, rung: int, loss: float) -> bool:
        """Whether a trial that reports `loss` at `rung` is trained further; NaN is a failure and is not remembered."""
        if math.isnan(loss):
            return False
        competing = self.competing[rung]
        competing.append(loss)
        promotable = len(competing) // self.eta - 1
        if promotable == -1:
            promotable = 0
        return loss <= sorted(competing)[promotable]
