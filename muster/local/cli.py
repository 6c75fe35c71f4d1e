"""The embedded cloud: AWS on this machine, for a run without an account."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from muster.local.cloud import LocalCloud, stop
from muster.local.console import DEFAULT, StateOption, one_line_errors
from muster.local.environment import client_environment, shell_lines
from muster.local.errors import CommandNotFoundError, NotRunningError
from muster.local.settings import DEFAULT_ACCOUNT_ID, DEFAULT_PORT, DEFAULT_REGION, Settings
from muster.local.state import StateDirectory

app = typer.Typer(no_args_is_help=True, help="The embedded cloud: AWS on this machine.")
_defaults = Settings()


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
    with one_line_errors():
        cloud = LocalCloud.start(state, settings)
        if detach:
            typer.echo(_greeting(cloud))
            typer.echo(
                'Use it with `eval "$(muster local env)"` or `muster local exec -- COMMAND`; '
                "end it with `muster local down`."
            )
            return
        _stay(cloud)


@app.command()
def down(state: StateOption = DEFAULT) -> None:
    """Stop the embedded cloud and every job on it; a dead one is cleared away."""
    directory = StateDirectory.at(state)
    with one_line_errors():
        running = directory.read()
        stop(directory, running)
        typer.echo(f"The embedded cloud at {running.endpoint} is down.")


@app.command()
def status(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    state: StateOption = DEFAULT,
) -> None:
    """Say whether the embedded cloud runs, and what runs on it. Exit code 3 when it does not."""
    with one_line_errors():
        cloud = LocalCloud.attach(state)
        jobs = cloud.running_jobs()
    if as_json:
        shown = {
            "endpoint": cloud.endpoint,
            "pid": cloud.state.pid,
            "region": cloud.state.region,
            "account_id": cloud.state.account_id,
            "running_jobs": jobs,
            "ca_file": str(cloud.state.ca_file),
            "log": str(cloud.directory.log),
        }
        typer.echo(json.dumps(shown, indent=2))
        return
    typer.echo(f"The embedded cloud runs at {cloud.endpoint} (process {cloud.state.pid}, region {cloud.state.region}).")
    typer.echo(f"Training jobs that run: {', '.join(jobs) or 'none'}")


@app.command()
def env(state: StateOption = DEFAULT) -> None:
    """Print lines that turn a shell towards the embedded cloud: eval "$(muster local env)"."""
    with one_line_errors():
        running = StateDirectory.at(state).read()
    for line in shell_lines(running, os.environ):
        typer.echo(line)


@app.command(name="exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def execute(
    command: Annotated[list[str], typer.Argument(help="Program and arguments.")], state: StateOption = DEFAULT
) -> None:
    """Run a command that reaches the embedded cloud and nothing else: muster local exec -- aws s3 ls."""
    with one_line_errors():
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


def _greeting(cloud: LocalCloud) -> str:
    return f"The embedded cloud runs at {cloud.endpoint} (state in {cloud.directory.root})."


def _stay(cloud: LocalCloud) -> None:
    """Until Ctrl-C, SIGTERM or the service's own end."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        typer.echo(f"{_greeting(cloud)} Ctrl-C ends it.")
        cloud.wait()
    except KeyboardInterrupt:
        cloud.stop()
        typer.echo("The embedded cloud is down.")
    else:
        raise NotRunningError(cloud.directory.root)
