"""`muster faults`: faults on demand, on the embedded cloud."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from muster.local.commands.command_answers import (
    DEFAULT,
    FaultList,
    FaultsCleared,
    JsonOption,
    StateOption,
    print_answer,
)
from muster.local.faults import FAULT, Fault, FaultReport, throttled
from muster.local.local_cloud import LocalCloud

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Faults on demand, on the embedded cloud.")

Job = Annotated[str, typer.Argument(help="Training job name, or a glob.")]
Count = Annotated[int, typer.Option(min=1, help="How often it fires.")]
After = Annotated[float, typer.Option(min=0, help="Seconds after the job's process started.")]


@app.command(name="list")
def list_faults(as_json: JsonOption = False, state: StateOption = DEFAULT) -> None:
    """List the faults and how often each fired."""
    reports = LocalCloud.attach(state).faults.list()
    if as_json:
        print_answer(FaultList(faults=tuple(reports)))
        return
    for report in reports:
        typer.echo(_line(report))
    if not reports:
        typer.echo("No faults.")


@app.command()
def clear(
    identifier: Annotated[
        int | None, typer.Argument(metavar="NUMBER", help="Number of one fault; all without it.")
    ] = None,
    *,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT,
) -> None:
    """Remove faults."""
    faults = LocalCloud.attach(state).faults
    if identifier is None:
        cleared = tuple(report.id for report in faults.list())
        faults.clear()
    else:
        cleared = (identifier,)
        faults.remove(identifier)
    if as_json:
        print_answer(FaultsCleared(cleared=cleared))
    else:
        typer.echo(f"Removed: {', '.join(map(str, cleared)) or 'nothing'}.")


@app.command(name="spot-interruption")
def spot_interruption(
    job: Job,
    *,
    after_seconds: After = 0,
    count: Count = 1,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT,
) -> None:
    """Interrupt a managed spot job: SIGTERM, Interrupted, Restarting, the same job in a new process."""
    _add(state, as_json, kind="spot-interruption", job=job, after_seconds=after_seconds, count=count)


@app.command(name="lost-instance")
def lost_instance(
    job: Job,
    *,
    after_seconds: After = 0,
    count: Count = 1,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT,
) -> None:
    """Lose a job's instance: InternalServerError, or a restart while its RetryStrategy allows one."""
    _add(state, as_json, kind="lost-instance", job=job, after_seconds=after_seconds, count=count)


@app.command()
def crash(
    job: Job,
    *,
    after_seconds: After = 0,
    exit_code: Annotated[int, typer.Option(min=1, max=255, help="Exit code of the process.")] = 1,
    count: Count = 1,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT,
) -> None:
    """End a job's process with an exit code."""
    _add(state, as_json, kind="crash", job=job, after_seconds=after_seconds, exit_code=exit_code, count=count)


@app.command(name="capacity-error")
def capacity_error(job: Job, *, count: Count = 1, as_json: JsonOption = False, state: StateOption = DEFAULT) -> None:
    """Fail a job for lack of capacity, before it trains."""
    _add(state, as_json, kind="capacity-error", job=job, count=count)


@app.command(name="quota-error")
def quota_error(job: Job, *, count: Count = 1, as_json: JsonOption = False, state: StateOption = DEFAULT) -> None:
    """Refuse CreateTrainingJob with ResourceLimitExceeded."""
    _add(state, as_json, kind="quota-error", job=job, count=count)


@app.command(name="slow-start")
def slow_start(
    job: Job,
    *,
    seconds: Annotated[float, typer.Option(min=0.01, help="How much longer it stays in Starting.")] = 10.0,
    count: Count = 1,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT,
) -> None:
    """Keep a job longer in Starting."""
    _add(state, as_json, kind="slow-start", job=job, seconds=seconds, count=count)


@app.command()
def throttle(
    *,
    operation: Annotated[str, typer.Argument(help="Operation name, or a glob.")] = "*",
    service: Annotated[str, typer.Option(help="Signing name of the service.")] = "sagemaker",
    count: Annotated[int | None, typer.Option(min=1, help="Throttle the next calls.")] = None,
    per_second: Annotated[float | None, typer.Option(min=0.01, help="Throttle all calls above this rate.")] = None,
    burst: Annotated[int, typer.Option(min=1, help="Calls at once before the rate applies.")] = 1,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT,
) -> None:
    """Throttle the next --count calls, or everything above --per-second."""
    if (count is None) == (per_second is None):
        message = "give either --count or --per-second"
        raise typer.BadParameter(message)
    if per_second is not None:
        _add(
            state, as_json, kind="rate-limit", service=service, operation=operation, per_second=per_second, burst=burst
        )
    else:
        _ask(state, as_json, throttled(service, operation, count))


@app.command(name="call-error")
def call_error(
    *,
    service: Annotated[str, typer.Argument(help="Signing name: s3, states, lambda, events, sagemaker.")],
    operation: Annotated[str, typer.Argument(help="Operation name, or a glob.")],
    resource: Annotated[str, typer.Option(help="Glob over bucket/key, path or names in the request.")] = "*",
    caller: Annotated[str, typer.Option(help="Glob over the caller's role.")] = "*",
    code: Annotated[str, typer.Option(help="AWS error code.")] = "InternalFailure",
    status: Annotated[int, typer.Option(min=400, max=599, help="HTTP status.")] = 500,
    after_effect: Annotated[bool, typer.Option(help="Execute the call, lose its answer.")] = False,
    disconnect: Annotated[bool, typer.Option(help="Close the connection instead of answering.")] = False,
    count: Count = 1,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT,
) -> None:
    """Fail calls of any service, before their effect or after it."""
    _add(
        state,
        as_json,
        kind="call-error",
        service=service,
        operation=operation,
        resource=resource,
        caller=caller,
        code=code,
        status=status,
        after_effect=after_effect,
        disconnect=disconnect,
        count=count,
    )


@app.command()
def event(
    *,
    action: Annotated[str, typer.Argument(help="drop, duplicate, delay or reorder.")],
    job: Job,
    status: Annotated[str, typer.Option(help="Glob over status or secondary status.")] = "*",
    seconds: Annotated[float, typer.Option(min=0.01, help="Delay; for reorder the longest wait.")] = 1.0,
    copies: Annotated[int, typer.Option(min=2, help="How often a duplicate is sent in all.")] = 2,
    count: Count = 1,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT,
) -> None:
    """Drop, duplicate, delay or reorder a job's state-change events."""
    _add(
        state, as_json, kind="event", action=action, job=job, status=status, seconds=seconds, copies=copies, count=count
    )


def _add(state: Path, as_json: bool, **fields: object) -> None:
    try:
        fault: Fault = FAULT.validate_python(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        raise typer.BadParameter(f"{problem['loc'][-1]}: {problem['msg']}") from error  # noqa: EM102
    _ask(state, as_json, fault)


def _ask(state: Path, as_json: bool, fault: Fault) -> None:
    faults = LocalCloud.attach(state).faults
    placed = faults.add(fault)
    report = next(report for report in faults.list() if report.id == placed.id)
    if as_json:
        print_answer(FaultList(faults=(report,)))
    else:
        typer.echo(_line(report))


def _line(report: FaultReport) -> str:
    fields = report.fault.model_dump(exclude={"kind", "count"}, exclude_defaults=True)
    described = " ".join(f"{name}={value}" for name, value in fields.items())
    count = report.fault.count or "unlimited"
    return f"{report.id}  {report.fault.kind}  {described}  fired {report.fired} of {count}"
