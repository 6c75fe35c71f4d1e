"""What each command of `muster` does. Heavy imports wait inside the functions, for the sake of `muster --help`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from muster.client.aws.deployed_stack import DEFAULT_STACK
from muster.client.cli.exit_codes import ExitCode
from muster.client.cli.output import after_interrupt, busy, print_answer, visible
from muster.client.errors import OptionError, ReportFileError, SpecExistsError, SpecFileError, SpecWriteError, os_reason

if TYPE_CHECKING:
    from rich.console import Console

    from muster.client.runs.run_status import RunState, RunStatus
    from muster.client.sdk import Muster, Run
    from muster.contract.spec.spec import Spec


def _run_names(context: typer.Context, incomplete: str) -> list[str]:
    from muster.client.cli.completion import run_names  # noqa: PLC0415

    return run_names(context.params, incomplete)


SpecPath = Annotated[str, typer.Argument(metavar="SPEC", help="A YAML or JSON file; - reads standard input.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's name.", autocompletion=_run_names)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Stay until the run ends.")]
Deployed = Annotated[
    bool, typer.Option("--deployed", help="Ask the stack for its defaults and AWS for prices; nothing is called else.")
]
StackName = Annotated[str, typer.Option("--stack", envvar="MUSTER_STACK", help="CloudFormation stack.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65_535, help="On this machine alone; 0 takes a free one.")]
Profile = Annotated[str | None, typer.Option("--profile", help="AWS profile; default as the AWS CLI.")]
Region = Annotated[
    str | None, typer.Option("--region", envvar="AWS_REGION", help="AWS region; default as the AWS CLI.")
]


def plan(
    spec: SpecPath,
    *,
    deployed: Deployed = False,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Show the requests that a spec would send, the quota it needs and what it may cost. Creates nothing."""
    from muster.client.cli.dry_run_text import dry_run_text  # noqa: PLC0415
    from muster.client.launch.dry_run import dry_run  # noqa: PLC0415

    checked = _read_spec(spec)
    with busy("Asking the stack and the price list" if deployed else "Making the requests"):
        dry = _muster(stack, profile, region).plan(checked) if deployed else dry_run(checked)
    if json:
        print_answer(dry.document())
    else:
        _console().print(dry_run_text(dry), soft_wrap=True, markup=False, highlight=False)


def launch(
    spec: SpecPath,
    *,
    name: Annotated[str | None, typer.Option("--name", help="The run's name; else the spec's, or a new one.")] = None,
    watch: Watch = False,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Start a run."""
    from muster.client.cli.answers import Started  # noqa: PLC0415

    checked = _read_spec(spec, name)
    with busy("Starting the run"):
        run = _muster(stack, profile, region).launch(checked)
    if watch:
        _watch(run, json)
    elif json:
        print_answer(Started(run=run.name))
    else:
        typer.echo(f"Started {run.name}: watch it with `muster status {run.name} --watch`.")


def status(
    run: RunName,
    *,
    watch: Watch = False,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Show where a run stands."""
    named = _muster(stack, profile, region).run(run)
    if watch:
        _watch(named, json)
        return
    with busy("Looking at the run"):
        now = named.status()
    if json:
        print_answer(now)
    else:
        _show(now)
    _exit_with(now.state)


def result(
    run: RunName,
    *,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Show what came of a run that has ended."""
    from muster.client.cli.result_text import result_lines  # noqa: PLC0415
    from muster.contract.run.result import Verdict  # noqa: PLC0415

    with busy("Looking at the run"):
        settled = _muster(stack, profile, region).run(run).result()
    if json:
        print_answer(settled)
    else:
        for line in result_lines(settled):
            typer.echo(visible(line))
    if settled.verdict is not Verdict.SUCCEEDED:
        raise typer.Exit(ExitCode.RUN_FAILED)


def report(
    run: RunName,
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file; RUN.html here if none is named.")] = None,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Write a run's page: one HTML file with everything in it."""
    from muster.client.cli.answers import PageWritten  # noqa: PLC0415

    with busy("Making the page"):
        body = _muster(stack, profile, region).run(run).report()
    path = out or Path(f"{run}.html")
    try:
        path.write_bytes(body)
    except OSError as error:
        raise ReportFileError(str(path), os_reason(error)) from error
    if json:
        print_answer(PageWritten(run=run, file=str(path), bytes=len(body)))
    else:
        typer.echo(f"Written to {path}: open it in a browser.")


def ui(
    run: RunName,
    *,
    port: Port = 0,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Serve a run's page on this machine, and keep it up to date until Ctrl-C."""
    from muster.client.cli.answers import PageServed  # noqa: PLC0415
    from muster.client.cli.page_server import PageServer  # noqa: PLC0415

    with busy("Making the page"):
        source = _muster(stack, profile, region).run(run).live_page()
        source.look()
    with PageServer(source, port) as server:
        try:
            if json:
                print_answer(PageServed(run=run, url=server.url))
            else:
                typer.echo(f"{run}: {server.url} (Ctrl-C ends the page, not the run)")
            server.serve_forever()
        except KeyboardInterrupt:
            after_interrupt()


def cancel(
    run: RunName,
    *,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Stop a run and its jobs."""
    from muster.client.cli.answers import Cancelled  # noqa: PLC0415

    with busy("Stopping the run"):
        cancelled = _muster(stack, profile, region).run(run).cancel()
    if json:
        print_answer(Cancelled(run=run, cancelled=cancelled))
    elif cancelled:
        typer.echo(f"Cancelled {run}: its jobs are being stopped. See `muster status {run}`.")
    else:
        typer.echo(f"{run} has ended already; there is nothing to cancel.")


def doctor(
    *,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Show jobs that have outlived their run. Stops nothing."""
    from muster.client.cli.answers import Strays  # noqa: PLC0415

    with busy("Looking at every job that runs"):
        found = _muster(stack, profile, region).doctor()
    if json:
        print_answer(Strays(orphans=found.orphans, foreign=found.foreign))
        return
    for job in found.orphans:
        typer.echo(f"{job}: its run has no running execution; the stack's next sweep stops it")
    for job in found.foreign:
        typer.echo(f"{job}: has a name of Muster's and was made by somebody else; it is left alone")
    if not (found.orphans or found.foreign):
        typer.echo("Nothing has outlived its run.")


def list_(
    *,
    state: Annotated[
        str | None, typer.Option("--state", help="Only running, succeeded, failed or stopped ones.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 50,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Show the runs of the stack, the newest first."""
    from muster.client.cli.answers import Runs  # noqa: PLC0415
    from muster.client.runs.run_list import summary_lines  # noqa: PLC0415

    wanted = None if state is None else _state(state)
    with busy("Asking for the runs"):
        found = _muster(stack, profile, region).list(wanted, limit)
    if json:
        print_answer(Runs(runs=tuple(found)))
        return
    for line in summary_lines(found):
        typer.echo(line)


def logs(
    run: RunName,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the run ends.")] = False,
    rank: Annotated[str | None, typer.Option("--rank", "-r", help="Only these ranks: 3, 0-3 or 0,2,8-11.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="From here on: 10m, 2h, 3d or an ISO time.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Up to here, likewise.")] = None,
    regex: Annotated[str | None, typer.Option("--regex", help="Only lines in which this is found.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=1, help="Only the last so many of these.")] = None,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Show what the replicas have written, merged in time order."""
    from muster.client.cli.log_options import read_moment, read_ranks, read_regex  # noqa: PLC0415
    from muster.client.cli.log_text import printer  # noqa: PLC0415

    named = _muster(stack, profile, region).run(run)
    lines = named.logs(
        None if rank is None else read_ranks(rank),
        follow=follow,
        since=None if since is None else read_moment("--since", since),
        until=None if until is None else read_moment("--until", until),
        regex=None if regex is None else read_regex(regex, "--regex").pattern,
        tail=tail,
    )
    show = printer(as_json=json)
    try:
        for line in lines:
            show(line)
    except KeyboardInterrupt:
        after_interrupt()
        _leave(named)


def events(
    run: RunName,
    *,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Show what has happened to a run, oldest first."""
    from muster.client.cli.answers import EventLog  # noqa: PLC0415
    from muster.client.runs.event_log import event_line  # noqa: PLC0415

    with busy("Looking at the run"):
        told = _muster(stack, profile, region).run(run).events()
    if json:
        print_answer(EventLog(run=run, events=tuple(told)))
        return
    for event in told:
        typer.echo(visible(event_line(event)))


def rerun(
    run: RunName,
    *,
    watch: Watch = False,
    json: Json = False,
    stack: StackName = DEFAULT_STACK,
    profile: Profile = None,
    region: Region = None,
) -> None:
    """Let a run that has ended go on as another one, from its last committed round."""
    from muster.client.cli.answers import GoesOn  # noqa: PLC0415

    with busy("Starting the run"):
        continued_by = _muster(stack, profile, region).run(run).rerun()
    if watch:
        _watch(continued_by, json)
    elif json:
        print_answer(GoesOn(run=continued_by.name, parent=run))
    else:
        typer.echo(f"{run} goes on as {continued_by.name}: watch it with `muster status {continued_by.name} --watch`.")


def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; - is standard output.")] = "run.yaml",
    *,
    trainer: Annotated[
        str, typer.Option("--trainer", metavar="MODULE:FUNCTION", help="What trains.")
    ] = "my_package.training:train",
    json: Json = False,
) -> None:
    """Write a spec to begin with: every field, with its default and what it means."""
    from muster.client.cli.answers import SpecWritten  # noqa: PLC0415
    from muster.client.cli.spec_template import spec_template  # noqa: PLC0415

    nowhere = file == "-"
    text = spec_template("run.yaml" if nowhere else file, trainer)
    if not nowhere:
        _write_new(file, text)
    if json:
        print_answer(SpecWritten(file=file, text=text if nowhere else None))
    elif nowhere:
        typer.echo(text, nl=False)
    else:
        typer.echo(f"Wrote {file}: fill it in, then check it with `muster plan {file}`.")


def _write_new(file: str, text: str) -> None:
    try:
        with Path(file).open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise SpecExistsError(file) from None
    except OSError as error:
        raise SpecWriteError(file, os_reason(error)) from error


def _state(text: str) -> RunState:
    from muster.client.runs.run_status import RunState  # noqa: PLC0415

    # A list knows a run by its execution, which cannot tell `stopping` from an end.
    known = [state for state in RunState if state is not RunState.STOPPING]
    if text not in known:
        raise OptionError(text, f"write one of {', '.join(known)}", option="--state")
    return RunState(text)


def _read_spec(path: str, name: str | None = None) -> Spec:
    from muster.contract.spec.spec_reader import parse_spec, parse_spec_text  # noqa: PLC0415

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SpecFileError(path, os_reason(error)) from error
    except UnicodeDecodeError as error:
        raise SpecFileError(path, "it is not UTF-8 text") from error
    spec = parse_spec_text(text)
    if name is not None:
        spec = parse_spec({**spec.model_dump(mode="json", exclude_unset=True), "name": name})
    if spec.source_dir is None or spec.delivered:
        return spec
    beside = Path() if path == "-" else Path(path).parent
    return spec.model_copy(update={"source_dir": str(beside / spec.source_dir)})


def _muster(stack: str, profile: str | None, region: str | None) -> Muster:
    from muster.client.sdk import Muster  # noqa: PLC0415

    return Muster(stack, profile=profile, region=region or None)


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415

    return Console()


def _show(now: RunStatus) -> None:
    from muster.client.cli.status_table import status_table  # noqa: PLC0415

    console = _console()
    console.print(status_table(now, console))


def _watch(run: Run, as_json: bool) -> None:
    """Until the run ends. Ctrl-C leaves the run alone."""
    from muster.client.cli.watch import json_lines, watching  # noqa: PLC0415

    try:
        if as_json:
            now = run.wait(progress=json_lines())
        else:
            with watching(_console()) as progress:
                now = run.wait(progress=progress)
    except KeyboardInterrupt:
        _leave(run)
    _exit_with(now.state)


def _leave(run: Run) -> NoReturn:
    typer.echo(f"The run {run.name} goes on. Cancel it with `muster cancel {run.name}`.", err=True)
    raise typer.Exit(ExitCode.INTERRUPTED) from None


def _exit_with(state: RunState) -> None:
    if state.is_terminal and state != "succeeded":
        raise typer.Exit(ExitCode.RUN_FAILED)
