"""A process's place among those of its replica, and what these share: small values under keys, each written once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from muster.contract.errors import MusterError


@dataclass(frozen=True)
class InnerGroup:
    """A process's place in the inner group: the processes of one replica, on all instances of its job.

    A replica of one process is a group of size 1.
    """

    rank: int = 0
    """This process's number in the replica, from 0 to `size - 1`; torch's RANK. Those of an instance are consecutive,
    and the first instance has the first ones."""

    size: int = 1
    """The number of processes of the replica, on all its instances; torch's WORLD_SIZE."""

    local_rank: int = 0
    """This process's number on its instance, from 0; torch's LOCAL_RANK. It selects the GPU."""

    @property
    def is_first(self) -> bool:
        """Whether this process acts for the replica: it claims the rank, and writes what the replica writes once."""
        return self.rank == 0


class BoardError(MusterError):
    """The processes of the replica do not reach each other, or one did not say what the others wait for."""


class Board(Protocol):
    """Values under keys. The first value of a key stays. For small JSON values: at most `VALUE_BYTES_MAX`."""

    def put(self, key: str, value: JsonValue) -> JsonValue:
        """Write `value` unless the key has a value; returns the value that the key has now.

        Raises:
            BoardError: the board cannot be reached.
        """

    def get(self, key: str, seconds: float | None = None) -> JsonValue:
        """The value of `key`; waits for it, at most `seconds` (None: without a limit).

        Raises:
            BoardError: the board cannot be reached, or the time is over.
        """


def has(board: Board, key: str) -> bool:
    """Whether `key` has a value; False where the board cannot be reached."""
    try:
        board.get(key, 0.0)
    except BoardError:
        return False
    return True


class LocalBoard:
    """A board in this process: for a replica of one process, and for the server of the others. Thread-safe."""

    def __init__(self) -> None:
        self._values: dict[str, JsonValue] = {}
        self._changed = threading.Condition()

    def put(self, key: str, value: JsonValue) -> JsonValue:
        """See `Board`."""
        with self._changed:
            found = self._values.setdefault(key, value)
            self._changed.notify_all()
            return found

    def get(self, key: str, seconds: float | None = None) -> JsonValue:
        """See `Board`."""
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, seconds):
                message = f"No process of the replica has said {key!r} within {seconds:g} s."
                raise BoardError(message)
            return self._values[key]


def returned(rank: int) -> str:
    """The key that says that the trainer has returned in the process with this rank in the group."""
    return f"returned/{rank}"


FIRST_RETURNED = "first-returned"
"""The key that holds the rank in the group of the first process in which the trainer has returned."""
ENDED = "ended"
"""The key that holds why the group has failed: exit code and text. The first cause of all instances stays."""


def from_first(board: Board, group: InnerGroup, key: str, make: Callable[[], JsonValue]) -> JsonValue:
    """What the group's first process makes, for all its processes: they call this with the same, unused `key`.

    The others wait without a limit: if the first process ends instead, the launcher ends them.
    """
    if not group.is_first:
        return board.get(key)
    made = make()
    if group.size > 1:
        board.put(key, made)
    return made
