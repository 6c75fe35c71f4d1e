"""Log lines on a terminal, in a file, and as JSON."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

from muster.client.cli.output import print_answer, visible
from muster.client.logs.log_lines import LogLine
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.job_status import JobStatus
from muster.contract.training.ranks import show_ranks

if TYPE_CHECKING:
    from muster.client.runs.run_status import ReplicaStatus, RunStatus

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PLAIN = "\x1b[0m"
# Why a program can have failed that was started.
_STARTED = {
    FailureClass.USER_CODE,
    FailureClass.INFRASTRUCTURE,
    FailureClass.TIMEOUT,
    FailureClass.UNKNOWN,
    FailureClass.STOPPED_BY_USER,
    FailureClass.STOPPED_BY_MUSTER,
}
_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "bright_cyan", "bright_green", "bright_magenta")


def printer(*, as_json: bool) -> Callable[[LogLine], None]:
    """The function that prints a line: the replica and its process, in a colour of its own, then the text."""
    if as_json:
        return print_answer
    coloured = Console().color_system is not None
    heads: dict[tuple[int, int | None, int], str] = {}

    def show(line: LogLine) -> None:
        who = (line.rank, line.process, line.attempt)
        if who not in heads:
            heads[who] = _head(line, coloured)
        # A progress bar's carriage returns are line breaks, too: each part is shown, after the rank.
        for part in line.message.splitlines() or [""]:
            sys.stdout.write(f"{heads[who]}{text_of(part, coloured=coloured)}\n")
        sys.stdout.flush()

    return show


def text_of(part: str, *, coloured: bool) -> str:
    """A line that is safe for a terminal: of its control characters only colours remain, where there are colours."""
    if not coloured:
        return visible(_COLOUR.sub("", part))
    pieces = _COLOUR.split(part)
    if len(pieces) == 1:
        return visible(part)
    colours = [*_COLOUR.findall(part), _PLAIN]
    return "".join(f"{visible(piece)}{colour}" for piece, colour in zip(pieces, colours, strict=True))


def _head(line: LogLine, coloured: bool) -> str:
    # From the second attempt on its number is shown; a rank keeps its colour through all of them.
    who = str(line.rank) if line.process is None else f"{line.rank}.{line.process}"
    name = who if line.attempt == 1 else f"{who} a{line.attempt}"
    text = f"{name:>4} | "
    if not coloured:
        return text
    return Style.parse(_COLOURS[line.rank % len(_COLOURS)]).render(text, color_system=ColorSystem.STANDARD)


def silence_lines(run: RunStatus, ranks: Collection[int] | None) -> Iterator[str]:
    """Why there are no lines of replicas, those with the same words once: `no log: replica 2 never started: …`."""
    groups: dict[str, list[int]] = {}
    for replica in run.replicas:
        if ranks is None or replica.rank in ranks:
            groups.setdefault(_silence(replica, over=run.state.is_terminal or replica.has_ended), []).append(
                replica.rank
            )
    for words, silent in groups.items():
        yield f"no log: replica{'' if len(silent) == 1 else 's'} {show_ranks(silent)} {words}"


def _silence(replica: ReplicaStatus, *, over: bool) -> str:
    ended = replica.job is not None and replica.status in {JobStatus.FAILED, JobStatus.STOPPED}
    if not replica.is_waiting or (ended and replica.ends[-1:] != () and replica.ends[-1] in _STARTED):
        words = "wrote nothing"
    else:
        words = "never started" if over else "did not start yet"
    why = (replica.reason or replica.message).rstrip(".")
    return f"{words}: {why}." if why else f"{words}."
