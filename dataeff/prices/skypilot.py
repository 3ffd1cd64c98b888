"""A user's own price list: a SkyPilot catalogue (`~/.sky/catalogs/v8/CLOUD/vms.csv`), or its on-premise form.

A catalogue has a row an instance type, with the price of the whole instance and perhaps another on the spot market:

    InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice

The on-premise form (`catalogs/v8/slurm/pricing.csv`) has a row an accelerator; an empty field stands for any:

    Region,Zone,PricePerVCPU,PricePerMemoryGB,AcceleratorName,PricePerAccelerator

Columns were read from skypilot-catalog, v8. Catalogues carry no date and no licence: none is shipped here.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from dataeff.errors import FormatError, InputError
from dataeff.prices import Kind, Price

_CATALOGUE = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region")
_ON_PREMISE = ("AcceleratorName", "PricePerAccelerator")


def read_prices(path: Path, *, as_of: str | None = None) -> tuple[Price, ...]:
    """Every price of an accelerator hour in a file; rows without an accelerator or without a price have none.

    Args:
        path: A CSV file of one of the two forms.
        as_of: When the prices were so; the day on which the file was last changed if not given.

    Raises:
        InputError: There is no such file, or it prices no accelerator.
        FormatError: Columns are missing, or a figure is none.
    """
    if not path.is_file():
        raise InputError(f"there is no price list {path}: give a CSV file, such as ~/.sky/catalogs/v8/aws/vms.csv")
    dated = as_of or datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file)
        columns = set(rows.fieldnames or ())
        if columns.issuperset(_ON_PREMISE):
            read = _on_premise
        elif columns.issuperset(_CATALOGUE):
            read = _catalogue
        else:
            raise FormatError(
                f"{path} has the columns {', '.join(rows.fieldnames or ['none'])}; it must have "
                f"{', '.join(_CATALOGUE)} (a SkyPilot catalogue) or {', '.join(_ON_PREMISE)} (prices on premise)"
            )
        found = tuple(
            Price(accelerator=name, usd_per_hour=usd, source=f"{what}, by {path.name}", as_of=dated, kind=kind)
            for row in rows
            for name, usd, what, kind in read(row, f"{path}, line {rows.line_num}")
        )
    if not found:
        raise InputError(f"{path} prices no accelerator: give another list, or the dollars for an hour with --price")
    return found


def _catalogue(row: Mapping[str, str | None], where: str) -> Iterator[tuple[str, float, str, Kind]]:
    number = _number(row["AcceleratorCount"], where)
    if not row["AcceleratorName"] or not number:
        return
    kinds: tuple[tuple[Kind, str], ...] = (("on_demand", "Price"), ("spot", "SpotPrice"))
    for kind, column in kinds:
        if usd := _number(row.get(column), where):
            yield row["AcceleratorName"], usd / number, f"{row['InstanceType']} in {row['Region']}", kind


def _on_premise(row: Mapping[str, str | None], where: str) -> Iterator[tuple[str, float, str, Kind]]:
    if usd := _number(row["PricePerAccelerator"], where):
        place = " ".join(filter(None, (row.get("Region"), row.get("Zone")))) or "any region"
        yield row["AcceleratorName"] or "", usd, place, "on_premise"


def _number(text: str | None, where: str) -> float:
    """A figure; 0 where the field is empty."""
    try:
        found = float(text or 0)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found >= 0):
        raise FormatError(f"{where}: {text!r} is no price or count; it must be a number, 0 or more")
    return found
