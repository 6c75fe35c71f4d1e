"""Choices by seed. Each has a name and a plain value, and none depends on the others.

A choice is drawn from a hash of the seed and its name, not from a stream: so a schedule can be replayed with any of its
choices set back to the plain value, and the others stay what they were. That is how a violation is shrunk.
"""

from collections.abc import Collection, Sequence
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")

_WHOLE = 1 << 32


class Draws:
    """The choices of one schedule. With `only`, all choices but those of these names are plain."""

    def __init__(self, seed: int, only: Collection[str] | None = None) -> None:
        self.seed = seed
        self._prefix = f"{seed}/"
        self._only = None if only is None else frozenset(only)
        self._counts: dict[str, int] = {}
        self.made: dict[str, str] = {}
        """The choices that are not plain, in their order, and what was chosen."""

    def number(self, label: str) -> str:
        """A name for the next choice of this label: how often it was made before is part of it."""
        count = self._counts.get(label, 0)
        self._counts[label] = count + 1
        return f"{label}#{count}"

    def share(self, name: str) -> float:
        """A number from 0 to 1 that belongs to the name; nothing is noted."""
        return (crc32(f"{self._prefix}{name}".encode()) * 2_654_435_761 % _WHOLE) / _WHOLE

    def choose(self, name: str, options: Sequence[T]) -> T:
        """One of the options that belongs to the name, each as likely as the others; nothing is noted."""
        return options[int(self.share(name) * len(options))]

    def is_free(self, name: str) -> bool:
        """Whether the choice of this name may be other than plain."""
        return self._only is None or name in self._only

    def note(self, name: str, chosen: object) -> None:
        self.made[name] = str(chosen)

    def chance(self, name: str, probability: float) -> bool:
        """True with this probability; False is plain."""
        if probability <= 0 or not self.is_free(name) or self.share(name) >= probability:
            return False
        self.note(name, chosen=True)
        return True

    def pick(self, name: str, options: Sequence[T]) -> T:
        """One of the options; the first one is plain."""
        found = self.choose(name, options) if self.is_free(name) else options[0]
        if found != options[0]:
            self.note(name, found)
        return found

    def between(self, name: str, low: float, high: float) -> float:
        """A number of a range; the lower end is plain."""
        if not self.is_free(name):
            return low
        found = low + self.share(name) * (high - low)
        self.note(name, round(found, 3))
        return found
