"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from muster.contract.errors import Problem


@dataclass(frozen=True)
class CheckFindings:
    """`problems` are certain mistakes, with which nothing is started. `remarks` may be fine."""

    problems: tuple[Problem, ...] = ()
    remarks: tuple[str, ...] = ()

    def __add__(self, other: CheckFindings) -> CheckFindings:
        return CheckFindings(self.problems + other.problems, self.remarks + other.remarks)


def place(path: Path, line: int | None = None) -> str:
    """A file as errors name it: relative to the working directory if it is below it. A `line` counts from 1."""
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path
    shown = shown if shown.parts else here
    return shown.as_posix() if line is None else f"{shown.as_posix()}:{line}"
