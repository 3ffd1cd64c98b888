"""Screeners: which candidates get more training, which stop. One policy a module, found through the registry.

A policy is a pure function of the results so far: no clock, no file, no state of its own. So a comparison that was
killed goes on by replaying its journal, and whoever reads the journal can see why a candidate was stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dataeff.contest import Contest, Job, Result, Standing


class Screener(Protocol):
    """What a module in this folder provides, as a frozen keyword-only dataclass named after its file."""

    def next_jobs(self, contest: Contest, results: Sequence[Result], running: Sequence[Job]) -> list[Job]:
        """Jobs that may start now, the most wanted first; none, with nothing running, means finished.

        Taking the first and asking again, with it among `running`, gives the rest. No job repeats one that is
        running or has a result, none takes a trial back, and a trial is never in two jobs at once.

        Args:
            contest: What is to be decided; the same at every call.
            results: All results so far, in the order in which they came. The second of one job is ignored.
            running: Jobs that were started and have no result yet.

        Raises:
            PlanError: The screener cannot decide such a contest.
            FormatError: The results are of another contest, or of a screener with other rungs.
        """

    def standing(self, contest: Contest, results: Sequence[Result]) -> list[Standing]:
        """Each candidate, in the order of the contest.

        Raises:
            PlanError, FormatError: As in `next_jobs`.
        """


def __getattr__(name: str) -> Any:
    from dataeff.registry import by_class_name

    found = by_class_name("screeners", name) if name[:1].isupper() else None
    if found is None:
        raise AttributeError(f"module 'dataeff.screeners' has no attribute {name!r}")
    return found
