"""The command `muster`. Imports nothing heavy: every command loads what it needs when it runs."""

from __future__ import annotations

import sys

import typer

from muster.client import commands
from muster.client.exit_codes import exit_code
from muster.client.mounts import MountingGroup
from muster.client.output import print_error
from muster.contract.errors import MusterError

app = typer.Typer(
    cls=MountingGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train one model with many SageMaker jobs that meet in a bucket.",
    epilog="Exit codes: 0 done, 1 the run did not succeed, 2 bad input, 3 trouble with the cloud, 130 interrupted.",
)
for command in (
    *(commands.init, commands.plan, commands.launch, commands.status, commands.logs, commands.events),
    *(commands.cancel, commands.rerun, commands.result, commands.report, commands.ui, commands.doctor),
):
    app.command()(command)
app.command("list")(commands.list_)


def main() -> None:
    """Run the command line. A user's mistake is one line, never a traceback."""
    try:
        app()
    except MusterError as error:
        print_error(error, as_json="--json" in sys.argv)
        sys.exit(exit_code(error))


if __name__ == "__main__":
    main()
