"""What commands print: documents for scripts, lines for people, and while both wait a sign of life."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from muster.contract.errors import MusterError, SpecError

if TYPE_CHECKING:
    from muster.contract.document import Document


# What moves a terminal's cursor, its title or its direction of writing: C0 but for the tab, DEL, C1, bidi controls.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """`text` from a container, as it may be shown on a terminal: its control characters are spelled out."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def print_answer(answer: Document) -> None:
    """`answer` as JSON on one line of standard output, without a raw control character in it."""
    sys.stdout.write(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", answer.to_line()) + "\n")
    sys.stdout.flush()


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether `arguments` hold --json; behind -- they are another program's."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _lines(text: str) -> str:
    """`text` of several lines of ours, with `visible` done to each."""
    return "\n".join(map(visible, text.split("\n")))


def print_error(error: MusterError, *, as_json: bool) -> None:
    """The error for people on standard error; with `as_json` also as a document on standard output."""
    sys.stderr.write(f"muster: {_lines(str(error))}\n")
    if as_json:
        from muster.client.cli.answers import ErrorDetail, Failed, SpecProblem  # noqa: PLC0415

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
