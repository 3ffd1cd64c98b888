"""`dataeff profile`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""What stands after the script is the script's."""


def profile(
    target: Annotated[str, typer.Argument(metavar="SCRIPT.py", help="A training script, unchanged; a module with -m.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own.")] = None,
    module: Annotated[bool, typer.Option("-m", "--module", help="SCRIPT.py is a module's name.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run directory; a new one here if not given.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="End the script after so many optimizer steps.")] = None,
) -> None:
    """Run a training script and measure how long the device waits for data, and for what.

    Works with torch's DataLoader, Hugging Face Trainer, Accelerate and Lightning. With torchrun, let each rank be
    profiled: torchrun ... -m dataeff profile --out DIR train.py
    """
    from dataeff.profile.script import profile_script

    outcome = profile_script(target, arguments or [], is_module=module, out=out, max_steps=steps)
    for line in outcome.lines:
        typer.echo(f"dataeff: {line}", err=True)
    raise typer.Exit(outcome.exit_code)
