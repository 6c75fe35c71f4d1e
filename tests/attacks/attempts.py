"""What an attack is: something that is tried, and whether it worked."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Try(NamedTuple):
    """One attempt. `is_own`: it shows that the attempts are well made, because it is allowed and must work."""

    what: str
    worked: bool
    is_own: bool = False

    @property
    def is_wrong(self) -> bool:
        return self.worked is not self.is_own


class Tally:
    """How many attempts there were, and those that went wrong."""

    def __init__(self, tries: Iterable[Try]) -> None:
        self.attacks = self.own = 0
        self.wrong: list[str] = []
        for one in tries:
            self.attacks += not one.is_own
            self.own += one.is_own
            if one.is_wrong:
                self.wrong.append(f"{'refused' if one.is_own else 'worked'}: {one.what}")


Tries = Iterator[Try]
