"""Watching a run: a live table on a terminal, a line for each change elsewhere.

It says how long nothing has answered: a wait survives an outage, and must not look frozen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import typer

from muster.client.cli.exit_codes import ExitCode
from muster.client.cli.output import print_answer, print_lines, print_styled, terminal_size, visible
from muster.client.cli.status_table import Line, status_lines
from muster.client.runs.failed_attempt import failure_lines
from muster.client.runs.run_state import RunState, elapsed
from muster.client.runs.run_status import RunStatus
from muster.client.runs.status_text import changes
from muster.contract.text import shortened
from muster.report.figures import clock

QUIET_SECONDS = 10.0  # looks are two seconds apart, and one may take a few
Progress = Callable[[RunStatus], None]
Silent = Callable[[float], None]

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from muster.client.sdk import Run


def watch_run(run: Run, *, as_json: bool) -> None:
    """Show the run until it ends, and exit with its code. Ctrl-C does not stop the run."""
    try:
        if as_json:
            now = _wait(run, json_lines(), RareLines(partial(typer.echo, err=True)))
        else:
            # A status that is shown once needs none of rich.
            from rich.console import Console  # noqa: PLC0415

            with watching(Console()) as (progress, silent):
                now = _wait(run, progress, silent)
    except KeyboardInterrupt:
        leave(run)
    if not as_json:
        print_lines(failure_lines(run.failures()))
    exit_with(now.state)


def _wait(run: Run, progress: Progress, silent: Silent) -> RunStatus:
    with telling_silence(silent) as heard:

        def show(status: RunStatus) -> None:
            heard()
            progress(status)

        return run.wait(progress=show)


def show_status(now: RunStatus) -> None:
    """Print the run's headline, the table of its replicas, and why attempts failed."""
    width, height = terminal_size()
    for line in status_lines(now, width, height):
        print_styled(shortened(line.text, width) if line.is_cut and height is not None else line.text, line.style)
    print_lines(failure_lines(now.failures))


def leave(run: Run) -> NoReturn:
    """Exit after Ctrl-C; the run continues."""
    typer.echo(f"The run {run.name} is still running. To stop it: `muster cancel {run.name}`.", err=True)
    raise typer.Exit(ExitCode.INTERRUPTED) from None


def exit_with(state: RunState) -> None:
    """Exit with 1 if the run has ended otherwise than succeeded."""
    if state.is_terminal and state is not RunState.SUCCEEDED:
        raise typer.Exit(ExitCode.RUN_FAILED)


@contextmanager
def watching(console: Console) -> Iterator[tuple[Progress, Silent]]:
    """Yields what shows each new status, the `progress` of `Run.wait`, and what shows that nothing answers."""
    if not console.is_terminal:
        yield _Lines(console), RareLines(partial(typer.echo, err=True))
        return
    from rich.console import Group  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    shown: list[RunStatus] = []
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def show(status: RunStatus) -> None:
            shown[:] = [status]
            live.update(_drawn(status, console), refresh=True)

        def silent(seconds: float) -> None:
            before = [_drawn(status, console) for status in shown]
            live.update(Group(_text(Line(silence_text(seconds), "yellow")), *before), refresh=True)

        yield show, silent


def _drawn(status: RunStatus, console: Console) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415

    return Group(*(_text(line) for line in status_lines(status, console.width, console.height)))


def _text(line: Line) -> Text:
    from rich.text import Text  # noqa: PLC0415

    return Text(line.text, line.style, no_wrap=line.is_cut, overflow="ellipsis" if line.is_cut else None)


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._before: RunStatus | None = None

    def __call__(self, status: RunStatus) -> None:
        for line in changes(self._before, status):
            self._console.print(
                f"{elapsed(status.started_at, status.ended_at):>7}  {visible(line)}",
                soft_wrap=True,
                markup=False,
                highlight=False,
            )
        self._before = status


def json_lines() -> Callable[[RunStatus], None]:
    """The same for scripts: a line of JSON for every status that differs from the last in more than its `time`."""
    before: RunStatus | None = None

    def show(status: RunStatus) -> None:
        nonlocal before
        # The seconds grow while nothing happens.
        if before is None or status.model_copy(update={"time": before.time}) != before:
            print_answer(status)
        before = status

    return show


@contextmanager
def telling_silence(
    tell: Callable[[float], None], quiet_seconds: float = QUIET_SECONDS
) -> Iterator[Callable[[], None]]:
    """Call `tell` every second with the seconds since the last answer, from `quiet_seconds` on.

    Yields the function that reports an answer.
    """
    heard_at, ended = [time.monotonic()], threading.Event()

    def look() -> None:
        while not ended.wait(min(1.0, quiet_seconds)):
            if (silent := time.monotonic() - heard_at[0]) >= quiet_seconds:
                tell(silent)

    thread = threading.Thread(target=look, name="silence", daemon=True)
    thread.start()
    try:
        yield lambda: heard_at.__setitem__(0, time.monotonic())
    finally:
        ended.set()
        thread.join()


def silence_text(seconds: float) -> str:
    """`no answer for 0:42, still trying`."""
    return f"no answer for {clock(seconds)}, still trying"


class RareLines:
    """Prints the text when it is silent for the first time, and then once a minute."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._next = 0.0

    def __call__(self, seconds: float) -> None:
        """It has been silent for so long."""
        if seconds < self._next - 60.0:  # something has answered since
            self._next = 0.0
        if seconds >= self._next:
            self._next = seconds + 60.0
            self._echo(silence_text(seconds))
