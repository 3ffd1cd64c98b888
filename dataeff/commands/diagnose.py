"""`dataeff diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def diagnose(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory that `dataeff profile` wrote.")],
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page that shows it all.")] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a trace that Perfetto (ui.perfetto.dev) opens.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    headroom: Annotated[
        Path | None, typer.Option(metavar="RUN2", help="The same run recorded with its loader in a Headroom.")
    ] = None,
    price: Annotated[float | None, typer.Option(metavar="USD", help="Dollars for an accelerator and hour.")] = None,
    accelerator: Annotated[
        str | None, typer.Option(metavar="NAME", help="Take the price of this one, such as H100.")
    ] = None,
    cores: Annotated[
        float | None, typer.Option(min=0.1, help="Processors of a rank; those of this machine if not given.")
    ] = None,
    loop_processor_share: Annotated[
        float, typer.Option(min=0, max=1, help="How much of its own time the loop needs a processor.")
    ] = 1.0,
    peak_flops: Annotated[
        float | None, typer.Option(min=1, help="Dense bfloat16 FLOP/s of one device, where we do not know it.")
    ] = None,
) -> None:
    """Say whether a run waits for its data, for which part, what to change, and what that gains in time and money."""
    from dataeff.reports.diagnosis import Request, report

    report(
        Request(
            run=run,
            headroom=headroom,
            html=html,
            trace=trace,
            usd_per_hour=price,
            accelerator=accelerator,
            cores=cores,
            loop_processor_share=loop_processor_share,
            peak_flops_per_s=peak_flops,
            as_json=as_json,
        )
    )
