"""`dataeff cost`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def cost(
    comparison: Annotated[Path, typer.Argument(metavar="DIR", help="The --out of `dataeff compare`.")],
    parameters: Annotated[float, typer.Option(help="Of the real model, such as 7e9.")],
    tokens: Annotated[float, typer.Option(help="That the real run would train on with the baseline, such as 2e12.")],
    devices: Annotated[int, typer.Option(min=1, help="Of the real run.")],
    accelerator: Annotated[str, typer.Option(metavar="NAME", help="Such as H100: its peak, and its price.")] = "H100",
    mfu: Annotated[float | None, typer.Option(help="Model FLOPs utilisation that you expect, in (0, 1].")] = None,
    tokens_per_s: Annotated[
        float | None, typer.Option(help="Of all devices, stalls included, where you measured it; instead of --mfu.")
    ] = None,
    ettr: Annotated[
        float, typer.Option(help="Share of the allocated time that trains; `dataeff ledger` has it.")
    ] = 1.0,
    corpus_scale: Annotated[
        float, typer.Option(help="How many times larger the real corpus is than the one that was compared.")
    ] = 1.0,
    price: Annotated[
        str | None, typer.Option(metavar="NAME_OR_USD", help="Instead of the accelerator's: dollars for an hour.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A price list with the columns of a SkyPilot catalogue.")
    ] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Take spot prices.")] = False,
    cpu_price: Annotated[
        float | None, typer.Option(metavar="USD", help="Of a CPU-hour, for making the corpus.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option(metavar="CANDIDATE", help="Print how each of its figures came about instead.")
    ] = None,
) -> None:
    """Say what each candidate of a comparison means for the run that you plan, in device-hours and dollars."""
    from dataeff.reports.planned_run import Real, explain_cost, print_cost
    from dataeff.reports.priced import Priced

    real = Real(
        parameters=parameters,
        tokens=tokens,
        devices=devices,
        accelerator=accelerator,
        mfu=mfu,
        tokens_per_s=tokens_per_s,
        ettr=ettr,
        corpus_scale=corpus_scale,
    )
    priced = Priced.of(price or accelerator, prices, spot=spot, cpu_price=cpu_price)
    if explain is None:
        print_cost(comparison, real, priced)
    else:
        explain_cost(comparison, explain, real, priced)
