"""Where Muster and the SageMaker SDK differ on the recipes of `recipes/`: field by field, and why.

A difference that is not listed fails the tests, and so does a listed one that does not occur any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from tests.oracle.exact import leaves, same


class _Mark:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


ABSENT: Final = _Mark("absent")
ANY: Final = _Mark("any")
"""Some value: it has the time, a digest or the account's names in it."""


@dataclass(frozen=True)
class Difference:
    """One field that both sides set to different values.

    Args:
        cases: the cases in which it occurs, as a pattern.
        field: the field, as a pattern.
        theirs: the SDK's value, ABSENT or ANY.
        ours: Muster's.
        name: the row of docs/recipes.md that says why.
    """

    cases: str
    field: str
    theirs: object
    ours: object
    name: str

    def explains(self, case: str, field: str, theirs: object, ours: object) -> bool:
        """Whether this is the difference that was found."""
        return (
            fnmatchcase(case, self.cases)
            and fnmatchcase(field, self.field)
            and _matches(self.theirs, theirs)
            and _matches(self.ours, ours)
        )


def _matches(wanted: object, found: object) -> bool:
    if wanted is ANY:
        return found is not ABSENT
    return wanted is found if ABSENT in (wanted, found) else same(wanted, found)


def found_differences(theirs: object, ours: object) -> dict[str, tuple[object, object]]:
    """The fields that are not equal, each with both values."""
    left, right = leaves(theirs), leaves(ours)
    pairs = {field: (left.get(field, ABSENT), right.get(field, ABSENT)) for field in {**left, **right}}
    return {
        field: pair
        for field, pair in pairs.items()
        if ABSENT in pair or not same(*pair)
    }


def by_name(request: Mapping[str, object]) -> dict[str, object]:
    """A request in which channels and tags are found by their names: their order means nothing."""
    lists = {"InputDataConfig": "ChannelName", "Tags": "Key"}
    return {
        member: {item[lists[member]]: item for item in value} if member in lists and isinstance(value, list) else value
        for member, value in request.items()
    }


_NAMES = "names and places"
_STACK = "what the stack adds"
_DEFAULTS = "defaults"
_DELIVERY = "where the recipe lies"
_PROGRAM = "the program of the launcher's recipes"

RESOLVED: tuple[Difference, ...] = ()
"""Of resolved recipes: none. What Muster refuses has examples of its own."""

REQUESTS = (
    Difference("*", "TrainingJobName", ANY, ANY, _NAMES),
)
