"""Who spent how many device hours, on what, and how much of it was training.

Time is counted in device nanoseconds, whole numbers, so whatever the windows and allocations are grouped by, the parts
sum to the whole. Goodput is the share of allocated device time in which steps were done that nobody had to do again
and that waited for no data; of ranks that step together, the slowest wait holds all (`held_ns`). ml-goodput counts
such waits as productive, and calls a run that waits half of its time 99.75 % good.

ETTR, effective training time ratio, is productive time over wall-clock time from the first submission to the last
stop, the queue included where a scheduler's account tells it (Kokolis et al., HPCA 2025, arXiv 2410.21680).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, TypeAlias

from dataeff.accounts import Allocation
from dataeff.ledger import End, Fault, RunKey, Window, counted_once
from dataeff.prices import Price

UNACCOUNTED = "unaccounted"
"""Beside the buckets of the ledger: allocated time of which nobody says what it was spent on."""
HELD = "held_by_slowest"
"""The part of `step` in which a rank waited for another one's data."""
By: TypeAlias = Literal["team", "project", "run", "candidate"]
LEVELS: dict[str, tuple[str, ...]] = {
    "team": ("team",),
    "project": ("team", "project"),
    "run": ("team", "project", "run"),
    "candidate": ("team", "project", "candidate"),
}
"""What tells groups apart."""
ZOMBIE_S = 1800.0
_AT_WORK = ("evaluation", "checkpoint", "compile")
"""Buckets without steps that are no sign of a hang."""
HOUR_NS = 3_600 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a group of runs was given and what came of it; `_ns` are device nanoseconds unless they say wall."""

    names: tuple[str, ...]
    """The group's, as `LEVELS` has them; empty for all runs together."""
    num_runs: int
    spent_ns: dict[str, int]
    """By bucket, `unaccounted` among them; sums to the allocated time."""
    held_ns: int
    """Part of `step` in which ranks waited for the data of the slowest one; at least so much, since waits are known a
    window at a time."""
    measured_ns: int
    """Allocated time of the runs that keep a ledger or a step log; of others, nobody knows the steps."""
    demand_ns: int
    """Of those runs, wall-clock time from submission to the last stop, times the most devices that they held."""
    queued_wall_ns: int | None
    """Job by job, how long devices were waited for; None without a scheduler's account."""
    usd: float | None
    """None where an accelerator has no price."""
    num_failed: int
    failed_ns: int
    failed_usd: float | None
    """What the runs cost whose last attempt failed; without steps of its own, a job is a run."""
    num_stopped: int
    stopped_ns: int
    stopped_usd: float | None
    """The same of runs that were stopped early."""

    @property
    def allocated_ns(self) -> int:
        """Device time that was held."""
        return sum(self.spent_ns.values())

    @property
    def device_hours(self) -> float:
        """The allocated time."""
        return self.allocated_ns / HOUR_NS

    @property
    def productive_ns(self) -> int:
        """Steps that were kept, without waits. Of failed runs they count too: a checkpoint may be left of them."""
        return self.spent_ns.get("step", 0) - self.held_ns

    @property
    def goodput(self) -> float | None:
        """Productive over allocated time of the runs whose steps are known, in [0, 1]; None where there are none."""
        return self.productive_ns / self.measured_ns if self.measured_ns else None

    @property
    def ettr(self) -> float | None:
        """Productive over wall-clock time, in [0, 1]; None where no steps are known. A run that changed its number of
        devices is held to its largest one."""
        return self.productive_ns / self.demand_ns if self.demand_ns else None

    @property
    def waste_ns(self) -> dict[str, int]:
        """What was not productive, the largest part first; with the productive time it sums to the allocated."""
        parts = {**self.spent_ns, HELD: self.held_ns}
        parts.pop("step", None)
        return dict(sorted(((name, ns) for name, ns in parts.items() if ns), key=lambda part: (-part[1], part[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Zombie:
    """Devices that were held for long without a step."""

    key: RunKey
    attempt: int
    rank: int | None
    """None where no rank of the run wrote anything."""
    devices: int
    start_ns: int
    stop_ns: int
    stuck_ns: int
    """Wall-clock time in it without evaluations, checkpoints and compilation."""
    step: int | None
    """The last that was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Everything that windows and allocations tell."""

    groups: tuple[Spending, ...]
    """The dearest first."""
    total: Spending
    zombies: tuple[Zombie, ...]
    """The longest first."""
    faults: tuple[Fault, ...]
    outside: dict[RunKey, int]
    """Device time that a run's ledger tells and the scheduler's account of it does not; it counts as allocated."""
    unmatched: tuple[RunKey, ...]
    """Runs with a ledger that no allocation goes by the name of, while there are allocations: if they ran in one of
    those, their time counts twice."""
    accelerators: tuple[str, ...]
    """That have time; an empty name where nobody said which."""
    unpriced: tuple[str, ...]
    """Those of them that have no price."""


def spending(
    windows: Sequence[Window],
    allocations: Iterable[Allocation] = (),
    *,
    by: By = "team",
    price: Callable[[str], Price | None] = lambda accelerator: None,
    zombie_s: float = ZOMBIE_S,
) -> Spent:
    """Sum up windows and allocations.

    An allocation belongs to a ledger's run if it has its name, overlaps it in time, and their teams and projects do
    not differ; then it says what was allocated, and the ledger what of it was spent on what.

    Args:
        windows: Of all runs, attempts and ranks, in the order in which they were written.
        allocations: Of a scheduler's account.
        by: What to group by.
        price: Of an accelerator by its name, which may be empty.
        zombie_s: Devices held for longer than this without a step are named.
    """
    kept, faults = counted_once(windows)
    runs = _joined(kept, faults, allocations)
    level = LEVELS[by]
    groups: defaultdict[tuple[str, ...], list[_Run]] = defaultdict(list)
    for run in runs:
        groups[tuple(getattr(run.key, name) for name in level)].append(run)
    summed = [_sum(names, members, price) for names, members in groups.items()]
    zombies = [zombie for run in runs for zombie in _zombies(run, round(zombie_s * 1e9))]
    names = sorted({part.accelerator for run in runs for part in run.parts if part.device_ns})
    return Spent(
        groups=tuple(sorted(summed, key=lambda group: (-group.allocated_ns, group.names))),
        total=_sum((), runs, price),
        zombies=tuple(sorted(zombies, key=lambda zombie: (-zombie.stuck_ns * zombie.devices, zombie.key))),
        faults=tuple(faults),
        outside={run.key: run.outside_ns for run in runs if run.allocations and run.outside_ns},
        unmatched=tuple(run.key for run in runs if not run.allocations) if any(run.allocations for run in runs) else (),
        accelerators=tuple(names),
        unpriced=tuple(name for name in names if price(name) is None),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Device time of one accelerator, and how it ended."""

    accelerator: str
    device_ns: int
    trial: str
    end: End


class _Run:
    """One run: its windows, the gaps between them, and the devices that a scheduler gave it."""

    def __init__(self, key: RunKey, windows: list[Window], faults: list[Fault], given: list[Allocation]) -> None:
        self.key, self.windows, self.faults, self.allocations = key, windows, faults, given
        self.spent_ns = Counter[str]()
        for window in windows:
            for bucket, took_ns in window.spent_ns.items():
                self.spent_ns[bucket] += took_ns * window.tags.devices
        told_ns = self.spent_ns.total()
        spans = sorted((allocation.start_ns, allocation.stop_ns) for allocation in given)
        self.outside_ns = sum(_outside_ns(window, spans) * window.tags.devices for window in windows)
        gaps_ns = sum(fault.unaccounted_ns for fault in faults)
        given_ns = sum(allocation.device_ns for allocation in given)
        if given:
            # A ledger that names more devices than were given tells of time that was in no allocation either.
            self.outside_ns = max(self.outside_ns, told_ns - given_ns)
        self.allocated_ns = given_ns + self.outside_ns if given else told_ns + gaps_ns
        if self.allocated_ns > told_ns:
            self.spent_ns[UNACCOUNTED] += self.allocated_ns - told_ns
        self.held_ns = _held_ns(windows)
        self.parts = list(self._parts())

    @property
    def demand_ns(self) -> int:
        """Wall-clock time since it was submitted, times the most devices that it held."""
        if not self.windows:
            return 0
        began = [window.start_ns for window in self.windows]
        stopped = [window.stop_ns for window in self.windows]
        began += [given.start_ns - given.queued_ns for given in self.allocations]
        stopped += [given.stop_ns for given in self.allocations]
        attempts: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for window in self.windows:
            attempts[window.tags.attempt][window.tags.rank] = window.tags.devices
        for fault in self.faults:
            if fault.kind == "missing_rank":
                attempts[fault.attempt][fault.rank] = fault.devices
        most = max(sum(ranks.values()) for ranks in attempts.values())
        most = max([most, *(given.devices for given in self.allocations)])
        return (max(stopped) - min(began)) * most

    def _parts(self) -> Iterator[_Part]:
        """Allocated time by accelerator and trial; a run that keeps a ledger is one trial, else a job is."""
        named = next((window.tags.accelerator for window in self.windows if window.tags.accelerator), "")
        end = self._end()
        last = {given.job: given.end for given in sorted(self.allocations, key=lambda given: given.start_ns)}
        for given in self.allocations:
            trial, how = ("", end) if self.windows else (given.job, last[given.job])
            yield _Part(accelerator=given.accelerator or named, device_ns=given.device_ns, trial=trial, end=how)
        rest_ns = self.allocated_ns - sum(given.device_ns for given in self.allocations)
        if rest_ns:
            yield _Part(accelerator=named, device_ns=rest_ns, trial="", end=end)

    def _end(self) -> End:
        """How its last attempt ended: by the ledger, else by the scheduler."""
        if not self.windows:
            return ""
        last = max(window.tags.attempt for window in self.windows)
        ends = {window.end for window in self.windows if window.tags.attempt == last}
        said: tuple[End, ...] = ("failed", "stopped", "preempted", "finished")
        for end in said:
            if end in ends:
                return end
        return max(self.allocations, key=lambda given: given.stop_ns).end if self.allocations else ""


def _joined(windows: Sequence[Window], faults: Sequence[Fault], allocations: Iterable[Allocation]) -> list[_Run]:
    """Runs, each with what belongs to it, in the order of their keys."""
    told: defaultdict[RunKey, list[Window]] = defaultdict(list)
    for window in windows:
        told[window.tags.key].append(window)
    given: defaultdict[RunKey, list[Allocation]] = defaultdict(list)
    for key, allocation in _owned(told, allocations):
        given[key].append(allocation)
    named = {key: _filled(key, given[key][0]) if key in given else key for key in (*told, *given)}
    runs: dict[RunKey, tuple[list[Window], list[Fault], list[Allocation]]] = {}
    for key, name in named.items():
        mine = runs.setdefault(name, ([], [], []))
        mine[0].extend(told.get(key, ()))
        mine[2].extend(given.get(key, ()))
    for fault in faults:
        runs.setdefault(named.get(fault.key, fault.key), ([], [], []))[1].append(fault)
    return [_Run(key, *mine) for key, mine in sorted(runs.items())]


def _owned(told: dict[RunKey, list[Window]], allocations: Iterable[Allocation]) -> Iterator[tuple[RunKey, Allocation]]:
    """Allocations with the key of the ledger's run that they belong to, or else their own.

    An attempt that died before it wrote anything belongs where the other attempts of its job do.
    """
    spans = {key: _span(mine) for key, mine in sorted(told.items())}
    by_name: defaultdict[str, list[RunKey]] = defaultdict(list)
    for key in spans:
        by_name[key.run].append(key)
    ordered = sorted(allocations, key=lambda given: (given.start_ns, given.job, given.attempt))
    jobs: dict[tuple[str, RunKey], RunKey] = {}
    for given in ordered:
        for key in by_name[given.run]:
            if _fits(given, key, spans[key]):
                jobs.setdefault((given.job, given.key), key)
    for given in ordered:
        yield jobs.get((given.job, given.key), given.key), given


def _filled(key: RunKey, given: Allocation) -> RunKey:
    return key._replace(team=key.team or given.team, project=key.project or given.project)


def _span(windows: Sequence[Window]) -> tuple[int, int]:
    return min(window.start_ns for window in windows), max(window.stop_ns for window in windows)


def _fits(given: Allocation, key: RunKey, span: tuple[int, int]) -> bool:
    same = all(not one or not two or one == two for one, two in ((given.team, key.team), (given.project, key.project)))
    return same and given.start_ns < span[1] and given.stop_ns > span[0]


def _outside_ns(window: Window, spans: Sequence[tuple[int, int]]) -> int:
    """How much of a window lies in none of the spans, which are in order."""
    outside, at_ns = 0, window.start_ns
    for start_ns, stop_ns in spans:
        outside += max(min(start_ns, window.stop_ns) - at_ns, 0)
        at_ns = max(at_ns, stop_ns)
    return outside + max(window.stop_ns - at_ns, 0)


def _held_ns(windows: Sequence[Window]) -> int:
    """Device time of `step` in which ranks waited for the data of the slowest one.

    Ranks that step together are compared between steps at which all of them wrote a window; after the last such step
    nothing is known.
    """
    attempts: defaultdict[int, defaultdict[int, list[Window]]] = defaultdict(lambda: defaultdict(list))
    for window in windows:
        attempts[window.tags.attempt][window.tags.rank].append(window)
    return sum(_attempt_held_ns(list(ranks.values())) for ranks in attempts.values() if len(ranks) > 1)


def _attempt_held_ns(ranks: Sequence[Sequence[Window]]) -> int:
    common = sorted(set.intersection(*({window.step for window in mine} for mine in ranks)))
    waits = [[0] * len(common) for _ in ranks]
    steps = [[0] * len(common) for _ in ranks]
    for number, mine in enumerate(ranks):
        for window in mine:
            place = bisect_left(common, window.step)
            if place < len(common):
                waits[number][place] += window.spent_ns.get("data_wait", 0)
                steps[number][place] += window.spent_ns.get("step", 0)
    slowest = [max(column) for column in zip(*waits, strict=True)]
    return sum(
        min(most - wait, step) * mine[0].tags.devices
        for mine, own_waits, own_steps in zip(ranks, waits, steps, strict=True)
        for most, wait, step in zip(slowest, own_waits, own_steps, strict=True)
    )


def _sum(names: tuple[str, ...], runs: Sequence[_Run], price: Callable[[str], Price | None]) -> Spending:
    spent = Counter[str]()
    for run in runs:
        spent.update(run.spent_ns)
    parts = [(run.key, part) for run in runs for part in run.parts]
    failed = [part for _, part in parts if part.end == "failed"]
    stopped = [part for _, part in parts if part.end == "stopped"]
    measured = [run for run in runs if run.windows]
    given = [allocation for run in runs for allocation in run.allocations]
    return Spending(
        names=names,
        num_runs=len(runs),
        spent_ns=dict(sorted(spent.items())),
        held_ns=sum(run.held_ns for run in runs),
        measured_ns=sum(run.allocated_ns for run in measured),
        demand_ns=sum(run.demand_ns for run in measured),
        queued_wall_ns=sum(allocation.queued_ns for allocation in given) if given else None,
        usd=_usd((part for _, part in parts), price),
        num_failed=len({(key, part.trial) for key, part in parts if part.end == "failed"}),
        failed_ns=sum(part.device_ns for part in failed),
        failed_usd=_usd(failed, price),
        num_stopped=len({(key, part.trial) for key, part in parts if part.end == "stopped"}),
        stopped_ns=sum(part.device_ns for part in stopped),
        stopped_usd=_usd(stopped, price),
    )


def _usd(parts: Iterable[_Part], price: Callable[[str], Price | None]) -> float | None:
    """Exact until it is rounded once, so that groups sum to their total within a float's last digits."""
    total = Fraction(0)
    for part in parts:
        rate = price(part.accelerator)
        if rate is None:
            return None
        total += Fraction(rate.usd_per_hour) * part.device_ns / HOUR_NS
    return float(total)


def _zombies(run: _Run, least_ns: int) -> Iterator[Zombie]:
    ranks: defaultdict[tuple[int, int], list[Window]] = defaultdict(list)
    stops: dict[int, int] = {}
    for window in run.windows:
        attempt = window.tags.attempt
        ranks[attempt, window.tags.rank].append(window)
        stops[attempt] = max(stops.get(attempt, window.stop_ns), window.stop_ns)
    for (attempt, _), mine in sorted(ranks.items()):
        yield from _stuck(mine, stops[attempt], least_ns)
    if not run.windows:
        return
    for given in run.allocations:
        yield from _unattended(run, given, least_ns)


def _stuck(mine: Sequence[Window], attempt_stop_ns: int, least_ns: int) -> Iterator[Zombie]:
    """Stretches of a rank without a step; what came before its first window is not known."""
    last = mine[-1]
    if not last.end and last.stop_ns < attempt_stop_ns:
        silent = replace(last, start_ns=last.stop_ns, stop_ns=attempt_stop_ns, spent_ns={})
        mine = [*mine, silent]
    since_ns, at_work_ns, step = mine[0].start_ns, 0, 0
    until_ns = since_ns

    def found() -> Iterator[Zombie]:
        if until_ns - since_ns - at_work_ns > least_ns:
            yield Zombie(
                key=last.tags.key,
                attempt=last.tags.attempt,
                rank=last.tags.rank,
                devices=last.tags.devices,
                start_ns=since_ns,
                stop_ns=until_ns,
                stuck_ns=until_ns - since_ns - at_work_ns,
                step=step,
            )

    for window in mine:
        if window.step > step:
            until_ns = window.start_ns
            yield from found()
            since_ns, at_work_ns, step = window.stop_ns, 0, window.step
        else:
            at_work_ns += sum(window.spent_ns.get(bucket, 0) for bucket in _AT_WORK)
        until_ns = window.stop_ns
    yield from found()


def _unattended(run: _Run, given: Allocation, least_ns: int) -> Iterator[Zombie]:
    """An allocation's time before the run's first window in it, and after the last."""
    inside = [w for w in run.windows if w.start_ns < given.stop_ns and w.stop_ns > given.start_ns]
    if inside:
        first, last = min(w.start_ns for w in inside), max(inside, key=lambda w: w.stop_ns)
        spans = [(given.start_ns, first, None), (last.stop_ns, given.stop_ns, last.step)]
    else:
        spans = [(given.start_ns, given.stop_ns, None)]
    for start_ns, stop_ns, step in spans:
        if stop_ns - start_ns > least_ns:
            yield Zombie(
                key=run.key,
                attempt=given.attempt,
                rank=None,
                devices=given.devices,
                start_ns=start_ns,
                stop_ns=stop_ns,
                stuck_ns=stop_ns - start_ns,
                step=step,
            )
