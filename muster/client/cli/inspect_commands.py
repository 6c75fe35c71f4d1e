"""The commands that show runs, what they left, and training jobs without a run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from muster.client.aws.workflow_executions import LISTED_MAX
from muster.client.cli.exit_codes import ExitCode
from muster.client.cli.option_groups import FirstRun, Json, RunName, SecondRun, StackOptions, grouped
from muster.client.cli.output import busy, line_width, print_answer, print_either, print_lines, write_whole
from muster.client.cli.run_conditions import RunConditions
from muster.client.cli.run_table import list_lines
from muster.client.client_errors import ReportFileError, UnknownRunError, os_reason
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.run.ended_run import Verdict

_ON_PAGE_MAX = 1_000


@grouped
def list_(
    wanted: RunConditions,
    stack: StackOptions,
    *,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            max=1_000_000,
            help=f"Show at most this many runs; default {LISTED_MAX}, on a page {_ON_PAGE_MAX:,}.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with these runs instead: one HTML file.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the runs of the stack, the newest first."""
    most = limit or (LISTED_MAX if html is None else _ON_PAGE_MAX)
    conditions, muster = vars(wanted.read()), stack.muster()
    with busy("Asking for the runs"):
        # One more than is shown: it says whether there are more.
        found = muster.list(limit=most + 1, **conditions)
    shown, more = found[:most], len(found) > most
    if html is not None:
        body = muster.report(shown, more=more)
        _write(html, body)
        from muster.client.cli.json_answers import RunsPageWritten  # noqa: PLC0415

        answer = RunsPageWritten(file=str(html), bytes=len(body), runs=len(shown), more=more)
        print_either(answer, [f"Written to {html}: open it in a browser."], as_json=json)
    elif json:
        from muster.client.cli.json_answers import Runs  # noqa: PLC0415

        print_answer(Runs(runs=tuple(shown), more=more))
    else:
        print_lines(list_lines(shown, more=more, width=line_width()))


@grouped
def events(run: RunName, stack: StackOptions, *, json: Json = False) -> None:
    """Show the events of a run, oldest first."""
    from muster.client.cli.json_answers import EventLog  # noqa: PLC0415

    with busy("Reading the run"):
        entries = stack.muster().run(run).events()
    lines = (f"{entry.at}  {entry.text}" for entry in entries)
    print_either(EventLog(run=run, events=tuple(entries)), lines, as_json=json)


@grouped
def result(run: RunName, stack: StackOptions, *, json: Json = False) -> None:
    """Show the result of a run that has ended."""
    from muster.client.cli.plain_text import result_lines  # noqa: PLC0415

    with busy("Reading the run"):
        found, prices = stack.muster().run(run), SHIPPED_PRICES
        settled = found.result()
        with suppress(UnknownRunError):  # Step Functions forgets an execution 90 days after its end
            prices = found._cloud.executions.describe(found.name).prices
    print_either(settled, result_lines(settled, prices), as_json=json)
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
    from muster.client.cli.json_answers import PageWritten  # noqa: PLC0415

    with busy("Making the page"):
        body = stack.muster().run(run).report()
    path = out or Path(f"{run}.html")
    _write(path, body)
    answer = PageWritten(run=run, file=str(path), bytes=len(body))
    print_either(answer, [f"Written to {path}: open it in a browser."], as_json=json)


@grouped
def compare(a: FirstRun, b: SecondRun, stack: StackOptions, *, json: Json = False) -> None:
    """Compare two runs: specs, durations, costs, rates, reruns, and metrics by round."""
    from muster.client.cli.comparison_text import comparison_lines  # noqa: PLC0415

    with busy("Reading both runs"):
        found = stack.muster().compare(a, b)
    print_either(found, comparison_lines(found), as_json=json)


def _write(path: Path, page: bytes) -> None:
    try:
        write_whole(path, page)
    except OSError as error:
        raise ReportFileError(str(path), os_reason(error)) from error
