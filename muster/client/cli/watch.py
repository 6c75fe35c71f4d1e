"""Watching a run: a live table on a terminal, a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from muster.client.cli.output import print_answer, visible
from muster.client.cli.status_table import status_table
from muster.client.cli.view import changes, elapsed
from muster.client.runs.run_status import RunStatus


@contextmanager
def watching(console: Console) -> Iterator[Callable[[RunStatus], None]]:
    """Gives what to call with every new status: the `progress` of `Run.wait`."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda status: live.update(status_table(status, console), refresh=True)


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
    """The same for scripts: a JSON document on a line of its own for every status that differs from the last."""
    before: RunStatus | None = None

    def show(status: RunStatus) -> None:
        nonlocal before
        if status != before:
            print_answer(status)
        before = status

    return show
