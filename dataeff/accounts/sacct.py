"""Slurm's account: `sacct` text to allocations.

Text of

    sacct -X -D --parsable2 --noconvert --allusers --starttime 2026-09-01 \\
        -o JobIDRaw,JobName,Account,WCKey,Comment,State,Submit,Start,End,ElapsedRaw,AllocTRES

read by what its manual says (slurm-client 22.05): `-D` shows what a requeue would hide, times are local and without a
zone, `End` of a job that runs is `Unknown`, and `AllocTRES` counts a device both by kind and in all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from zoneinfo import ZoneInfo

from dataeff.accounts import Account, Allocation, instants_ns, zone_of
from dataeff.errors import FormatError, InputError, PlanError
from dataeff.ledger import End

COLUMNS = ("JobName", "Account", "State", "Submit", "Start", "End", "ElapsedRaw", "AllocTRES")
"""Beside `JobIDRaw`, or `JobID`. `WCKey` and `Comment` may be there."""
COMMAND = (
    "sacct -X -D --parsable2 --noconvert -o JobIDRaw,JobName,Account,WCKey,State,Submit,Start,End,ElapsedRaw,AllocTRES"
)
ENDS: dict[str, End] = {
    "COMPLETED": "finished",
    **dict.fromkeys(
        ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"),
        "failed",
    ),
    "PREEMPTED": "preempted",
    "REQUEUED": "preempted",
    "CANCELLED": "stopped",
    **dict.fromkeys(("RUNNING", "COMPLETING", "SUSPENDED", "RESIZING"), ""),
}
"""How an attempt in that state ended."""
_NO_TIME = {"", "Unknown", "None", "N/A"}


def read_sacct(path: Path, *, zone: str, now_ns: int) -> Account:
    """Allocations of accelerators, one an attempt of a job, in order of time.

    `Account` is the team, `WCKey` or else `Comment` the project, `JobName` the run. Device time is `ElapsedRaw` times
    the devices of `AllocTRES`, exactly; of a job that runs, the time until now.

    Args:
        path: What sacct printed.
        zone: Of the machine that printed it, such as `Europe/Berlin`; not asked where times have an offset.
        now_ns: Unix time when it was printed.

    Raises:
        InputError: There is no such file, or no row in it.
        FormatError: Columns are missing, or a row does not fit them.
        PlanError: The zone is unknown, or a job began after now.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}: write one with `{COMMAND} > {path.name}`")
    clock, told = zone_of(zone), Counter[str]()
    jobs: dict[tuple[str, int], Allocation] = {}
    for row in _rows(path, told):
        found = _allocation(row, clock, now_ns, told)
        if found is not None:
            before = jobs.get((found.job, found.start_ns))
            told["seen_twice"] += before is not None
            jobs[found.job, found.start_ns] = before if before is not None and before.end else found
    attempts, numbered = Counter[str](), []
    for found in sorted(jobs.values(), key=lambda found: (found.start_ns, found.job)):
        numbered.append(replace(found, attempt=attempts[found.job]))
        attempts[found.job] += 1
    return Account(allocations=tuple(numbered), notes=tuple(_notes(path, told)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    where: str
    job: str
    fields: dict[str, str]


def _rows(path: Path, told: Counter[str]) -> Iterator[_Row]:
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    header = lines[0].split("|") if lines else []
    name = next((known for known in ("JobIDRaw", "JobID") if known in header), None)
    missing = [*(() if name else ("JobIDRaw",)), *(column for column in COLUMNS if column not in header)]
    if name is None or missing:
        raise FormatError(f"{path} lacks {', '.join(missing)} in its first line: write it with `{COMMAND}`")
    for number, line in enumerate(lines[1:], 2):
        fields = line.split("|")
        if not line or fields == header:
            continue
        where = f"{path}, line {number}"
        if len(fields) != len(header):
            raise FormatError(
                f"{where} has {len(fields)} fields, and the first line has {len(header)}: a name or comment holds a "
                "bar or a line break; leave that column out, or give the job another name"
            )
        row = _Row(where=where, job=fields[header.index(name)], fields=dict(zip(header, fields, strict=True)))
        if "." in row.job:
            told["steps"] += 1
        else:
            yield row
    if len(lines) < 2:
        raise InputError(f"{path} has a header and no job: ask sacct for another time with --starttime")


def _allocation(row: _Row, zone: ZoneInfo, now_ns: int, told: Counter[str]) -> Allocation | None:
    """The allocation of a row, as a first attempt; None where nothing was allocated."""
    devices, accelerator = accelerators(row.fields["AllocTRES"], row.where)
    state = row.fields["State"].split(" ")[0].rstrip("+")
    if row.fields["Start"] in _NO_TIME:
        told["not_started"] += 1
        return None
    if not devices:
        told["without_accelerators"] += 1
        return None
    if state not in ENDS:
        told[f"state {state}"] += 1
    start_ns, stop_ns = _span(row, zone, now_ns, told)
    submits = [at for at in instants_ns(row.fields["Submit"], zone, row.where) if at <= start_ns]
    return Allocation(
        job=row.job,
        attempt=0,
        run=row.fields["JobName"],
        team=row.fields["Account"],
        project=row.fields.get("WCKey", "").lstrip("*") or row.fields.get("Comment", ""),
        start_ns=start_ns,
        stop_ns=stop_ns,
        devices=devices,
        accelerator=accelerator,
        queued_ns=start_ns - submits[-1] if submits else 0,
        end=ENDS.get(state, ""),
    )


def _span(row: _Row, zone: ZoneInfo, now_ns: int, told: Counter[str]) -> tuple[int, int]:
    """When it began, which the time elapsed tells in the hour that comes twice, and when it stopped."""
    try:
        elapsed_ns = int(row.fields["ElapsedRaw"]) * 10**9
    except ValueError:
        elapsed_ns = -1
    if elapsed_ns < 0:
        raise FormatError(f"{row.where}: ElapsedRaw is {row.fields['ElapsedRaw']!r}; it must be whole seconds")
    starts = instants_ns(row.fields["Start"], zone, row.where)
    if row.fields["End"] in _NO_TIME:
        told["running"] += 1
        told["ambiguous"] += len(starts) > 1
        if starts[0] + elapsed_ns > now_ns:
            raise PlanError(
                f"{row.where}: job {row.job} has run {elapsed_ns // 10**9} s since {row.fields['Start']}, which ends "
                f"after the account was written: it is the time of another zone than {zone.key}, or the file's date is "
                "wrong"
            )
        return starts[0], now_ns
    ends = instants_ns(row.fields["End"], zone, row.where)
    fitting = [start for start in starts if start + elapsed_ns in ends]
    told["ambiguous"] += len(starts) > 1 and len(fitting) != 1
    told["other_length"] += not fitting
    start_ns = fitting[0] if fitting else starts[0]
    return start_ns, start_ns + elapsed_ns


def accelerators(tres: str, where: str) -> tuple[int, str]:
    """How many devices an `AllocTRES` names, and which kind where it is one.

    `gres/gpu` is all of them and `gres/gpu:h100` those of a kind, so the two are never added.

    Raises:
        FormatError: A count is no number.
    """
    counts: dict[str, int] = {}
    for name, _, text in (entry.partition("=") for entry in tres.split(",")):
        if name != "gres/gpu" and not name.startswith("gres/gpu:"):
            continue
        if not re.fullmatch(r"\d+", text):
            raise FormatError(f"{where}: {name} is {text!r} in AllocTRES; it must be a count: give sacct --noconvert")
        counts[name] = int(text)
    total = counts.pop("gres/gpu", None)
    kinds = [name.removeprefix("gres/gpu:") for name in counts]
    return sum(counts.values()) if total is None else total, kinds[0].upper() if len(kinds) == 1 else ""


_SAID = {
    "steps": "steps of a job, left out because the job's own row holds them (sacct -X)",
    "seen_twice": "rows that tell of an attempt once more, left out",
    "not_started": "jobs that never started, which held nothing",
    "without_accelerators": "jobs without accelerators, left out",
    "running": "jobs that ran when the account was written, counted until then",
    "ambiguous": "jobs that began in the hour that the clock shows twice, taken for the first of the two, which moves "
    "a job and keeps its length (SLURM_TIME_FORMAT=%s ends the doubt)",
    "other_length": "jobs that ran for another time than from Start to End, by suspension or another zone, counted by "
    "ElapsedRaw",
}


def _notes(path: Path, told: Counter[str]) -> Iterator[str]:
    for what, sentence in _SAID.items():
        if told[what]:
            yield f"{path.name}: {sentence}: {told[what]}"
    for what in sorted(told):
        if what.startswith("state "):
            yield f"{path.name}: rows in the {what}, of which no end is known: {told[what]}"
