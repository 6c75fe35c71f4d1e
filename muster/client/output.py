"""What commands print: documents for scripts, lines for people, and while both wait a sign of life."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from muster.contract.errors import MusterError, SpecError

if TYPE_CHECKING:
    from muster.contract.document import Document


def print_answer(answer: Document) -> None:
    """`answer` as JSON on one line of standard output."""
    sys.stdout.write(f"{answer.to_line()}\n")
    sys.stdout.flush()


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether `arguments` hold --json; behind -- they are another program's."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def print_error(error: MusterError, *, as_json: bool) -> None:
    """The error for people on standard error; with `as_json` also as a document on standard output."""
    sys.stderr.write(f"muster: {error}\n")
    if as_json:
        from muster.client.answers import ErrorDetail, Failed, SpecProblem  # noqa: PLC0415

        found = error.problems if isinstance(error, SpecError) else ()
        problems = tuple(
            SpecProblem(field=item.field, found=item.found, allowed=item.allowed, remedy=item.remedy) for item in found
        )
        print_answer(Failed(error=ErrorDetail(code=error.code, message=str(error), problems=problems)))


def busy(what: str) -> AbstractContextManager[object]:
    """Say `what` is being done while it is, on a terminal's standard error; elsewhere nothing."""
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True).status(f"{what} …")


def after_interrupt() -> None:
    """Begin a new line where the terminal has just shown ^C."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")
