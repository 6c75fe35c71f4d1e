"""Where a program failed: the file and the line of the user's own code in a traceback. Pure, and free of dependencies.

A replica finds the place in its own exception; a client finds it in the lines that another program has written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_PACKAGES = ("/site-packages/", "/dist-packages/")
_STANDARD = "/lib/python3"
# Muster's own code, also in the zip file of a stock image.
_OWN_PACKAGE = re.compile(r"(^|/)muster/(replica|contract)/")
# Folders in which a container has the user's code; what is above them says nothing.
_ROOTS = ("/opt/ml/muster/source/", "/opt/ml/code/", "/muster/source/")
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,9})')
_ERROR = re.compile(r"[A-Za-z_][\w.]*(: .*)?")
_PROCESS = re.compile(r"\[\d{1,5}\.\d{1,5}\] ")
_TRACEBACK = "Traceback (most recent call last):"
_FILE_MAX, _ERROR_MAX = 120, 400


class Frame(NamedTuple):
    """A place in the code."""

    file: str
    line: int


def user_place(frames: Sequence[Frame], root: str = "") -> str | None:
    """`training.py:41`: the innermost of `frames` (the outermost one first) that is the user's own code.

    Where the user's code is an installed package, the outermost frame of a package. `root` is the folder of the user's
    code, below which the file is named. None where no frame can be the user's.
    """
    others = [frame for frame in frames if not _is_of_python(frame.file)]
    own = [frame for frame in others if not any(part in frame.file for part in _PACKAGES)]
    found = own[-1] if own else next(iter(others), None)
    return None if found is None else f"{_shown(found.file, root)}:{found.line}"


def written_place(lines: Sequence[str]) -> str | None:
    """`training.py:41: ValueError: no data`, from the last traceback in what a program has written; None without one.

    Where the end of the traceback is missing, the place stands alone.
    """
    begin = max((index for index, line in enumerate(lines) if line.endswith(_TRACEBACK)), default=-1)
    process = _process_of(lines[begin]) if begin >= 0 else ""
    # What other processes of the replica write at the same time lies in between.
    written = [line[len(process) :] for line in lines[begin + 1 :] if _process_of(line) == process]
    frames: list[Frame] = []
    error = ""
    for line in written:
        if (frame := _FRAME.match(line)) is not None:
            frames.append(Frame(frame["file"], int(frame["line"])))
        elif frames and not line.startswith(" "):
            error = line.strip() if _ERROR.fullmatch(line.strip()) else ""
            break
    place = user_place(frames)
    return f"{place}: {error[:_ERROR_MAX]}" if place is not None and error else place


def _process_of(line: str) -> str:
    """The process that a launcher has put in front of a line: `[2.5] `."""
    found = _PROCESS.match(line)
    return "" if found is None else found[0]


def _is_of_python(file: str) -> bool:
    """Whether a file is of the interpreter, of its standard library or of Muster."""
    standard = _STANDARD in file and not any(part in file for part in _PACKAGES)
    return standard or file.startswith("<") or _OWN_PACKAGE.search(file) is not None


def _shown(file: str, root: str) -> str:
    """A file as the user knows it: below the folder of the user's code, otherwise its name alone."""
    if root and file.startswith(f"{root.rstrip('/')}/"):
        return file[len(root.rstrip("/")) + 1 :][-_FILE_MAX:]
    inside = next((file.partition(folder)[2] for folder in _ROOTS if folder in file), file.rpartition("/")[2])
    return inside[-_FILE_MAX:]
