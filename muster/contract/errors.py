"""The errors of Muster. Each names what was asked, what was found and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class MusterError(Exception):
    """Root of every error that Muster raises on purpose."""

    @property
    def code(self) -> str:
        """The name under which Step Functions and `--json` show the error."""
        return f"Muster.{type(self).__name__}"


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a document: where, what was found, what to do, and where it helps what is allowed."""

    field: str
    found: str
    remedy: str
    allowed: str = ""

    def __str__(self) -> str:
        return "; ".join(part for part in (f"{self.field}: found {self.found}", self.allowed, self.remedy) if part)


class SpecError(MusterError):
    """A spec that cannot be run. Carries every problem at once, in the spec's order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problem{'s' if len(self.problems) != 1 else ''}"
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"The spec has {count}; nothing was created.\n{lines}")


class RunNameTakenError(MusterError):
    """The execution's name already belongs to another run, whose jobs and objects are still there."""

    def __init__(self, run: str, owner: str) -> None:
        super().__init__(
            f"The run {run} already exists: it belongs to {owner}. Nothing was created. Start under another name."
        )


class DocumentError(MusterError):
    """A document of ours in the bucket that cannot be read: damaged, or of another version."""

    def __init__(self, uri: str, detail: str) -> None:
        super().__init__(f"{uri} cannot be read: {detail}. It was written by another version of Muster or damaged.")


class ConfigurationError(MusterError):
    """A function or a container that was started without what it needs."""


class ConflictError(MusterError):
    """A compare-and-swap that kept losing: somebody else writes the same object without end."""
