"""The errors of Muster. Each says what was found, where, what is allowed and what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from muster.contract.text import shortened

PROBLEMS_SHOWN = 50
# An error fits into a message to people and into the cause of an execution (Step Functions: 32,768 characters).
_PROBLEMS_BYTES = 16_384
# A name of the user's can have any length.
_FIELD_MAX, _FOUND_MAX, _WORDS_MAX = 160, 300, 1_500


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

    def shortened(self) -> Problem:
        """The problem with parts of bounded length, on one line, of characters that can be shown and encoded."""
        return replace(
            self,
            field=_shown(self.field, _FIELD_MAX),
            found=_shown(self.found, _FOUND_MAX),
            remedy=_shown(self.remedy, _WORDS_MAX),
            allowed=_shown(self.allowed, _FOUND_MAX),
        )


class StatedProblem(Problem):
    """A mistake that is not a wrong value: `replicas: missing; it is required`. `found` is the statement."""

    @property
    def mistake(self) -> str:
        """The statement as it is."""
        return self.found


class PastedProblem(StatedProblem):
    """A mistake whose remedy is text of Muster's own to be copied, such as a policy's statements: it is kept whole."""

    def shortened(self) -> Problem:
        """The problem with the whole remedy, on as many lines as it has."""
        return replace(super().shortened(), remedy=self.remedy)


def first_problems(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """As many of the problems as an error shows, shortened."""
    shown: list[Problem] = []
    left = _PROBLEMS_BYTES
    for problem in problems[:PROBLEMS_SHOWN]:
        short = problem.shortened()
        left -= len(str(short).encode())
        if left < 0 and shown:
            break
        shown.append(short)
    return tuple(shown)


def _listed(problems: Iterable[object], more: int) -> str:
    others = [f"  and {more:,} more"] if more else []
    return "\n".join([*(f"  - {problem}" for problem in problems), *others])


def _shown(text: str, most: int) -> str:
    """One line of at most `most` characters; those that cannot be shown are spelled out."""
    cut = shortened(text, most)
    return cut if cut.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in cut)


class SpecError(MusterError, ValueError):
    """A spec that cannot be run. Carries its problems at once, in the spec's order.

    Of very many, or very long ones, the first are in `problems`, and `more` says how many others there are.
    """

    subject = "The spec"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = first_problems(problems)
        self.more = len(problems) - len(self.problems)
        count = f"{len(problems):,} problem{'s' if len(problems) != 1 else ''}"
        super().__init__(f"{self.subject} has {count}; nothing was created.\n{_listed(self.problems, self.more)}")


class RecipeError(SpecError):
    """A recipe that cannot be resolved. Each problem names a path of the recipe and the source of its value."""

    subject = "The recipe"


def all_problems(error: SpecError) -> list[Problem]:
    """The problems of an error, to be reported with others: those that it only counts are counted again."""
    return [*error.problems, *[StatedProblem("the spec", "not shown", "")] * error.more]


class SettingsError(MusterError):
    """Settings with which a stack cannot be deployed. Carries its problems at once; `lines` are the numbers of lines.

    Of very many, or very long ones, the first are in `problems`, and `more` says how many others there are.
    """

    def __init__(self, name: str, problems: Sequence[Problem], lines: Sequence[int | None] = ()) -> None:
        self.problems = first_problems(problems)
        self.more = len(problems) - len(self.problems)
        count = f"{len(problems):,} problem{'s' if len(problems) != 1 else ''}"
        numbers = lines or [None] * len(problems)
        placed = [
            str(problem) if number is None else f"line {number}: {problem}"
            for problem, number in zip(self.problems, numbers, strict=False)
        ]
        super().__init__(f"{name}: {count}; nothing was changed.\n{_listed(placed, self.more)}")


class RunNameTakenError(MusterError, RuntimeError):
    """The execution's name belongs to another run, whose jobs and objects still exist."""

    def __init__(self, run: str, owner: str, remedy: str = "choose another name") -> None:
        super().__init__(f"The run name {run} is already used by {owner}. Nothing was created; {remedy}.")


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
