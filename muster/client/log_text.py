"""Log lines on a terminal, in a file, and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from muster.client.answers import LoggedLine
from muster.client.logs import LogLine
from muster.client.output import print_answer

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_magenta")


def printer(*, as_json: bool) -> Callable[[LogLine], None]:
    """Gives what prints a line: the rank in a colour of its own where the terminal has colours, then the text."""
    if as_json:
        return lambda line: print_answer(_document(line))
    coloured = Console().color_system is not None
    heads: dict[tuple[int, int], str] = {}

    def show(line: LogLine) -> None:
        who = (line.rank, line.attempt)
        if who not in heads:
            heads[who] = _head(line, coloured)
        sys.stdout.write(f"{heads[who]}{line.message}\n")
        sys.stdout.flush()

    return show


def _document(line: LogLine) -> LoggedLine:
    at = line.at.isoformat(timespec="milliseconds")
    return LoggedLine(at=at, rank=line.rank, attempt=line.attempt, job=line.job, message=line.message)


def _head(line: LogLine, coloured: bool) -> str:
    # From the second attempt on it says which: one rank has one colour through all of them.
    name = str(line.rank) if line.attempt == 1 else f"{line.rank}.{line.attempt}"
    text = f"{name:>4} | "
    if not coloured:
        return text
    return Style.parse(_COLOURS[line.rank % len(_COLOURS)]).render(text, color_system=ColorSystem.STANDARD)
