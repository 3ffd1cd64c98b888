"""What an hour of an accelerator costs: a dated table, each row with its source, or a price that the user names."""

from __future__ import annotations

import csv
import difflib
import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path

from dataeff.errors import PlanError

_TABLE = Path(__file__).parent / "on_demand.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars for an hour of one accelerator, and who says so."""

    accelerator: str
    usd_per_hour: float
    source: str
    """Who asks for it, and where that is written."""
    as_of: str
    """When it was so; a year, a month or a day."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.usd_per_hour) and self.usd_per_hour > 0):
            raise PlanError.out_of_range(self, "usd_per_hour", "more than 0")

    def __str__(self) -> str:
        named = f"{self.accelerator} at " if self.accelerator else ""
        dated = f", as of {self.as_of}" if self.as_of else ""
        return f"{named}${self.usd_per_hour:.2f} an hour ({self.source}{dated})"


def stated(usd_per_hour: float) -> Price:
    """A price that the user names.

    Raises:
        PlanError: It is not more than 0.
    """
    return Price(accelerator="", usd_per_hour=usd_per_hour, source="as given", as_of="")


def price_of(accelerator: str) -> Price:
    """The price in our table of an accelerator, by its name or by what a device calls itself.

    Raises:
        PlanError: It is not in the table; the message lists what is.
    """
    found = find_price(accelerator)
    if found is None:
        known = {price.accelerator: price for price in table()}
        nearest = difflib.get_close_matches(accelerator.upper(), known, n=3, cutoff=0.4) or list(known)
        raise PlanError(
            f"no price of {accelerator!r} is known; there is {', '.join(nearest)}: name one of them, or give the "
            "dollars for an hour with --price"
        )
    return found


def find_price(device: str) -> Price | None:
    """The price whose accelerator is a word of `device` (`NVIDIA H100 80GB HBM3` is an H100), or None."""
    words = set(re.split(r"[^A-Z0-9]+", device.upper()))
    return next((price for price in table() if price.accelerator.upper() in words), None)


@functools.cache
def table() -> tuple[Price, ...]:
    """Every price of the table."""
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
