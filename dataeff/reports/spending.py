"""What `dataeff ledger` shows: who spent how many GPU-hours and dollars, and how much of it was training."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dataeff.accounts import Account
from dataeff.accounts.sacct import read_sacct
from dataeff.accounts.step_log import read_step_log
from dataeff.efficiency.ettr import Cluster, expected
from dataeff.efficiency.goodput import (
    HELD,
    HOUR_NS,
    LEVELS,
    UNACCOUNTED,
    ZOMBIE_S,
    By,
    Spending,
    Spent,
    Zombie,
    spending,
)
from dataeff.errors import PlanError
from dataeff.ledger import Fault, RunKey, Tags, read_ledgers
from dataeff.manifest import committed
from dataeff.prices import Kind, Price, age_words, find_price, price_of, stated
from dataeff.prices.skypilot import read_prices
from dataeff.reports.funnel import terminal
from dataeff.reports.quantities import duration, share
from dataeff.reports.visible import one_line

LABELS = {
    "startup": "starting up",
    "compile": "compiling",
    "data_wait": "waiting for data",
    HELD: "waiting for the slowest rank's data",
    "evaluation": "evaluating",
    "checkpoint": "saving checkpoints",
    "lost_to_restart": "doing lost steps again",
    "idle": "standing still",
    UNACCOUNTED: "not accounted for",
}
"""What time was spent on besides steps, in words; by bucket."""
_MAX_ROWS = 20
_MAX_NAMED = 8
_NAME_CHARACTERS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to read, how to sum it up, and where to write it."""

    paths: tuple[Path, ...] = ()
    sacct: tuple[Path, ...] = ()
    step_logs: tuple[Path, ...] = ()
    zone: str | None = None
    devices: int = 1
    """Accelerators that a rank of a step log stands for."""
    by: str = "team"
    price: str | None = None
    """Dollars for an hour, or an accelerator's name."""
    prices: Path | None = None
    spot: bool = False
    zombie_s: float = ZOMBIE_S
    csv: Path | None = None
    parquet: Path | None = None
    cluster: Cluster | None = None
    interval_s: float | None = None
    """Between checkpoints, for the closed form."""
    today: date | None = None
    """That of this machine if not given."""


def report(request: Request) -> None:
    """Sum up and print or write what is asked.

    Raises:
        PlanError: Nothing is given to read, an option cannot work, or an accelerator has no known price.
        InputError: A file or a ledger is not there.
        FormatError: A file is no ledger, account, log or price list.
    """
    console = terminal()
    if request.paths or request.sacct or request.step_logs:
        _report_spent(console, request)
    elif request.cluster is None:
        raise PlanError("nothing to sum up: give run directories, --sacct or --step-log, or --nodes for what to expect")
    if request.cluster is not None:
        print_expected(console, request.cluster, request.interval_s)


def _report_spent(console: Console, request: Request) -> None:
    if request.by not in LEVELS:
        raise PlanError(f"--by is {request.by!r}; it must be {', '.join(LEVELS)}")
    by: By = request.by  # type: ignore[assignment]
    price = _pricing(request)
    windows, notes = read_ledgers(request.paths)
    accounts = list(_accounts(request))
    spent = spending(
        [*windows, *(window for account in accounts for window in account.windows)],
        [allocation for account in accounts for allocation in account.allocations],
        by=by,
        price=price,
        zombie_s=request.zombie_s,
    )
    print_spent(console, spent, by)
    console.print()
    for sentence in _priced(spent, price, request.today or datetime.now(UTC).date()):
        console.print(sentence)
    for note in (*notes, *(note for account in accounts for note in account.notes), *_doubts(spent)):
        console.print(Text(f"note: {one_line(note, 400)}", "yellow"))
    for name, path, encode in (("CSV", request.csv, _csv), ("Parquet", request.parquet, _parquet)):
        if path is not None:
            with committed(path) as sink:
                sink.write(encode(rows(spent, by)))
            console.print(f"{name}: {path}", soft_wrap=True)


def _accounts(request: Request) -> Iterator[Account]:
    for path in request.sacct:
        if request.zone is None:
            raise PlanError(
                "sacct writes local time without a zone: name that of the cluster with --zone Europe/Berlin"
            )
        # Jobs that ran count until the account was written, which is the best guess of when sacct was asked.
        now_ns = path.stat().st_mtime_ns if path.is_file() else time.time_ns()
        yield read_sacct(path, zone=request.zone, now_ns=now_ns)
    stems = [path.stem for path in request.step_logs]
    for path in request.step_logs:
        run = path.stem if stems.count(path.stem) == 1 else str(path)
        tags = Tags(run=run, attempt=0, devices=request.devices)
        yield read_step_log(path, tags, zone=request.zone)


def _pricing(request: Request) -> Callable[[str], Price | None]:
    table = read_prices(request.prices) if request.prices else None
    kind: Kind | None = "spot" if request.spot else None
    if request.price is None:
        return lambda accelerator: find_price(accelerator, kind=kind, table=table)
    try:
        one = stated(float(request.price))
    except ValueError:
        one = price_of(request.price, kind=kind, table=table)
    return lambda accelerator: one


def print_spent(console: Console, spent: Spent, by: By) -> None:
    """Print it as a person reads it: the sum, who, on what, then what is wrong."""
    total = spent.total
    console.print(Text(_headline(total), "bold"))
    console.print()
    console.print(_groups(spent, by))
    if len(spent.groups) > _MAX_ROWS:
        console.print(Text(f"and {len(spent.groups) - _MAX_ROWS} more, smaller ones: --csv holds all", "dim"))
    console.print()
    if total.allocated_ns:
        console.print(_where(total))
        console.print()
    for sentence in _facts(total):
        console.print(Text(sentence))
    _print_some(console, "devices held without a step", [_zombie(entry) for entry in spent.zombies], "red")
    _print_some(console, "stretches of time not told once", [_fault(entry) for entry in _longest(spent)], "yellow")


def _headline(total: Spending) -> str:
    parts = [f"{_hours(total.allocated_ns)} GPU-hours of {total.num_runs} run{'s' if total.num_runs != 1 else ''}"]
    if total.usd is not None:
        parts.append(_dollars(total.usd))
    parts.append(f"goodput {_ratio(total.goodput)}, ETTR {_ratio(total.ettr)}")
    return "; ".join(parts)


def _groups(spent: Spent, by: By) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in LEVELS[by]:
        table.add_column(name)
    for name in ("GPU-hours", "$", "goodput", "ETTR"):
        table.add_column(name, justify="right")
    table.add_column("most lost to")
    for group in spent.groups[:_MAX_ROWS]:
        shown = (one_line(name, _NAME_CHARACTERS) or "–" for name in group.names)
        table.add_row(*map(Text, (*shown, *_figures(group))))
    if len(spent.groups) > 1:
        blank = [""] * (len(LEVELS[by]) - 1)
        table.add_row(*map(Text, ("all", *blank, *_figures(spent.total))), style="bold")
    return table


def _figures(group: Spending) -> tuple[str, ...]:
    most = next(iter(group.waste_ns.items()), None)
    lost = f"{LABELS.get(most[0], most[0])}, {share(most[1], group.allocated_ns)}" if most else "–"
    usd = "–" if group.usd is None else _dollars(group.usd)
    return _hours(group.allocated_ns), usd, _ratio(group.goodput), _ratio(group.ettr), lost


def _where(total: Spending) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("the allocated time went into")
    for name in ("GPU-hours", "share", "$"):
        table.add_column(name, justify="right")
    parts = {"step": total.productive_ns, **total.waste_ns}
    for bucket, took_ns in parts.items():
        label = "steps that were kept" if bucket == "step" else LABELS.get(bucket, bucket)
        usd = "–" if total.usd is None else _dollars(total.usd * took_ns / total.allocated_ns)
        table.add_row(Text(label), _hours(took_ns), share(took_ns, total.allocated_ns), usd)
    return table


def _facts(total: Spending) -> Iterator[str]:
    trials = (
        ("failed runs and jobs", total.num_failed, total.failed_ns, total.failed_usd),
        ("runs and jobs stopped early", total.num_stopped, total.stopped_ns, total.stopped_usd),
    )
    for what, number, took_ns, usd in trials:
        if number:
            cost = "" if usd is None else f", {_dollars(usd)}"
            yield f"{what}: {number}, which took {_hours(took_ns)} GPU-hours{cost}"
    if total.queued_wall_ns is not None:
        yield f"jobs waited {duration(total.queued_wall_ns / 1e9)} in the queue in all, which nobody pays for"
    if total.measured_ns < total.allocated_ns:
        unknown = total.allocated_ns - total.measured_ns
        yield f"{_hours(unknown)} GPU-hours are of runs that keep no ledger: they are in no goodput and no ETTR"


def _print_some(console: Console, what: str, sentences: Sequence[str], style: str) -> None:
    if not sentences:
        return
    console.print()
    console.print(Text(f"{what}: {len(sentences)}", "bold"))
    for sentence in sentences[:_MAX_NAMED]:
        console.print(Text(sentence, style))
    if len(sentences) > _MAX_NAMED:
        console.print(Text(f"and {len(sentences) - _MAX_NAMED} more, shorter ones", "dim"))


def _zombie(found: Zombie) -> str:
    who = f"{_named(found.key)}, attempt {found.attempt}"
    who += ", no rank" if found.rank is None else f", rank {found.rank}"
    after = "before the first step" if not found.step else f"after step {found.step:,}"
    held = f"{found.devices} device{'s' if found.devices != 1 else ''}"
    return f"{who} took no step for {duration(found.stuck_ns / 1e9)} {after}, holding {held}: {_between(found)}"


def _longest(spent: Spent) -> list[Fault]:
    return sorted(spent.faults, key=lambda fault: (-fault.length_ns * fault.devices, fault.key, fault.rank))


def _fault(found: Fault) -> str:
    what = {
        "gap": "wrote nothing for {}: counted as not accounted for",
        "missing_rank": "left no window while others of its attempt ran, {}: counted as not accounted for",
        "overlap": "tells {} twice: counted once; two processes wrote as this rank, or the clock went back",
        "clock": "has a clock that went back by {}: set it right with NTP before the next run",
    }[found.kind]
    who = f"{_named(found.key)}, attempt {found.attempt}, rank {found.rank}"
    return f"{who} {what.format(_exactly(found.length_ns))}: {_between(found)}"


def _between(found: Zombie | Fault) -> str:
    return f"{_time(min(found.start_ns, found.stop_ns))} to {_time(max(found.start_ns, found.stop_ns))}"


def _doubts(spent: Spent) -> Iterator[str]:
    for key, outside_ns in sorted(spent.outside.items()):
        yield (
            f"{_named(key)} tells {_hours(outside_ns)} GPU-hours that its jobs in the scheduler's account do not hold: "
            "counted as allocated; look at the devices of its ranks and at the zone"
        )
    if spent.unmatched:
        yield (
            f"runs with a ledger that have the name of no job at their time: {len(spent.unmatched)}, "
            f"{_named(spent.unmatched[0])} first; if they ran in one of the jobs, their time counts twice"
        )


def _priced(spent: Spent, price: Callable[[str], Price | None], today: date) -> Iterator[Text]:
    """Which prices the dollars rest on, how old they are, and which are missing."""
    for found in {str(one): one for name in spent.accelerators if (one := price(name)) is not None}.values():
        yield Text(f"price: {found}", "dim")
        if words := age_words(found, today):
            yield Text(f"note: {words}", "yellow")
    for name in spent.unpriced:
        what = f"a price of {one_line(name, _NAME_CHARACTERS)!r}" if name else "the name of some accelerators"
        yield Text(f"note: without {what} there are no dollars: give --price or --prices", "yellow")


def print_expected(console: Console, cluster: Cluster, interval_s: float | None = None) -> None:
    """Print what the closed form says of a cluster, at its best checkpoint interval and at another."""
    best = expected(cluster)
    console.print(
        Text(
            f"{cluster.nodes:,} nodes that fail {cluster.failures_per_1000_node_days:g} times in 1000 node-days: "
            f"a failure every {duration(cluster.mttf_s)}",
            "bold",
        )
    )
    for found, what in ((best, "best: "), (None if interval_s is None else expected(cluster, interval_s), "")):
        if found is None:
            continue
        console.print(
            f"{what}a checkpoint of {duration(cluster.checkpoint_s)} every {duration(found.interval_s)} gives an ETTR "
            f"of {_ratio(found.ettr)}"
        )
        if found.warning:
            console.print(Text(f"note: {found.warning}", "yellow"))
    source = "closed form of Kokolis et al., arXiv 2410.21680, without the queue"
    console.print(Text(f"{source}; {duration(cluster.restart_s)} to be under way again", "dim"))


def rows(spent: Spent, by: By) -> list[dict[str, Any]]:
    """A row a group: its names, exact nanoseconds, hours, dollars and shares; the same columns in each."""
    buckets = sorted({bucket for group in spent.groups for bucket in group.spent_ns} | set(LABELS) - {HELD} | {"step"})
    return [
        {
            **dict(zip(LEVELS[by], group.names, strict=True)),
            "num_runs": group.num_runs,
            "allocated_device_ns": group.allocated_ns,
            "gpu_hours": group.device_hours,
            "usd": group.usd,
            "goodput_share": group.goodput,
            "ettr_share": group.ettr,
            **{f"{bucket}_device_ns": group.spent_ns.get(bucket, 0) for bucket in buckets},
            f"{HELD}_device_ns": group.held_ns,
            "queued_wall_ns": group.queued_wall_ns,
            "num_failed": group.num_failed,
            "failed_device_ns": group.failed_ns,
            "failed_usd": group.failed_usd,
            "num_stopped": group.num_stopped,
            "stopped_device_ns": group.stopped_ns,
            "stopped_usd": group.stopped_usd,
        }
        for group in spent.groups
    ]


def _csv(content: Sequence[dict[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(content[0]) if content else [])
    writer.writeheader()
    writer.writerows(content)
    return text.getvalue().encode()


def _parquet(content: Sequence[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(content)), sink)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _named(key: RunKey) -> str:
    return one_line("/".join(filter(None, key)), 2 * _NAME_CHARACTERS)


def _hours(device_ns: int) -> str:
    hours = device_ns / HOUR_NS
    return f"{hours:,.0f}" if hours >= 1000 else f"{hours:.1f}" if hours >= 100 else f"{hours:.3g}"


def _dollars(usd: float) -> str:
    return f"${usd:,.0f}" if usd >= 100 else f"${usd:.2f}"


def _ratio(part: float | None) -> str:
    return "–" if part is None else share(part, 1.0)


def _exactly(length_ns: int) -> str:
    return duration(length_ns / 1e9) if length_ns >= 50_000_000 else f"{length_ns:,} ns"


def _time(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
