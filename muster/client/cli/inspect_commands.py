"""The commands that show runs, what they left, and training jobs without a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from muster.client.aws.workflow_executions import LISTED_MAX
from muster.client.cli.exit_codes import ExitCode
from muster.client.cli.option_groups import Json, RunName, StackOptions, grouped
from muster.client.cli.output import busy, print_answer, print_lines
from muster.client.cli.plain_text import diagnosis_lines, event_line, result_lines, summary_lines
from muster.client.errors import OptionError, ReportFileError, os_reason
from muster.client.runs.run_status import RunState
from muster.contract.run.result import Verdict


@grouped
def list_(
    stack: StackOptions,
    *,
    state: Annotated[
        str | None, typer.Option("--state", help="Only running, succeeded, failed or stopped runs.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most this many runs.")] = LISTED_MAX,
    json: Json = False,
) -> None:
    """Show the runs of the stack, the newest first."""
    wanted = None if state is None else _state(state)
    with busy("Asking for the runs"):
        found = stack.muster().list(wanted, limit)
    if json:
        from muster.client.cli.json_answers import Runs  # noqa: PLC0415

        print_answer(Runs(runs=tuple(found)))
    else:
        print_lines(summary_lines(found))


@grouped
def events(run: RunName, stack: StackOptions, *, json: Json = False) -> None:
    """Show the events of a run, oldest first."""
    with busy("Reading the run"):
        entries = stack.muster().run(run).events()
    if json:
        from muster.client.cli.json_answers import EventLog  # noqa: PLC0415

        print_answer(EventLog(run=run, events=tuple(entries)))
    else:
        print_lines(map(event_line, entries))


@grouped
def result(run: RunName, stack: StackOptions, *, json: Json = False) -> None:
    """Show the result of a run that has ended."""
    with busy("Reading the run"):
        settled = stack.muster().run(run).result()
    if json:
        print_answer(settled)
    else:
        print_lines(result_lines(settled))
    if settled.verdict is not Verdict.SUCCEEDED:
        raise typer.Exit(ExitCode.RUN_FAILED)


@grouped
def report(
    run: RunName,
    stack: StackOptions,
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file; default RUN.html here.")] = None,
    json: Json = False,
) -> None:
    """Write a run's page: one HTML file with everything in it."""
    with busy("Making the page"):
        body = stack.muster().run(run).report()
    path = out or Path(f"{run}.html")
    try:
        path.write_bytes(body)
    except OSError as error:
        raise ReportFileError(str(path), os_reason(error)) from error
    if json:
        from muster.client.cli.json_answers import PageWritten  # noqa: PLC0415

        print_answer(PageWritten(run=run, file=str(path), bytes=len(body)))
    else:
        typer.echo(f"Written to {path}: open it in a browser.")


@grouped
def doctor(stack: StackOptions, *, json: Json = False) -> None:
    """Show orphans: training jobs without a run. Stops nothing."""
    with busy("Reading all running jobs"):
        found = stack.muster().doctor()
    if json:
        print_answer(found)
    else:
        print_lines(diagnosis_lines(found))


def _state(text: str) -> RunState:
    # The list knows a run by its execution, which does not distinguish `stopping` from an end.
    known = [state for state in RunState if state is not RunState.STOPPING]
    if text not in known:
        raise OptionError(text, f"write one of {', '.join(known)}", option="--state")
    return RunState(text)
