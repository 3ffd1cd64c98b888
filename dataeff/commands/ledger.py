"""`dataeff ledger`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def ledger(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH]...", help="Run directories, folders of them, or ledger.jsonl files."),
    ] = None,
    sacct: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="What `sacct -X -D --parsable2 --noconvert` printed.")
    ] = None,
    step_log: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Another trainer's log: CSV or JSONL with step and time.")
    ] = None,
    zone: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of times without an offset, such as Europe/Berlin.")
    ] = None,
    devices: Annotated[int, typer.Option(min=0, help="Accelerators that a rank of a step log stands for.")] = 1,
    by: Annotated[str, typer.Option(help="team, project, run or candidate.")] = "team",
    price: Annotated[
        str | None, typer.Option(metavar="NAME_OR_USD", help="An accelerator, such as H100, or dollars for an hour.")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A price list with the columns of a SkyPilot catalogue.")
    ] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Take spot prices.")] = False,
    zombie_s: Annotated[
        float, typer.Option(min=0, help="Name devices held for so many seconds without a step.")
    ] = 1800.0,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the groups.")] = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the groups.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Say what a run on so many nodes may expect.")] = None,
    failures_per_1000_node_days: Annotated[float, typer.Option(help="Of the cluster; Meta found 6.50 and 2.34.")] = 6.5,
    checkpoint_s: Annotated[float, typer.Option(help="How long the run stands still for a checkpoint.")] = 60.0,
    restart_s: Annotated[float, typer.Option(help="From a failure until steps go on.")] = 300.0,
    interval_s: Annotated[float | None, typer.Option(help="Between checkpoints, beside the best one.")] = None,
) -> None:
    """Say who spent how many GPU-hours and dollars, how much of it was training, and what the rest went into."""
    from dataeff.efficiency.ettr import Cluster
    from dataeff.reports.spending import Request, report

    cluster = (
        None
        if nodes is None
        else Cluster(
            nodes=nodes,
            failures_per_1000_node_days=failures_per_1000_node_days,
            checkpoint_s=checkpoint_s,
            restart_s=restart_s,
        )
    )
    report(
        Request(
            paths=tuple(paths or ()),
            sacct=tuple(sacct or ()),
            step_logs=tuple(step_log or ()),
            zone=zone,
            devices=devices,
            by=by,
            price=price,
            prices=prices,
            spot=spot,
            zombie_s=zombie_s,
            csv=csv,
            parquet=parquet,
            cluster=cluster,
            interval_s=interval_s,
        )
    )
