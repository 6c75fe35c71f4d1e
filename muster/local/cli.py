"""The embedded cloud: AWS on this machine, for a run without an account."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from muster.local.answers import CloudDown, CloudUp, CloudVariables
from muster.local.cloud import LocalCloud, stop
from muster.local.console import DEFAULT, JsonOption, StateOption, busy, print_answer
from muster.local.environment import client_environment, client_variables, shell_lines, variables_to_unset
from muster.local.errors import CommandNotFoundError, NotRunningError
from muster.local.settings import DEFAULT_ACCOUNT_ID, DEFAULT_PORT, DEFAULT_REGION, Settings
from muster.local.state import StateDirectory

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The embedded cloud: AWS on this machine.")
_defaults = Settings()
_HOW_TO_USE = """
Use it with `eval "$(muster local env)"` or `muster local exec -- COMMAND`; end it with `muster local down`."""


@app.command()
def up(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = DEFAULT_PORT,
    detach: Annotated[bool, typer.Option("--detach/--foreground", help="Return at once, or stay until Ctrl-C.")] = True,
    code: Annotated[
        list[Path] | None,
        typer.Option(exists=True, file_okay=False, resolve_path=True, help="Directory in the image's PYTHONPATH."),
    ] = None,
    region: Annotated[str, typer.Option(help="Region that the cloud plays.")] = DEFAULT_REGION,
    account: Annotated[str, typer.Option(help="Account number, 12 digits.")] = DEFAULT_ACCOUNT_ID,
    phase_seconds: Annotated[float, typer.Option(min=0, help="How long a job is Starting.")] = _defaults.phase_seconds,
    stop_grace_seconds: Annotated[
        float, typer.Option(min=0.1, help="From SIGTERM to SIGKILL.")
    ] = _defaults.stop_grace_seconds,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT,
) -> None:
    """Start the embedded cloud."""
    settings = _settings(
        port=port,
        code=tuple(code or ()),
        region=region,
        account_id=account,
        phase_seconds=phase_seconds,
        stop_grace_seconds=stop_grace_seconds,
        end_with_parent=not detach,
    )
    with busy("Starting the embedded cloud"):
        cloud = LocalCloud.start(state, settings)
    if detach:
        _say_up(cloud, _HOW_TO_USE, as_json=as_json)
    else:
        _stay(cloud, as_json=as_json)


@app.command()
def down(as_json: JsonOption = False, state: StateOption = DEFAULT) -> None:
    """Stop the embedded cloud and every job on it; a dead one is cleared away."""
    directory = StateDirectory.at(state)
    running = directory.read()
    with busy("Stopping the embedded cloud"):
        stop(directory, running)
    _say_down(running.endpoint, as_json=as_json)


@app.command()
def status(as_json: JsonOption = False, state: StateOption = DEFAULT) -> None:
    """Say whether the embedded cloud runs, and what runs on it. Exit code 3 when it does not."""
    up = CloudUp.of(LocalCloud.attach(state))
    if as_json:
        print_answer(up)
        return
    typer.echo(f"The embedded cloud runs at {up.endpoint} (process {up.pid}, region {up.region}).")
    typer.echo(f"Training jobs that run: {', '.join(up.running_jobs) or 'none'}")


@app.command()
def env(as_json: JsonOption = False, state: StateOption = DEFAULT) -> None:
    """Print lines that turn a shell towards the embedded cloud: eval "$(muster local env)"."""
    running = StateDirectory.at(state).read()
    if as_json:
        unset = tuple(variables_to_unset(os.environ, running))
        print_answer(CloudVariables(set=client_variables(running, os.environ), unset=unset))
        return
    for line in shell_lines(running, os.environ):
        typer.echo(line)


@app.command(name="exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def execute(
    command: Annotated[list[str], typer.Argument(help="Program and arguments.")], state: StateOption = DEFAULT
) -> None:
    """Run a command that reaches the embedded cloud and nothing else: muster local exec -- aws s3 ls."""
    environment = client_environment(LocalCloud.attach(state).state, os.environ)
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - the user's own command
    except FileNotFoundError as error:
        raise CommandNotFoundError(command[0]) from error


def _settings(**values: object) -> Settings:
    """Settings from options; a bad one is the user's mistake, told by name.

    Raises:
        typer.BadParameter: a value that is not allowed.
    """
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        raise typer.BadParameter(f"{problem['loc'][0]}: {problem['msg']}") from error  # noqa: EM102


def _say_up(cloud: LocalCloud, how: str, *, as_json: bool) -> None:
    if as_json:
        print_answer(CloudUp.of(cloud))
    else:
        typer.echo(f"The embedded cloud runs at {cloud.endpoint} (state in {cloud.directory.root}).{how}")


def _say_down(endpoint: str, *, as_json: bool) -> None:
    if as_json:
        print_answer(CloudDown(endpoint=endpoint))
    else:
        typer.echo(f"The embedded cloud at {endpoint} is down.")


def _stay(cloud: LocalCloud, *, as_json: bool) -> None:
    """Until Ctrl-C, SIGTERM or the service's own end."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        _say_up(cloud, " Ctrl-C ends it.", as_json=as_json)
        cloud.wait()
    except KeyboardInterrupt:
        cloud.stop()
        _say_down(cloud.endpoint, as_json=as_json)
    else:
        raise NotRunningError(cloud.directory.root)
