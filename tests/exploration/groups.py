"""How the processes of one explored replica reach each other: the board, and calls that all of them make."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from muster.replica.replica_errors import GroupError
from tests.exploration.activities import Killed, current


@dataclass
class Meeting:
    """One collective call, or one key of the board: over once `needed` processes have come, or one has ended."""

    group: Group
    needed: int
    values: dict[int, Any] = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        return len(self.values) == self.needed or self.group.is_broken


class Group:
    """What the processes of a replica have in common."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.is_broken = False  # a process has ended before the others
        self._keys: dict[str, Meeting] = {}
        self._calls: dict[tuple[str, int], Meeting] = {}

    def call(self, link: str, number: int) -> Meeting:
        """The call with this number over the link of this name."""
        return self._calls.setdefault((link, number), Meeting(self, self.size))

    def link(self, name: str, rank: int) -> SimulatedLink:
        return SimulatedLink(self, name, rank)

    def put(self, key: str, value: JsonValue) -> JsonValue:
        """See `Board`."""
        return self._key(key).values.setdefault(0, value)

    def get(self, key: str, seconds: float | None = None) -> JsonValue:
        """See `Board`. Nobody waits here with a limit."""
        assert seconds is None
        found = self._key(key)
        if not found.values:
            current().pause("wait for the board", waits_for=found)
        if not found.values:
            # The first process has ended: the launcher ends the others.
            raise Killed
        value: JsonValue = found.values[0]
        return value

    def _key(self, key: str) -> Meeting:
        return self._keys.setdefault(key, Meeting(self, 1))


class SimulatedLink:
    """`Link` between activities. What is sent is copied: processes share no memory."""

    def __init__(self, group: Group, name: str, rank: int) -> None:
        self.rank, self.size = rank, group.size
        self._group, self._name = group, name
        self._calls = 0

    def gather(self, value: object) -> list[Any]:
        self._calls += 1
        meeting = self._group.call(self._name, self._calls)
        meeting.values[self.rank] = copy.deepcopy(value)
        current().pause("wait for the other processes", waits_for=meeting)
        if len(meeting.values) < self.size:
            message = "a process of this replica has ended"
            raise GroupError(message)
        return [copy.deepcopy(meeting.values[rank]) for rank in range(self.size)]

    def swap(self, sends: Sequence[NDArray[Any]], counts: Sequence[int]) -> list[NDArray[Any]]:
        received = [given[self.rank] for given in self.gather([np.array(send) for send in sends])]
        assert [values.size for values in received] == list(counts)
        return received
