"""`muster verify`: prints each check as it is made, and cleans up after Ctrl-C."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from muster.client.cli.exit_codes import ExitCode
from muster.client.cli.option_groups import Json, StackOptions, grouped
from muster.client.cli.output import after_interrupt, busy, print_either, print_lines
from muster.client.cli.spec_file import read_spec

if TYPE_CHECKING:
    from muster.options.verify.client.check_outcomes import Check
    from muster.options.verify.client.verification import Verifier

_INSTANCE_TYPE = "ml.m5.large"


@grouped
def verify(
    stack: StackOptions,
    spec: Annotated[
        str | None, typer.Argument(metavar="SPEC", help="A spec whose quotas are checked; it is not run.")
    ] = None,
    *,
    instance_type: Annotated[
        str, typer.Option("--instance-type", help="For the two replicas of the run.")
    ] = _INSTANCE_TYPE,
    image: Annotated[
        str | None, typer.Option("--image", help="An image with Python for the run; default the stack's.")
    ] = None,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Start the run, which is what costs money.")] = True,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Check the stack, the account and what Muster assumes of AWS, with a run of two small replicas."""
    from muster.client.launch.expanded_spec import expanded_spec  # noqa: PLC0415
    from muster.options.verify.client.check_outcomes import summary_lines  # noqa: PLC0415
    from muster.options.verify.client.own_run import promise_line  # noqa: PLC0415
    from muster.options.verify.client.verification import Verifier  # noqa: PLC0415

    wanted = None if spec is None else expanded_spec(read_spec(spec).document, stack.account().session).spec
    with busy("Asking the stack and the price list"):
        verifier = Verifier(stack.muster(), run=run, instance_type=instance_type, image=image, spec=wanted)
    if verifier.promise is not None:
        typer.echo(promise_line(verifier.promise), err=json)
        if sys.stdin.isatty() and not (yes or json) and not typer.confirm("Start?", default=True):
            raise typer.Exit(ExitCode.INTERRUPTED)
    checks: list[Check] = []
    interrupted = _collect(verifier, checks, quiet=json)
    document = verifier.document(checks)
    print_either(document, summary_lines(document), as_json=json)
    if interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not document.passed:
        raise typer.Exit(ExitCode.RUN_FAILED)


def _collect(verifier: Verifier, checks: list[Check], *, quiet: bool) -> bool:
    """Make every check and print it, unless `quiet`; whether Ctrl-C ended them. What was started is cleaned up."""
    from rich.console import Console  # noqa: PLC0415

    from muster.options.verify.client.check_outcomes import check_lines  # noqa: PLC0415

    # On standard error, if that is a terminal; it makes room for lines on standard output.
    with Console(stderr=True).status("") as doing:

        def announce(what: str) -> None:
            doing.update(f"{what} …")

        def add(check: Check) -> None:
            checks.append(check)
            if not quiet:
                doing.stop()
                print_lines(check_lines(check))
                sys.stdout.flush()
                doing.start()

        try:
            for check in verifier.checks(announce):
                add(check)
        except KeyboardInterrupt:
            after_interrupt()
            for check in verifier.clean_up(announce):
                add(check)
            return True
    return False
