"""What others wrote of a cluster's time, read into windows of the ledger and into allocations.

A ledger says what a run's time was spent on. A scheduler's account says how long its devices were held and how long it
waited for them, and nothing of what for. Together they tell all of it. Every importer gives an `Account`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dataeff.errors import FormatError, PlanError
from dataeff.ledger import End, RunKey, Window

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_S = 10_000_000_000
"""Of a larger number it is sure that it counts no seconds since 1970: the year would be 2286."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Devices that a scheduler gave to a job, once."""

    job: str
    attempt: int
    """Counted from 0; a job that is queued again after it ran has another one."""
    run: str
    team: str
    project: str
    start_ns: int
    """Unix time."""
    stop_ns: int
    devices: int
    accelerator: str = ""
    queued_ns: int = 0
    """How long it waited for them; no part of the allocated time."""
    end: End = ""

    @property
    def key(self) -> RunKey:
        """Which run it was for; a scheduler knows no candidates."""
        return RunKey(self.team, self.project, self.run, "")

    @property
    def device_ns(self) -> int:
        """Device time that was held."""
        return (self.stop_ns - self.start_ns) * self.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What an importer found."""

    windows: tuple[Window, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out, put together or taken as given, a sentence each."""


def zone_of(name: str) -> ZoneInfo:
    """A time zone by its IANA name.

    Raises:
        PlanError: There is none of that name.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PlanError(
            f"{name!r} is no time zone that this machine knows; it must be a name such as Europe/Berlin or UTC"
        ) from error


def instants_ns(text: str, zone: ZoneInfo | None, where: str) -> tuple[int, ...]:
    """Unix times that a time of day may mean, in nanoseconds, the earlier first: two in the hour that comes twice.

    Args:
        text: Seconds since 1970, or ISO 8601 with or without an offset.
        zone: Of times without an offset.
        where: For the message.

    Raises:
        FormatError: It is no time, or one that the zone's clocks leave out.
        PlanError: It has no offset, and no zone is given.
    """
    try:
        seconds = Decimal(text)
    except InvalidOperation:
        return _local_ns(text, zone, where)
    if not (seconds.is_finite() and 0 <= seconds < _LAST_S):
        raise FormatError(
            f"{where}: {text!r} is no time; it must be seconds since 1970, or such as 2026-09-06T12:00:00"
        )
    return (int(seconds * 10**9),)


def _local_ns(text: str, zone: ZoneInfo | None, where: str) -> tuple[int, ...]:
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise FormatError(f"{where}: {text!r} is no time; it must be such as 2026-09-06T12:00:00") from error
    if read.tzinfo is not None:
        return (_unix_ns(read),)
    if zone is None:
        raise PlanError(f"{where}: {text!r} names no zone, so it may be any of 24 hours: give --zone")
    possible = sorted({_unix_ns(read.replace(tzinfo=zone, fold=fold)) for fold in (0, 1)})
    real = tuple(at for at in possible if _shown(at, zone) == read)
    if not real:
        raise FormatError(f"{where}: clocks in {zone.key} never showed {text}: it is the time of another --zone")
    return real


def _unix_ns(time: datetime) -> int:
    return (time.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1000


def _shown(unix_ns: int, zone: ZoneInfo) -> datetime:
    return (_EPOCH + timedelta(microseconds=unix_ns // 1000)).astimezone(zone).replace(tzinfo=None)
