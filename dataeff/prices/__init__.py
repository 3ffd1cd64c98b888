"""What an hour of an accelerator costs: a dated table, each row with its source, or a price that the user names."""

from __future__ import annotations

import csv
import difflib
import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal, TypeAlias

from dataeff.errors import PlanError

Kind: TypeAlias = Literal["on_demand", "spot", "on_premise"]
"""How the accelerator is held: rented by the hour, rented until somebody pays more, or owned."""
STALE_DAYS = 90
"""A price that may be older is said to be so: catalogues move within a quarter."""
_TABLE = Path(__file__).parent / "on_demand.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars for an hour of one accelerator, and who says so."""

    accelerator: str
    """Its name; empty where the price holds for any."""
    usd_per_hour: float
    source: str
    """Who asks for it, and where that is written."""
    as_of: str
    """When it was so; a year, a month or a day."""
    kind: Kind = "on_demand"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.usd_per_hour) and self.usd_per_hour > 0):
            raise PlanError.out_of_range(self, "usd_per_hour", "more than 0")

    def __str__(self) -> str:
        named = f"{self.accelerator} at " if self.accelerator else ""
        dated = f", as of {self.as_of}" if self.as_of else ""
        held = {"on_demand": "", "spot": ", spot", "on_premise": ", on premise"}[self.kind]
        return f"{named}${self.usd_per_hour:.2f} an hour{held} ({self.source}{dated})"


def stated(usd_per_hour: float) -> Price:
    """A price that the user names.

    Raises:
        PlanError: It is not more than 0.
    """
    return Price(accelerator="", usd_per_hour=usd_per_hour, source="as given", as_of="")


def price_of(accelerator: str, *, kind: Kind | None = None, table: Sequence[Price] | None = None) -> Price:
    """The price of an accelerator, by its name or by what a device calls itself.

    Args:
        accelerator: `H100`, or `NVIDIA H100 80GB HBM3`.
        kind: How it is held; where it is not given, any but spot, which somebody must ask for.
        table: Where to look; our own table if not given.

    Raises:
        PlanError: It is not in the table; the message lists the nearest that are.
    """
    found = find_price(accelerator, kind=kind, table=table)
    if found is None:
        rows = _of_kind(_listed() if table is None else table, kind)
        known = {price.accelerator: price for price in rows if price.accelerator}
        nearest = difflib.get_close_matches(accelerator.upper(), known, n=3, cutoff=0.4) or list(known)
        what = "price" if kind is None else f"{kind.replace('_', '-')} price"
        there = f"there is {', '.join(nearest)}" if nearest else "there is none at all"
        raise PlanError(
            f"no {what} of {accelerator!r} is known; {there}: name one of them, or give the dollars for an hour with "
            "--price"
        )
    return found


def find_price(device: str, *, kind: Kind | None = None, table: Sequence[Price] | None = None) -> Price | None:
    """The price of the accelerator whose name is in what `device` is called, or None.

    `NVIDIA H100 80GB HBM3` is an `H100`, and `NVIDIA A100-SXM4-80GB` rather an `A100-80GB` than an `A100`. Of several
    rows for one accelerator it is the cheapest; a row for any accelerator serves where no other does.
    """
    words = _words(device)
    fitting = [
        (-len(_words(price.accelerator)), price.usd_per_hour, number, price)
        for number, price in enumerate(_of_kind(_listed() if table is None else table, kind))
        if _words(price.accelerator) <= words
    ]
    return min(fitting)[-1] if fitting else None


def _of_kind(rows: Sequence[Price], kind: Kind | None) -> list[Price]:
    return [price for price in rows if (price.kind != "spot" if kind is None else price.kind == kind)]


def _words(name: str) -> set[str]:
    return set(filter(None, re.split(r"[^A-Z0-9]+", name.upper())))


def age_days(price: Price, today: date) -> int | None:
    """Days since the price was so; from the first day of a year or month, so at most so many; None if undated.

    Raises:
        PlanError: `as_of` is no date.
    """
    if not price.as_of:
        return None
    try:
        since = date.fromisoformat(price.as_of + "2026-01-01"[len(price.as_of) :])
    except ValueError as error:
        raise PlanError(
            f"the price of {price.accelerator or 'an accelerator'} is as of {price.as_of!r}; it must be a year, a "
            "month or a day, such as 2026-09-06"
        ) from error
    return max((today - since).days, 0)


def age_words(price: Price, today: date) -> str:
    """A sentence where the price may be older than `STALE_DAYS`, else nothing."""
    days = age_days(price, today)
    if days is None or days <= STALE_DAYS:
        return ""
    most = "" if len(price.as_of) == len("2026-01-01") else "up to "
    return f"the price is {most}{days} days old ({price.as_of}): look it up again, or give your own with --price"


def table() -> tuple[Price, ...]:
    """Every price of our table."""
    return _listed()


@functools.cache
def _listed() -> tuple[Price, ...]:
    with _TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(
            Price(
                accelerator=row["accelerator"],
                usd_per_hour=float(row["usd_per_hour"]),
                source=row["source"],
                as_of=row["as_of"],
            )
            for row in csv.DictReader(file)
        )
