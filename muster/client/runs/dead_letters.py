"""The dead letters of a stack: listed, replayed, dropped.

A replay calls the function again with the same event, and deletes the message only when Lambda has accepted the event.
The functions are idempotent, so an event that is replayed twice has the effect of one.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager

from pydantic import Field

from muster.client.aws.cloud import Cloud
from muster.client.client_errors import UnknownDeadLetterError
from muster.client.runs.dead_letter import DeadLetter, ReadLetter, read_letter
from muster.contract.document import Document

_READ_MAX = 10_000  # what a command reads at once; SQS hides at most 120,000 messages of a queue


class DeadLetters(Document):
    """The events that the functions of a stack did not handle, the oldest first."""

    letters: tuple[DeadLetter, ...]


class Replay(Document):
    """What a replay did."""

    replayed: tuple[DeadLetter, ...] = Field(description="Lambda has accepted these events again; they are deleted")
    kept: tuple[DeadLetter, ...] = Field(description="these cannot be replayed: `obstacle` says why")


class Dropped(Document):
    """What was deleted."""

    dropped: tuple[DeadLetter, ...]


class _Held(AbstractContextManager["_Held"]):
    """The letters of a queue while other clients do not see them. Those that are not deleted are shown again."""

    def __init__(self, cloud: Cloud, limit: int) -> None:
        functions, prefix = cloud.stack.functions, cloud.stack.job_prefix
        self._queue = cloud.dead_letters
        self._messages = {message.id: message for message in self._queue.receive(limit)}
        read = [read_letter(message, functions, prefix) for message in self._messages.values()]
        self.letters = sorted(read, key=lambda one: (one.letter.at, one.letter.id))

    def named(self, ids: Collection[str] | None) -> list[ReadLetter]:
        """The letters with these ids; None: all.

        Raises:
            UnknownDeadLetterError: there is none of one of them.
        """
        if ids is None:
            return self.letters
        if unknown := sorted(set(ids) - self._messages.keys()):
            raise UnknownDeadLetterError(unknown)
        return [one for one in self.letters if one.letter.id in ids]

    def delete(self, letter: DeadLetter) -> None:
        """Delete a letter."""
        self._queue.delete(self._messages[letter.id])
        del self._messages[letter.id]

    def __exit__(self, *_: object) -> None:
        self._queue.release(list(self._messages.values()))


def list_letters(cloud: Cloud, limit: int) -> DeadLetters:
    """At most `limit` letters. They stay in the queue."""
    with _Held(cloud, limit) as held:
        return DeadLetters(letters=tuple(one.letter for one in held.letters))


def replay(cloud: Cloud, ids: Collection[str] | None) -> Replay:
    """Call the functions again with the events of these letters; None: of all.

    Raises:
        UnknownDeadLetterError: there is no letter with one of the ids; nothing was replayed.
    """
    replayed, kept = [], []
    with _Held(cloud, _READ_MAX) as held:
        for one in held.named(ids):
            if one.letter.obstacle is not None:
                kept.append(one.letter)
                continue
            # The deletion comes second: if it fails, the event is replayed again, which changes nothing.
            cloud.dead_letters.invoke(one.function, one.payload)
            held.delete(one.letter)
            replayed.append(one.letter)
    return Replay(replayed=tuple(replayed), kept=tuple(kept))


def drop(cloud: Cloud, ids: Collection[str] | None) -> Dropped:
    """Delete these letters; None: all.

    Raises:
        UnknownDeadLetterError: there is no letter with one of the ids; nothing was deleted.
    """
    with _Held(cloud, _READ_MAX) as held:
        named = held.named(ids)
        for one in named:
            held.delete(one.letter)
    return Dropped(dropped=tuple(one.letter for one in named))
