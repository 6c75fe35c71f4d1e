"""`muster faults`: faults on demand, on the embedded cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import Parameter
from pathlib import Path
from typing import Annotated, get_args

import typer
from pydantic import ValidationError

from muster.local.commands.command_answers import (
    FaultList,
    FaultsCleared,
    JsonOption,
    ShellStateOption,
    field_option,
    print_either,
    with_parameters,
)
from muster.local.commands.shell_cloud import cloud_of_shell
from muster.local.faults import FAULT, Fault, FaultBase, FaultReport, RateLimit, throttled

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Inject faults into the embedded cloud.")


@app.command(name="list")
def list_faults(as_json: JsonOption = False, state: ShellStateOption = None) -> None:
    """List the faults and how often each fired."""
    reports = cloud_of_shell(state).faults.list()
    print_either(FaultList(faults=tuple(reports)), [*map(_line, reports)] or ["No faults."], as_json=as_json)


@app.command()
def clear(
    identifier: Annotated[
        int | None, typer.Argument(metavar="NUMBER", help="Number of one fault; all without it.")
    ] = None,
    *,
    as_json: JsonOption = False,
    state: ShellStateOption = None,
) -> None:
    """Remove faults."""
    faults = cloud_of_shell(state).faults
    if identifier is None:
        cleared = tuple(report.id for report in faults.list())
        faults.clear()
    else:
        cleared = (identifier,)
        faults.remove(identifier)
    line = f"Removed: {', '.join(map(str, cleared)) or 'nothing'}."
    print_either(FaultsCleared(cleared=cleared), [line], as_json=as_json)


@app.command()
def throttle(
    *,
    operation: Annotated[str, typer.Argument(help="Operation name, or a glob.")] = "*",
    service: Annotated[str, typer.Option(help="Signing name of the service.")] = "sagemaker",
    count: Annotated[int | None, typer.Option(min=1, help="Throttle the next calls.")] = None,
    per_second: Annotated[float | None, typer.Option(min=0.01, help="Throttle all calls above this rate.")] = None,
    burst: Annotated[int, typer.Option(min=1, help="Calls at once before the rate applies.")] = 1,
    as_json: JsonOption = False,
    state: ShellStateOption = None,
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


def _command(model: type[FaultBase]) -> Callable[..., None]:
    """The function of the command that adds a fault of `model`."""
    kind = str(model.model_fields["kind"].default)

    def command(*, as_json: bool, state: Path | None, **fields: object) -> None:
        _add(state, as_json, kind=kind, **fields)

    command.__doc__ = model.__doc__
    return with_parameters(command, list(_parameters(model)))


def _parameters(model: type[FaultBase]) -> Iterator[Parameter]:
    fields, arguments = model.model_fields, model.arguments
    for name in arguments:
        argument = typer.Argument(help=fields[name].description)
        yield Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[fields[name].annotation, argument])
    # The options of the model itself first, then those of every fault.
    for name in sorted(fields.keys() - {*arguments, "kind"}, key=lambda name: (name == "count", [*fields].index(name))):
        yield field_option(name, fields[name])
    yield Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=JsonOption)
    yield Parameter("state", Parameter.KEYWORD_ONLY, default=None, annotation=ShellStateOption)


def _add(state: Path | None, as_json: bool, **fields: object) -> None:
    try:
        fault: Fault = FAULT.validate_python(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        raise typer.BadParameter(f"{problem['loc'][-1]}: {problem['msg']}") from error  # noqa: EM102
    _ask(state, as_json, fault)


def _ask(state: Path | None, as_json: bool, fault: Fault) -> None:
    faults = cloud_of_shell(state).faults
    placed = faults.add(fault)
    report = next(report for report in faults.list() if report.id == placed.id)
    print_either(FaultList(faults=(report,)), [_line(report)], as_json=as_json)


def _line(report: FaultReport) -> str:
    fields = report.fault.model_dump(exclude={"kind", "count"}, exclude_defaults=True)
    described = " ".join(f"{name}={value}" for name, value in fields.items())
    count = report.fault.count or "unlimited"
    return f"{report.id}  {report.fault.kind}  {described}  fired {report.fired} of {count}"


# `throttle` adds a rate limit, too.
for _model in get_args(get_args(Fault)[0]):
    if _model is not RateLimit:
        app.command(name=str(_model.model_fields["kind"].default))(_command(_model))
