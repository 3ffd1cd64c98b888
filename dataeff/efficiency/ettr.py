"""What failures cost a large run before it starts: expected effective training time ratio, and how often to save.

The closed form of Meta's study of two research clusters (Kokolis et al., HPCA 2025, arXiv 2410.21680): with `N` nodes
that each fail `r` times a second, a checkpoint that takes `w` and comes every `t`, and `u` to be under way again,

    ETTR = (1 - N r (u + t / 2)) / (1 + w / t),    MTTF = 1 / (N r),    best t = sqrt(2 w / (N r))

It counts no failure during recovery and no wait in a queue, so it holds while little is lost: where failures cost more
than there is, it goes below nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dataeff.errors import PlanError

DAY_S = 86_400.0
RESTART_S = 300.0
"""To be under way again after a failure; five minutes, which gives the paper's figures at 12,000 devices."""
REGIME_SHARE = 0.25
"""While failures cost less of the time than this, the form is within 0.03 of the ratio that counts failures during
recovery and while saving too (Daly, Future Generation Computer Systems 22, 2006, equation 20)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The nodes of a run and how they fail."""

    nodes: int
    failures_per_1000_node_days: float
    """Meta found 6.50 and 2.34 on two clusters with 8 devices a node."""
    checkpoint_s: float
    """How long the run stands still for a checkpoint."""
    restart_s: float = RESTART_S
    """From a failure until the last checkpoint is loaded and steps go on."""

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise PlanError.out_of_range(self, "nodes", "1 or more")
        for field in ("failures_per_1000_node_days", "checkpoint_s"):
            if not (math.isfinite(getattr(self, field)) and getattr(self, field) > 0):
                raise PlanError.out_of_range(self, field, "a finite number above 0")
        if not (math.isfinite(self.restart_s) and self.restart_s >= 0):
            raise PlanError.out_of_range(self, "restart_s", "a finite number, 0 or more")

    @property
    def mttf_s(self) -> float:
        """Mean time until any node fails."""
        return 1000 * DAY_S / (self.nodes * self.failures_per_1000_node_days)

    @property
    def best_interval_s(self) -> float:
        """Time between checkpoints that loses least (Young's)."""
        return math.sqrt(2 * self.checkpoint_s * self.mttf_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a run may expect of its time."""

    ettr: float
    """Productive over wall-clock time, in [0, 1]; 0 where failures cost more than there is."""
    interval_s: float
    """Between checkpoints."""
    failure_share: float
    """Of the wall-clock time, lost to failures: restarts and steps since the last checkpoint. May be above 1."""
    warning: str
    """Where the form does not hold, why; else empty."""


def expected(cluster: Cluster, interval_s: float | None = None) -> Expected:
    """The ratio that a run on the cluster may expect.

    Args:
        cluster: Its nodes.
        interval_s: Between checkpoints; the best one if not given.

    Raises:
        PlanError: The interval is not above 0.
    """
    every_s = cluster.best_interval_s if interval_s is None else interval_s
    if not (math.isfinite(every_s) and every_s > 0):
        raise PlanError(f"the time between checkpoints is {every_s}; it must be a finite number of seconds above 0")
    lost = (cluster.restart_s + every_s / 2) / cluster.mttf_s
    ratio = (1 - lost) / (1 + cluster.checkpoint_s / every_s)
    return Expected(ettr=max(ratio, 0.0), interval_s=every_s, failure_share=lost, warning=_warning(ratio, lost))


def _warning(ratio: float, lost: float) -> str:
    if ratio <= 0:
        return (
            f"the closed form gives {ratio:.2f}, which cannot be: at this rate a failure comes before the steps since "
            "the last checkpoint are done; save more often, restart faster, or use fewer nodes"
        )
    if lost > REGIME_SHARE:
        return (
            f"failures cost {100 * lost:.0f} % of the time, and the closed form leaves out those that come during "
            "recovery: the true ratio differs"
        )
    return ""
