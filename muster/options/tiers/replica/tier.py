"""A place for the stored states of one process. What every tier promises, and the names of states in it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple

from muster.replica.frontends.phase_states import StateId
from muster.replica.states.state_buffer import Bytes

_NAME = re.compile(r"(\d{8})-(\d{8})-(\d{6})")


class TierName(StrEnum):
    """The tiers, the fastest one first."""

    MEMORY = "memory"
    DISK = "disk"
    S3 = "s3"


class TierError(Exception):
    """A tier has failed: it does not answer, refuses, or is full. Never a reason to stop the training."""


@contextmanager
def failing(kind: type[Exception]) -> Iterator[None]:
    """Raise a TierError for an error of this kind. Also a decorator."""
    try:
        yield
    except kind as error:
        raise TierError(str(error)) from None


class Held(NamedTuple):
    """A state that a tier seems to hold, and the claim that has saved it as far as its name says so (else 0)."""

    id: StateId
    epoch: int = 0

    @property
    def name(self) -> str:
        """Its name. Names sort as states do."""
        return f"{self.id.round:08d}-{self.id.step:08d}-{self.epoch:06d}"

    @classmethod
    def named(cls, name: str) -> Held | None:
        """The state with this name; None for a name that no state has."""
        found = _NAME.fullmatch(name)
        return None if found is None else cls(StateId(int(found[1]), int(found[2])), int(found[3]))


class Tier(ABC):
    """The states of one process in one place. A written state is whole or not there. For one thread at a time."""

    name: TierName

    @abstractmethod
    def held(self) -> list[Held]:
        """The states that seem to be there, in any order; raises TierError."""

    @abstractmethod
    def read(self, held: Held) -> Bytes:
        """The bytes under the name of a state; raises TierError."""

    @abstractmethod
    def write(self, held: Held, body: memoryview) -> None:
        """Store a state, and delete old ones; raises TierError."""

    @abstractmethod
    def clear(self) -> None:
        """Delete all states of this process; raises TierError."""


def superfluous(found: Iterable[Held], saved: Held, kept: int) -> list[Held]:
    """What is deleted after `saved` was stored: all but the newest `kept` up to it.

    What is newer stays: another process may hold the rank by now. It takes no place of those that are kept.
    """
    before = sorted((held for held in found if held < saved), reverse=True)
    return before[kept - 1 :]
