"""What time costs, as a command was given it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from dataeff.prices import Kind, Price, age_words, price_of, stated
from dataeff.prices.skypilot import read_prices


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """What time costs."""

    device: Price | None = None
    cpu_usd_per_hour: float | None = None
    """Of a processor, for making corpora."""

    @classmethod
    def of(
        cls, price: str | None, prices: Path | None = None, *, spot: bool = False, cpu_price: float | None = None
    ) -> Priced:
        """From what a command was given: dollars, or an accelerator's name.

        Raises:
            PlanError: There is no such price.
        """
        if price is None:
            return cls(cpu_usd_per_hour=cpu_price)
        try:
            return cls(device=stated(float(price)), cpu_usd_per_hour=cpu_price)
        except ValueError:
            kind: Kind | None = "spot" if spot else None
            table = read_prices(prices) if prices else None
            return cls(device=price_of(price, kind=kind, table=table), cpu_usd_per_hour=cpu_price)

    def note(self, today: date) -> str:
        """Who says so, and how old that is."""
        if self.device is None:
            return "no price was given: --price NAME or dollars for an hour of one device"
        return " ".join(filter(None, [f"price: {self.device}.", age_words(self.device, today)]))


def in_usd(dollars: float) -> str:
    """Dollars, to the cent; less than ten cents in two digits."""
    return f"{dollars:,.2f}" if dollars >= 0.1 else f"{dollars:.2g}"
