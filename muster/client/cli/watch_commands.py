"""The commands that follow a run: its status, its log, its live page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import typer

from muster.client.cli.option_groups import Json, RunName, StackOptions, WatchOption, grouped, read_time
from muster.client.cli.output import after_interrupt, busy, print_answer
from muster.client.cli.run_watch import exit_with, leave, show_status, watch_run
from muster.client.client_errors import OptionError
from muster.contract.names import REPLICAS_MAX
from muster.contract.training.ranks import parse_ranks

_RANKS = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*")


@dataclass(frozen=True)
class LogFilter:
    """Which lines `muster logs` shows."""

    rank: Annotated[str | None, typer.Option("--rank", "-r", help="Only these ranks: 3, 0-3 or 0,2,8-11.")] = None
    attempt: Annotated[
        int | None, typer.Option("--attempt", "-a", min=1, help="Only this attempt of each replica.")
    ] = None
    since: Annotated[str | None, typer.Option("--since", help="Only from then on: 10m, 2h, 3d or an ISO time.")] = None
    until: Annotated[str | None, typer.Option("--until", help="Only until then, in the same form.")] = None
    regex: Annotated[str | None, typer.Option("--regex", help="Only lines that match it somewhere.")] = None
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", min=1, max=1_000_000, help="Only the last lines, at most this many."),
    ] = None

    @property
    def hide_lines(self) -> bool:
        """Whether there may be lines of these ranks that are not shown."""
        return not (self.attempt is None and self.since is None and self.until is None and self.regex is None)


def read_ranks(text: str) -> frozenset[int]:
    """The ranks in `0,2,8-11`.

    Raises:
        OptionError: it is not a list of ranks.
    """
    parts = parse_ranks(text) if _RANKS.fullmatch(text) is not None else []
    if not parts or any(len(part) == 0 or part[-1] >= REPLICAS_MAX for part in parts):
        raise OptionError(text, f"write ranks like 3, 0-3 or 0,2,8-11, up to {REPLICAS_MAX - 1:,}", option="--rank")
    return frozenset(rank for part in parts for rank in part)


@grouped
def status(run: RunName, stack: StackOptions, *, watch: WatchOption = False, json: Json = False) -> None:
    """Show a run's status."""
    named = stack.muster().run(run)
    if watch:
        watch_run(named, as_json=json)
        return
    with busy("Reading the run"):
        now = named.status()
        now = now.model_copy(update={"failures": named.failures()}) if now.failures else now
    if json:
        print_answer(now)
    else:
        show_status(now)
    exit_with(now.state)


@grouped
def logs(
    run: RunName,
    lines: LogFilter,
    stack: StackOptions,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new lines until the run ends.")] = False,
    json: Json = False,
) -> None:
    """Show what the replicas have written, merged in time order."""
    from muster.client.cli.log_text import printer, silence_lines  # noqa: PLC0415
    from muster.client.logs.log_lines import read_regex  # noqa: PLC0415

    named = stack.muster().run(run)
    ranks = None if lines.rank is None else read_ranks(lines.rank)
    found = named.logs(
        ranks,
        lines.attempt,
        follow=follow,
        since=None if lines.since is None else read_time("--since", lines.since),
        until=None if lines.until is None else read_time("--until", lines.until),
        regex=None if lines.regex is None else read_regex(lines.regex, "--regex").pattern,
        tail=lines.tail,
    )
    show, silent = printer(as_json=json), True
    # Lines are followed until the run ends; those of a run that has ended, or those until now, say nothing of it.
    runs = follow and not named.status().state.is_terminal
    try:
        for line in found:
            show(line)
            silent = False
        if silent and not lines.hide_lines:
            for words in silence_lines(named.status(), ranks):
                typer.echo(words, err=True)
    except KeyboardInterrupt:
        after_interrupt()
        if runs:
            leave(named)
        raise


@grouped
def ui(
    run: RunName,
    stack: StackOptions,
    *,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="On this machine only; 0 uses any free port.")
    ] = 0,
    json: Json = False,
) -> None:
    """Serve a run's page on this machine, and keep it up to date until Ctrl-C."""
    from muster.client.cli.page_server import PageServer  # noqa: PLC0415

    with busy("Making the page"):
        source = stack.muster().run(run).live_page()
        source.look()
    with PageServer(source, port) as server:
        try:
            if json:
                from muster.client.cli.json_answers import PageServed  # noqa: PLC0415

                print_answer(PageServed(run=run, url=server.url))
            else:
                typer.echo(f"{run}: {server.url}\nCtrl-C stops serving the page; the run continues.")
            server.serve_forever()
        except KeyboardInterrupt:
            after_interrupt()
