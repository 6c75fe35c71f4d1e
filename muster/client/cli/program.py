"""The command `muster`. Imports nothing heavy: a command is imported when it runs."""

from __future__ import annotations

import gc
import sys
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from typer.exceptions import TyperException

from muster.client.cli.exit_codes import ExitCode, exit_code
from muster.client.cli.lazy_group import CommandOffer, CommandRow, LazyGroup, with_offered
from muster.client.cli.output import accept_every_character, after_interrupt, asks_for_json, print_error
from muster.client.client_errors import FileTroubleError, UsageError
from muster.contract.errors import MusterError
from muster.options import offers

_LAUNCH, _WATCH, _INSPECT = (f"muster.client.cli.{name}_commands" for name in ("launch", "watch", "inspect"))
_LOCAL = "muster.local.commands"
_GARBAGE_THRESHOLD = 200_000  # objects; Python's default is 700


_COMMANDS = {
    "deploy": CommandRow(
        "muster.infra.deploy.deploy_command:deploy",
        "Deploy the stack as a settings file says. What the file leaves out has its default.",
        extra="deploy",
    ),
    "template": CommandRow(
        "muster.infra.deploy.template_command:template",
        "Write the stack as a CloudFormation template with its code, to deploy it without the CDK.",
        extra="deploy",
    ),
    "destroy": CommandRow(
        "muster.infra.deploy.destroy_command:destroy",
        "Delete the stack. Its bucket stays, with the results of all runs.",
    ),
    "init": CommandRow(
        "muster.client.cli.init_command:init",
        "Write a spec and a trainer that runs as it is, or a spec for your own code. Without options it asks.",
    ),
    "plan": CommandRow(
        f"{_LAUNCH}:plan",
        "Show what a spec would start, the quota it needs and what it may cost. Creates nothing.",
    ),
    "gpus": CommandRow(
        "muster.client.cli.account_commands:gpus",
        "List the instance types with GPUs: memory, price per hour, and with --account quotas.",
    ),
    "launch": CommandRow(f"{_LAUNCH}:launch", "Start a run."),
    "status": CommandRow(f"{_WATCH}:status", "Show a run's status."),
    "list": CommandRow(f"{_INSPECT}:list_", "Show the runs of the stack, the newest first."),
    "logs": CommandRow(f"{_WATCH}:logs", "Show what the replicas have written, merged in time order."),
    "events": CommandRow(f"{_INSPECT}:events", "Show the events of a run, oldest first."),
    "cancel": CommandRow(f"{_LAUNCH}:cancel", "Stop a run and its jobs, or the run that continues it."),
    "continue": CommandRow(
        f"{_LAUNCH}:continue_run", "Continue a run that has ended, as a new run from its last committed round."
    ),
    "result": CommandRow(f"{_INSPECT}:result", "Show the result of a run that has ended."),
    "model": CommandRow(
        "muster.client.cli.model_command:model",
        "Fetch the model that a run leaves, and verify it. Files that are already there are not fetched again.",
    ),
    "report": CommandRow(f"{_INSPECT}:report", "Write a run's page: one HTML file with everything in it."),
    "ui": CommandRow(f"{_WATCH}:ui", "Serve a run's page on this machine, and keep it up to date until Ctrl-C."),
    "compare": CommandRow(
        f"{_INSPECT}:compare", "Compare two runs: specs, durations, costs, rates, reruns, and metrics by round."
    ),
    "deadletters": CommandRow(
        "muster.client.cli.dead_letter_commands:app",
        "Show, replay or drop the events that the functions of the stack did not handle.",
    ),
    "policy": CommandRow(
        "muster.client.cli.account_commands:policy",
        "Print the IAM policy that a user of the stack needs to start, watch and end runs. Creates nothing.",
    ),
    "faults": CommandRow(
        "muster.local.commands.fault_commands:app", "Inject faults into the embedded cloud.", extra="local"
    ),
    "local": CommandRow(
        f"{_LOCAL}.cloud_commands:app",
        "Start, use and stop the embedded cloud: an emulation of AWS on this machine.",
        extra="local",
    ),
}
"""The core's commands in the order of a run's life, then those of the embedded cloud."""


class Commands(LazyGroup):
    """The core's commands and those that options add."""

    table: ClassVar[dict[str, CommandRow]] = with_offered(_COMMANDS, offers("client.commands", CommandOffer))

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Ctrl-C or the end of the input at a question is an interruption, as anywhere else."""
        try:
            return super().invoke(ctx)
        except typer.Abort:
            after_interrupt()
            raise typer.Exit(ExitCode.INTERRUPTED) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 1 the run did not succeed or a check failed, 2 bad input, "
    "3 AWS cannot be reached or refuses, 130 interrupted.",
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"muster {version('muster-train')}")
        raise typer.Exit


@app.callback()
def _top(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train one model with many independent SageMaker jobs, which exchange updates through S3."""


def main() -> None:
    """Run the command line. A user's mistake is one line, never a traceback."""
    # Imports make hundreds of thousands of objects, nearly all of which stay. To look for garbage among them as often
    # as Python does by default takes a tenth of a command's time.
    gc.set_threshold(_GARBAGE_THRESHOLD)
    accept_every_character()
    as_json = asks_for_json(sys.argv[1:])
    try:
        # Typer draws a box around a usage error and exits; with --json it raises the error, and returns the exit code.
        sys.exit(app(standalone_mode=not as_json))
    except TyperException as error:
        _end(UsageError(error.format_message()), as_json=as_json)
    except MusterError as error:
        _end(error, as_json=as_json)
    except OSError as error:
        _end(FileTroubleError.of(error), as_json=as_json)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    finally:
        # The process ends, and Python would look for garbage in all that is left first.
        gc.freeze()


def _end(error: MusterError, *, as_json: bool) -> NoReturn:
    print_error(error, as_json=as_json)
    sys.exit(exit_code(error))


if __name__ == "__main__":
    main()
