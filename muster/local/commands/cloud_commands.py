"""The embedded cloud: AWS on this machine, for a run without an account."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, signature
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from muster.contract.spec.places import HOME
from muster.local.cloud_errors import CommandNotFoundError, NotRunningError
from muster.local.cloud_settings import Settings
from muster.local.cloud_state import StateDirectory
from muster.local.commands.command_answers import (
    DEFAULT,
    CloudDown,
    CloudUp,
    CloudVariables,
    JsonOption,
    ShellStateOption,
    StateOption,
    busy,
    field_option,
    print_either,
    with_parameters,
)
from muster.local.commands.shell_cloud import cloud_of_shell
from muster.local.local_cloud import LocalCloud, stop
from muster.local.process_environment import client_environment, client_variables, shell_lines, variables_to_unset
from muster.local.service.option_services import option_services
from muster.options import offers

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Start, use and stop the embedded cloud: an emulation of AWS on this machine.",
)
_Model = TypeVar("_Model", bound=BaseModel)
_services = option_services()
# The settings that are options of `up`, with the options' names.
_SETTINGS = {
    "port": "port",
    "region": "region",
    "account_id": "account",
    "phase_seconds": "phase_seconds",
    "stop_grace_seconds": "stop_grace_seconds",
}
_HOW_TO_USE = """
Use it with `eval "$(muster local env)"` or `muster local exec -- COMMAND`; stop it with `muster local down`."""


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """`up` with the options of the settings, and of the services that options add, before those of every command."""
    *own, as_json, state, _ = signature(command, eval_str=True).parameters.values()
    own += _options_of(Settings, _SETTINGS)
    for service in _services.values():
        flag = typer.Option(f"--{service.name}", help=service.help)
        own.append(Parameter(service.name, Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, flag]))
        own += _options_of(service.settings, service.options, f"With --{service.name}: ")
    return with_parameters(command, [*own, as_json, state])


def _options_of(model: type[BaseModel], options: Mapping[str, str], condition: str = "") -> Iterator[Parameter]:
    return (field_option(name, model.model_fields[field], condition) for field, name in options.items())


@app.command()
@_with_settings
def up(
    *,
    detach: Annotated[
        bool, typer.Option("--detach/--foreground", help="Run in the background, or until Ctrl-C.")
    ] = True,
    code: Annotated[
        list[Path] | None,
        typer.Option(exists=True, file_okay=False, resolve_path=True, help="Directory on the jobs' PYTHONPATH."),
    ] = None,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT,
    **values: object,
) -> None:
    """Start the embedded cloud."""
    further = {"services": _asked(values), "code": tuple(code or ()), "end_with_parent": not detach}
    settings = _read(Settings, _SETTINGS, values, further)
    with busy("Starting the embedded cloud"):
        cloud = LocalCloud.start(state, settings)
    if detach:
        _say_up(cloud, _HOW_TO_USE, as_json=as_json)
    else:
        _stay(cloud, as_json=as_json)


@app.command()
def down(as_json: JsonOption = False, state: StateOption = DEFAULT) -> None:
    """Stop the embedded cloud and every job on it, or remove the state of one that has died."""
    directory = StateDirectory.at(state)
    running = directory.read()
    with busy("Stopping the embedded cloud"):
        stop(directory, running)
    _say_down(running.endpoint, as_json=as_json)


@app.command()
def status(as_json: JsonOption = False, state: ShellStateOption = None) -> None:
    """Show whether the embedded cloud runs, and its jobs. Exit code 3 when it does not run."""
    up = CloudUp.of(cloud_of_shell(state))
    jobs = ", ".join(up.cluster_jobs) or "none"
    lines = [
        f"The embedded cloud runs at {up.endpoint} (process {up.pid}, region {up.region}).",
        *(f"Its place {name} has the endpoint {endpoint}." for name, endpoint in up.places.items()),
        f"Running training jobs: {', '.join(up.running_jobs) or 'none'}",
        *(f"Running jobs on the HyperPod cluster {cluster.name}: {jobs}" for cluster in up.clusters),
    ]
    print_either(up, lines, as_json=as_json)


_PlaceOption = Annotated[str, typer.Option(help="Name of the place in which the command runs.")]


@app.command()
def env(place: _PlaceOption = HOME, as_json: JsonOption = False, state: StateOption = DEFAULT) -> None:
    """Print the lines that make a shell use the embedded cloud: eval "$(muster local env)"."""
    running = StateDirectory.at(state).read().at(place)
    variables, unset = client_variables(running, os.environ), tuple(variables_to_unset(os.environ, running))
    print_either(CloudVariables(set=variables, unset=unset), shell_lines(running, os.environ), as_json=as_json)


@app.command(name="exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def execute(
    command: Annotated[list[str], typer.Argument(help="Program and arguments.")],
    place: _PlaceOption = HOME,
    state: StateOption = DEFAULT,
) -> None:
    """Run a command that can reach only the embedded cloud: muster local exec -- aws s3 ls."""
    environment = client_environment(LocalCloud.attach(state).at(place).state, os.environ)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - the user's own command
    except FileNotFoundError as error:
        raise CommandNotFoundError(command[0]) from error


def _asked(values: Mapping[str, object]) -> dict[str, BaseModel]:
    """The settings of the services whose flags are set."""
    return {
        name: _read(service.settings, service.options, values) for name, service in _services.items() if values[name]
    }


def _read(
    model: type[_Model],
    options: Mapping[str, str],
    values: Mapping[str, object],
    further: Mapping[str, object] = MappingProxyType({}),
) -> _Model:
    """Settings from the values of their `options`, and `further` ones.

    Raises:
        typer.BadParameter: a value is not allowed; names its option.
    """
    try:
        return model.model_validate({**{field: values[name] for field, name in options.items()}, **further})
    except ValidationError as error:
        problem = error.errors()[0]
        names = [options[field] for field in map(str, problem["loc"][:1]) if field in options]
        hint = [f"--{name.replace('_', '-')}" for name in names]
        raise typer.BadParameter(problem["msg"].removeprefix("Value error, "), param_hint=hint or None) from error


def _say_up(cloud: LocalCloud, how: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(CloudUp.of(cloud).to_line())  # what it says is asked of the cloud
    else:
        typer.echo(f"The embedded cloud runs at {cloud.endpoint} (state in {cloud.directory.root}).{how}")


def _say_down(endpoint: str, *, as_json: bool) -> None:
    line = f"The embedded cloud at {endpoint} has stopped."
    print_either(CloudDown(endpoint=endpoint), [line], as_json=as_json)


def _stay(cloud: LocalCloud, *, as_json: bool) -> None:
    """Wait for Ctrl-C, SIGTERM or the end of the service."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        _say_up(cloud, " Ctrl-C stops it.", as_json=as_json)
        cloud.wait()
    except KeyboardInterrupt:
        cloud.stop()
        _say_down(cloud.endpoint, as_json=as_json)
    else:
        raise NotRunningError(cloud.directory.root)


for _offered in offers("local.commands", typer.Typer):
    app.add_typer(_offered)
