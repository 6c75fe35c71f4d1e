"""The command `muster`. Imports nothing heavy: every command loads what it needs when it runs."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from muster.client.cli import commands
from muster.client.cli.exit_codes import exit_code
from muster.client.cli.mounts import MountingGroup
from muster.client.cli.output import asks_for_json, print_error
from muster.client.errors import UsageError
from muster.contract.errors import MusterError

app = typer.Typer(
    cls=MountingGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 1 the run did not succeed, 2 bad input, 3 trouble with the cloud, 130 interrupted.",
)


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"muster {version('muster')}")
        raise typer.Exit


@app.callback()
def _top(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version, and end.")
    ] = False,
) -> None:
    """Train one model with many SageMaker jobs that meet in a bucket."""


for command in (
    *(commands.init, commands.plan, commands.launch, commands.status, commands.list_, commands.logs, commands.events),
    *(commands.cancel, commands.rerun, commands.result, commands.report, commands.ui, commands.doctor),
):
    app.command(command.__name__.rstrip("_"))(command)


def main() -> None:
    """Run the command line. A user's mistake is one line, never a traceback."""
    as_json = asks_for_json(sys.argv[1:])
    try:
        # Typer draws a box around what it cannot read and ends; with --json we get its error, and the exit code.
        sys.exit(app(standalone_mode=not as_json))
    except TyperException as error:
        _end(UsageError(error.format_message()), as_json=as_json)
    except MusterError as error:
        _end(error, as_json=as_json)


def _end(error: MusterError, *, as_json: bool) -> NoReturn:
    print_error(error, as_json=as_json)
    sys.exit(exit_code(error))


if __name__ == "__main__":
    main()
