"""The errors of Muster. Each says what was found, where, what is allowed and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class MusterError(Exception):
    """Base class of every error that Muster raises on purpose."""

    @property
    def code(self) -> str:
        """The name under which Step Functions and `--json` show the error."""
        return f"Muster.{type(self).__name__}"


@dataclass(frozen=True)
class Problem:
    """One mistake in a document: the field, the value found there, what to do, and where it helps what is allowed."""

    field: str
    found: str
    remedy: str
    allowed: str = ""

    @property
    def mistake(self) -> str:
        """What is wrong, in words."""
        return f"found {self.found}"

    def __str__(self) -> str:
        return "; ".join(part for part in (f"{self.field}: {self.mistake}", self.allowed, self.remedy) if part)


class StatedProblem(Problem):
    """A mistake that is not a wrong value: `replicas: missing; it is required`. `found` is the statement."""

    @property
    def mistake(self) -> str:
        """The statement as it is."""
        return self.found


class SpecError(MusterError):
    """A spec that cannot be run. Carries every problem at once, in the spec's order."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problem{'s' if len(self.problems) != 1 else ''}"
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        super().__init__(f"The spec has {count}; nothing was created.\n{lines}")


class SettingsError(MusterError):
    """Settings with which a stack cannot be deployed. Carries every problem at once; `lines` are their texts."""

    def __init__(self, name: str, problems: Sequence[Problem], lines: Sequence[str]) -> None:
        self.problems = tuple(problems)
        count = f"{len(self.problems)} problem{'s' if len(self.problems) != 1 else ''}"
        text = "\n".join(f"  - {line}" for line in lines)
        super().__init__(f"{name}: {count}; nothing was changed.\n{text}")


class RunNameTakenError(MusterError):
    """The execution's name belongs to another run, whose jobs and objects still exist."""

    def __init__(self, run: str, owner: str) -> None:
        super().__init__(f"The run name {run} is already used by {owner}. Nothing was created; choose another name.")


class DocumentError(MusterError):
    """A document of Muster's in the bucket that cannot be read: damaged, or of another version."""

    def __init__(self, uri: str, detail: str) -> None:
        self.detail = detail
        super().__init__(f"{uri} cannot be read: {detail}. It is damaged, or another version of Muster wrote it.")


class NewerDocumentError(DocumentError):
    """A document that a newer version of Muster wrote, in a form that this version does not know."""

    def __init__(self, uri: str, form: int, known: int, needed: str | None) -> None:
        remedy = "the version of Muster that wrote it" if needed is None else f"Muster {needed} or newer"
        self.detail = f"it has form {form}; this version of Muster reads forms up to {known}. Use {remedy}"
        MusterError.__init__(self, f"{uri} cannot be read: {self.detail}.")


class OversizedDocumentError(DocumentError):
    """An object that is larger than what is read of it."""

    def __init__(self, uri: str, size: int, most: int) -> None:
        self.detail = f"it has {size:,} bytes; at most {most:,} are read"
        MusterError.__init__(self, f"{uri} cannot be read: {self.detail}.")


class MissingDocumentError(DocumentError):
    """A document of Muster's that is not in the bucket, although something refers to it."""

    def __init__(self, uri: str) -> None:
        self.detail = "it does not exist"
        MusterError.__init__(self, f"{uri} does not exist: there is no such run, or its objects were deleted.")


class ConfigurationError(MusterError):
    """A function or a container was started without something that it needs."""


class ConflictError(MusterError):
    """A compare-and-swap failed every time: other writers kept changing the same object."""
