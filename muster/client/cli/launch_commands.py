"""The commands that start and stop runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from muster.client.cli.option_groups import Json, RunName, SpecPath, StackOptions, Watch, grouped
from muster.client.cli.output import busy, print_answer, print_text
from muster.client.cli.spec_file import read_spec
from muster.client.errors import SpecExistsError, SpecWriteError, os_reason

Deployed = Annotated[
    bool, typer.Option("--deployed", help="Use the stack's defaults and today's AWS prices; makes no other calls.")
]


def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The new file; - is standard output.")] = "run.yaml",
    *,
    trainer: Annotated[
        str, typer.Option("--trainer", metavar="MODULE:FUNCTION", help="The function that trains.")
    ] = "my_package.training:train",
    json: Json = False,
) -> None:
    """Write a spec to start with: every field, with its default and what it means."""
    from muster.client.cli.spec_template import spec_template  # noqa: PLC0415

    to_output = file == "-"
    text = spec_template("run.yaml" if to_output else file, trainer)
    if not to_output:
        _write_new(file, text)
    if json:
        from muster.client.cli.json_answers import SpecWritten  # noqa: PLC0415

        print_answer(SpecWritten(file=file, text=text if to_output else None))
    elif to_output:
        typer.echo(text, nl=False)
    else:
        typer.echo(f"Wrote {file}: fill it in, then check it with `muster plan {file}`.")


@grouped
def plan(spec: SpecPath, stack: StackOptions, *, deployed: Deployed = False, json: Json = False) -> None:
    """Show the requests that a spec would send, the quota it needs and what it may cost. Creates nothing."""
    from muster.client.cli.plain_text import dry_run_text  # noqa: PLC0415
    from muster.client.launch.dry_run import dry_run  # noqa: PLC0415

    checked = read_spec(spec)
    with busy("Asking the stack and the price list" if deployed else "Making the requests"):
        dry = stack.muster().plan(checked) if deployed else dry_run(checked)
    if json:
        print_answer(dry)
    else:
        print_text(dry_run_text(dry))


@grouped
def launch(
    spec: SpecPath,
    stack: StackOptions,
    *,
    name: Annotated[
        str | None, typer.Option("--name", help="The run's name; default the spec's, or a new one.")
    ] = None,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """Start a run."""
    checked = read_spec(spec, name)
    with busy("Starting the run"):
        run = stack.muster().launch(checked)
    if watch:
        from muster.client.cli.watch import watch_run  # noqa: PLC0415

        watch_run(run, as_json=json)
    elif json:
        from muster.client.cli.json_answers import Started  # noqa: PLC0415

        print_answer(Started(run=run.name))
    else:
        typer.echo(f"Started {run.name}: watch it with `muster status {run.name} --watch`.")


@grouped
def rerun(run: RunName, stack: StackOptions, *, watch: Watch = False, json: Json = False) -> None:
    """Continue a run that has ended, as a new run from its last committed round."""
    with busy("Starting the run"):
        continuation = stack.muster().run(run).rerun()
    if watch:
        from muster.client.cli.watch import watch_run  # noqa: PLC0415

        watch_run(continuation, as_json=json)
    elif json:
        from muster.client.cli.json_answers import Started  # noqa: PLC0415

        print_answer(Started(run=continuation.name, parent=run))
    else:
        name = continuation.name
        typer.echo(f"{run} is continued by {name}: watch it with `muster status {name} --watch`.")


@grouped
def cancel(run: RunName, stack: StackOptions, *, json: Json = False) -> None:
    """Stop a run and its jobs, or the run that continues it."""
    with busy("Stopping the run"):
        cancellation = stack.muster().run(run).cancel()
    if json:
        print_answer(cancellation)
        return
    for name in cancellation.stopped:
        which = name if name == run else f"{name}, which continues {run}"
        typer.echo(f"Cancelled {which}: its jobs are being stopped. See `muster status {name}`.")
    if not cancellation.stopped:
        typer.echo(f"{run} has ended already; there is nothing to cancel.")


def _write_new(file: str, text: str) -> None:
    try:
        with Path(file).open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise SpecExistsError(file) from None
    except OSError as error:
        raise SpecWriteError(file, os_reason(error)) from error
