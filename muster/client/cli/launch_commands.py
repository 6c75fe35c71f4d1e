"""The commands that start and stop runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.client.cli.exit_codes import ExitCode
from muster.client.cli.option_groups import Json, RunName, SpecPath, StackOptions, WatchOption, grouped
from muster.client.cli.output import after_interrupt, busy, print_answer, print_either
from muster.client.cli.spec_file import WrittenSpec, read_spec
from muster.client.forecasts import NoOptions, forecasts

if TYPE_CHECKING:
    from muster.client.launch.dry_run import DryRun
    from muster.client.sdk import Run

_FORECASTS = forecasts()


@dataclass(frozen=True)
class ChangedSpec:
    """The spec that a command is about."""

    spec: SpecPath
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH=VALUE", help="Values that replace those of the spec: kwargs.lr=3e-4"),
    ] = None

    def read(self, name: str | None = None) -> WrittenSpec:
        """It, as the run `name`; see `read_spec`."""
        return read_spec(self.spec, name, self.changes or ())


@dataclass(frozen=True)
class PlanningStack(StackOptions):
    """The stack that a plan asks, if it asks any."""

    deployed: Annotated[
        bool,
        typer.Option(
            "--deployed", help="Use the stack's defaults and today's prices, and look for the channels' data."
        ),
    ] = False

    def dry_run(self, document: dict[Any, object]) -> DryRun:
        """What a spec would start."""
        from muster.client.launch.dry_run import dry_run  # noqa: PLC0415
        from muster.client.launch.expanded_spec import expanded_spec  # noqa: PLC0415

        with busy("Asking the stack and the price list" if self.deployed else "Making the requests"):
            if self.deployed:
                return self.muster().plan(document)
            expanded = expanded_spec(document, self.account().session)
            return dry_run(expanded.spec, recipe=expanded.recipe)


@partial(grouped, forecast=NoOptions if _FORECASTS is None else _FORECASTS.options)
def plan(
    spec: ChangedSpec,
    stack: PlanningStack,
    forecast: Any,
    *,
    requests: Annotated[bool, typer.Option("--requests", help="Show the requests, too, as JSON.")] = False,
    json: Json = False,
) -> None:
    """Show what a spec would start, the quota it needs and what it may cost. Creates nothing."""
    from muster.client.cli.dry_run_text import dry_run_lines  # noqa: PLC0415

    document, _, remark = spec.read()
    dry = stack.dry_run(document)
    if _FORECASTS is not None:
        dry = dry.model_copy(update={"forecast": _FORECASTS.planned(forecast, document, dry, stack.muster)})
    dry = dry.model_copy(update={"remarks": (*filter(None, [remark]), *dry.remarks)})
    print_either(dry, dry_run_lines(dry, requests=requests), as_json=json)


@grouped
def launch(
    spec: ChangedSpec,
    stack: StackOptions,
    *,
    name: Annotated[
        str | None, typer.Option("--name", help="The run's name; default the spec's, or a new one.")
    ] = None,
    watch: WatchOption = False,
    json: Json = False,
) -> None:
    """Start a run."""
    from muster.client.checks.source_check import check_source  # noqa: PLC0415

    document, meant, remark = spec.read(name)
    if meant is not None:
        # What is uploaded without being named is said, wherever the output goes.
        typer.echo(f"The source is the folder {meant}, where the trainer's module is.", err=True)
    for note in (*filter(None, [remark]), *check_source(document).remarks):
        typer.echo(f"Note: {note}.", err=True)
    try:
        with busy("Starting the run"):
            run = stack.muster().launch(document)
    except KeyboardInterrupt as interrupt:
        after_interrupt()
        for note in getattr(interrupt, "__notes__", ()):
            typer.echo(note, err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    verb = "It runs already, and nothing was started:" if run.joined else "Started"
    _follow(run, f"{verb} {run.name}", watch=watch, as_json=json)


def _follow(run: Run, how: str, parent: str | None = None, *, watch: bool, as_json: bool) -> None:
    """Watch a run, or say how it was started."""
    if watch:
        from muster.client.cli.run_watch import watch_run  # noqa: PLC0415

        watch_run(run, as_json=as_json)
        return
    from muster.client.cli.json_answers import Started  # noqa: PLC0415

    line = f"{how}: watch it with `muster status {run.name} --watch`."
    print_either(Started(run=run.name, parent=parent), [line], as_json=as_json)


@grouped
def continue_run(
    run: RunName,
    stack: StackOptions,
    *,
    watch: WatchOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, also where the run has succeeded.")] = False,
    json: Json = False,
) -> None:
    """Continue a run that has ended, as a new run from its last committed round."""
    named = stack.muster().run(run)
    asks = sys.stdin.isatty() and not (yes or json) and str(named.status().state) == "succeeded"
    if asks and not typer.confirm(f"{run} has succeeded. Start a run that continues it with the same spec?"):
        raise typer.Exit(ExitCode.INTERRUPTED)
    with busy("Starting the run"):
        continuation = named.start_continuation()
    _follow(continuation, f"{run} is continued by {continuation.name}", run, watch=watch, as_json=json)


@grouped
def cancel(run: RunName, stack: StackOptions, *, json: Json = False) -> None:
    """Stop a run and its jobs, or the run that continues it."""
    named = stack.muster().run(run)
    with busy("Stopping the run"):
        cancellation = named.cancel()
    if json:
        print_answer(cancellation)
        return
    for name in cancellation.stopped:
        which = name if name == run else f"{name}, which continues {run}"
        typer.echo(f"Cancelled {which}: its jobs are being stopped. See `muster status {name}`.")
    if not cancellation.stopped:
        ended = named.status().state.is_terminal
        how = "has ended already; there is nothing to cancel" if ended else "is being stopped already"
        typer.echo(f"{run} {how}. See `muster status {run}`.")
