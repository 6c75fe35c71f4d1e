"""What the commands share: their options, and how they answer scripts."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from muster.contract.document import Document
from muster.local.state import DEFAULT_STATE

STATE_HELP = "Directory with the state of the embedded cloud."
StateOption = Annotated[Path, typer.Option("--state", help=STATE_HELP)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFAULT = DEFAULT_STATE


def print_answer(answer: Document) -> None:
    """`answer` as JSON on one line of standard output."""
    typer.echo(answer.to_line())


def busy(what: str) -> AbstractContextManager[object]:
    """Say `what` is being done while it is, on a terminal's standard error; elsewhere nothing."""
    return Console(stderr=True).status(f"{what} …")
