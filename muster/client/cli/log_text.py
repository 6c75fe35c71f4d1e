"""Log lines on a terminal, in a file, and as JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from muster.client.cli.answers import LoggedLine
from muster.client.cli.output import print_answer, visible
from muster.client.logs.log_lines import LogLine
from muster.client.runs.timestamps import utc_text

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PLAIN = "\x1b[0m"
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
        # A progress bar's carriage returns are line breaks, too: each part is shown, and with the rank before it.
        for part in line.message.splitlines() or [""]:
            sys.stdout.write(f"{heads[who]}{text_of(part, coloured=coloured)}\n")
        sys.stdout.flush()

    return show


def _document(line: LogLine) -> LoggedLine:
    return LoggedLine(at=utc_text(line.at), rank=line.rank, attempt=line.attempt, job=line.job, message=line.message)


def text_of(part: str, *, coloured: bool) -> str:
    """A line as a terminal may have it: its own colours where there are colours; nothing else steers the terminal."""
    if not coloured:
        return visible(_COLOUR.sub("", part))
    pieces = _COLOUR.split(part)
    if len(pieces) == 1:
        return visible(part)
    colours = [*_COLOUR.findall(part), _PLAIN]
    return "".join(f"{visible(piece)}{colour}" for piece, colour in zip(pieces, colours, strict=True))


def _head(line: LogLine, coloured: bool) -> str:
    # From the second attempt on it says which: one rank has one colour through all of them.
    name = str(line.rank) if line.attempt == 1 else f"{line.rank}.{line.attempt}"
    text = f"{name:>4} | "
    if not coloured:
        return text
    return Style.parse(_COLOURS[line.rank % len(_COLOURS)]).render(text, color_system=ColorSystem.STANDARD)
