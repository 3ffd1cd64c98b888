"""`dataeff train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train(
    corpus: Annotated[str, typer.Argument(metavar="CORPUS", help="Output directory of `dataeff run`, or its URL.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The run's directory; one that was stopped goes on.")],
    steps: Annotated[int, typer.Option(help="Optimizer steps.")] = 100,
    batch_size: Annotated[int, typer.Option(help="Rows a micro-batch of a rank.")] = 8,
    accumulate: Annotated[int, typer.Option(help="Micro-batches a step.")] = 1,
    width: Annotated[int, typer.Option(help="Of the model.")] = 128,
    layers: Annotated[int, typer.Option(help="Of the model.")] = 4,
    heads: Annotated[int, typer.Option(help="Of attention.")] = 4,
    norm: Annotated[str, typer.Option(help="rms or layer.")] = "rms",
    positions: Annotated[str, typer.Option(help="rotary or learned.")] = "rotary",
    mlp: Annotated[str, typer.Option(help="gelu or swiglu.")] = "gelu",
    parametrisation: Annotated[
        str, typer.Option(help="standard, or mup: the base width's settings serve any.")
    ] = "standard",
    base_width: Annotated[int, typer.Option(help="For mup: the width that the settings were tuned at.")] = 0,
    base_layers: Annotated[int, typer.Option(help="For mup: the layers that they were tuned at; 0: any.")] = 0,
    mask_documents: Annotated[bool, typer.Option(help="Attend within a document only.")] = False,
    recompute: Annotated[bool, typer.Option(help="Activation checkpointing.")] = False,
    learning_rate: Annotated[float, typer.Option()] = 3e-3,
    warmup_steps: Annotated[int, typer.Option()] = 10,
    schedule: Annotated[str, typer.Option(help="constant, cosine or linear.")] = "constant",
    anneal_steps: Annotated[int, typer.Option(help="Last steps in which a constant rate falls to nothing.")] = 0,
    weight_decay: Annotated[float, typer.Option()] = 0.1,
    seed: Annotated[int, typer.Option()] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="Of products: auto, float32 or bfloat16.")] = "auto",
    compile_model: Annotated[bool, typer.Option("--compile", help="torch.compile.")] = False,
    workers: Annotated[int, typer.Option(help="Processes that load; 0 is nearly always fastest.")] = 0,
    holdout_rows: Annotated[int, typer.Option(help="Rows of each source kept for validation.")] = 8,
    validate_every: Annotated[int, typer.Option(help="Steps; 0: at the end only.")] = 0,
    checkpoint_every: Annotated[int, typer.Option(help="Steps; 0: at the end only.")] = 0,
    keep_checkpoints: Annotated[int, typer.Option()] = 2,
    log_every: Annotated[int, typer.Option(help="Steps between looks at the loss.")] = 10,
    skip_rows: Annotated[int, typer.Option(help="Leave out so many rows when the run resumes.")] = 0,
    team: Annotated[str, typer.Option(help="Whose cost it is.")] = "",
    project: Annotated[str, typer.Option(help="What for.")] = "",
) -> None:
    """Train a small GPT on a corpus, and record what every step waited for.

    Run again with the same options, a run that was stopped or killed goes on from its last checkpoint. Under torchrun
    (`torchrun --nproc-per-node 2 -m dataeff train ...`) all ranks train together. A run that is told to stop (SIGTERM)
    writes a checkpoint and exits with 143.
    """
    from dataeff.reports.training import run_training

    shape = {
        "width": width,
        "layers": layers,
        "heads": heads,
        "norm": norm,
        "positions": positions,
        "mlp": mlp,
        "parametrisation": parametrisation,
        "base_width": base_width,
        "base_layers": base_layers,
        "mask_documents": mask_documents,
        "recompute": recompute,
    }
    options = {
        "steps": steps,
        "batch_size": batch_size,
        "accumulate": accumulate,
        "learning_rate": learning_rate,
        "warmup_steps": warmup_steps,
        "schedule": schedule,
        "anneal_steps": anneal_steps,
        "weight_decay": weight_decay,
        "seed": seed,
        "device": device,
        "dtype": dtype,
        "compile": compile_model,
        "num_workers": workers,
        "holdout_rows": holdout_rows,
        "validate_every": validate_every,
        "checkpoint_every": checkpoint_every,
        "keep_checkpoints": keep_checkpoints,
        "log_every": log_every,
        "skip_rows": skip_rows,
        "team": team,
        "project": project,
    }
    raise typer.Exit(run_training(corpus, out, shape, options))
