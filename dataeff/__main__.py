"""The command line: one word, one verb. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

import sys

import typer

from dataeff.commands.audit import audit
from dataeff.commands.compare import compare
from dataeff.commands.cost import cost
from dataeff.commands.diagnose import diagnose
from dataeff.commands.health import health
from dataeff.commands.inspect import inspect
from dataeff.commands.ledger import ledger
from dataeff.commands.list import list_components
from dataeff.commands.profile import SETTINGS as PROFILE_SETTINGS
from dataeff.commands.profile import profile
from dataeff.commands.run import run
from dataeff.commands.train import train
from dataeff.commands.verify import verify
from dataeff.errors import DataeffError

app = typer.Typer(
    help="What does the data cost us, and how do we pay less? Make a corpus, train on it, see what waits for what.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("run")(run)
app.command("inspect")(inspect)
app.command("verify")(verify)
app.command("list")(list_components)
app.command("train")(train)
app.command("audit")(audit)
app.command("profile", context_settings=PROFILE_SETTINGS)(profile)
app.command("diagnose")(diagnose)
app.command("health")(health)
app.command("compare")(compare)
app.command("cost")(cost)
app.command("ledger")(ledger)

_INTERRUPTED = 130
"""Exit code that typer gives to Ctrl-C."""


def main() -> None:
    """Run the command line; what dataeff raises on purpose is printed without a traceback and exits with 1."""
    try:
        app()
    except DataeffError as error:
        typer.echo(f"dataeff: {error}", err=True)
        sys.exit(1)
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            typer.echo("dataeff: stopped; finished parts are kept, run the same command again to go on", err=True)
        raise


if __name__ == "__main__":
    main()
