"""What commands print and write: JSON for scripts, lines for people, a progress message while they wait, and files."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from muster.client.client_errors import UsageError
from muster.contract.errors import MusterError

if TYPE_CHECKING:
    from muster.contract.document import Document


_CLEAR_LINE = "\r\x1b[2K"
_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}
# Characters that steer a terminal or the direction of writing: C0 except the tab, DEL, C1, bidi controls.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_BEYOND_ASCII = re.compile("[^\x20-\x7e]")


def visible(text: str) -> str:
    """`text` from a container, safe to show on a terminal: its control characters are spelled out."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def accept_every_character() -> None:
    """Spell out what standard output cannot show in its encoding (`\\u2013`) instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_answer(answer: Document) -> None:
    """Print `answer` as one line of JSON, without a raw control character or one that the output cannot show."""
    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    unwanted = _CONTROL if is_unicode else _BEYOND_ASCII
    sys.stdout.write(unwanted.sub(_json_escape, answer.to_line()) + "\n")
    sys.stdout.flush()


def _json_escape(found: re.Match[str]) -> str:
    """A character as JSON spells it out; one beyond 16 bits is a pair."""
    return re.sub("....", r"\\u\g<0>", found[0].encode("utf-16-be", "surrogatepass").hex())


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether `arguments` hold --json; after -- they are another program's."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def print_lines(lines: Iterable[str]) -> None:
    """Print each line, safe for a terminal."""
    for line in lines:
        sys.stdout.write(visible(line) + "\n")


def print_either(answer: Document, lines: Iterable[str], *, as_json: bool) -> None:
    """Print `answer` as JSON, or else the lines that say the same."""
    if as_json:
        print_answer(answer)
    else:
        print_lines(lines)


def _lines(text: str) -> str:
    """A text of several lines, each of them safe for a terminal."""
    return "\n".join(map(visible, text.split("\n")))


def print_error(error: MusterError, *, as_json: bool) -> None:
    """Print the error on standard error; with `as_json` also as a document on standard output."""
    sys.stderr.write(f"muster: {_lines(str(error))}\n")
    if as_json:
        from muster.client.cli.json_answers import Failed, error_detail  # noqa: PLC0415

        print_answer(Failed(error=error_detail(error)))


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show `what` is being done, on standard error if that is a terminal; the line disappears when it is done."""
    # Without rich: its import would take longer than most of what is waited for.
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    sys.stderr.write(f"{what} …")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write(_CLEAR_LINE)
        sys.stderr.flush()


def line_width() -> int | None:
    """The width of the terminal in characters; None where standard output is none."""
    width, height = terminal_size()
    return None if height is None else width


def terminal_size() -> tuple[int, int | None]:
    """The width and the height of the terminal in characters; no height where standard output is none."""
    width, height = shutil.get_terminal_size()
    return width, height if sys.stdout.isatty() else None


def print_styled(line: str, style: str) -> None:
    """Print a line that is safe for a terminal: in a style of `_STYLES` if the terminal shows colours."""
    plain = not style or not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    sys.stdout.write(f"{line}\n" if plain else f"\x1b[{_STYLES[style]}m{line}\x1b[0m\n")


def require_terminal(wish: str, *, as_json: bool = False) -> None:
    """Go on only where a question can be asked; `wish` ends the error: `add --yes to delete the stack`.

    Raises:
        UsageError: there is no terminal, or the answer is to be JSON.
    """
    if as_json or not sys.stdin.isatty():
        message = f"there is no terminal to ask on: {wish}"
        raise UsageError(message)


def after_interrupt() -> None:
    """Start a new line after the ^C that a terminal shows."""
    if sys.stderr.isatty():
        sys.stderr.write("\n")


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all: a full disk leaves what was there before.

    `content` (a text as UTF-8) is written beside `path`, and renamed; into a device or a pipe it is written as it is.

    Raises:
        OSError: it cannot be written; names `path`. The file is as it was.
    """
    body = content.encode() if isinstance(content, str) else content
    # A pipe at /dev/stdout has no path to resolve.
    if path.exists() and not path.is_file():
        path.write_bytes(body)
        return
    target = path.resolve()
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.write_bytes(body)
        if target.exists():
            partial.chmod(target.stat().st_mode)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        # An error of a write names no file, and that of another file is no help.
        raise type(error)(error.errno, error.strerror, str(path)) from error
