"""The store through which replicas meet: what any implementation promises.

- Objects are written once, and deleted at most. `create` is atomic and exclusive: of any number of concurrent calls
  for one key exactly one returns, all others raise ObjectExistsError; a reader sees all of the object or nothing.
- Reading is strongly consistent: once `create` has returned, or has lost, every reader finds the object. One exception
  is allowed to `create`: an answer lost on the way may turn a success into ObjectExistsError at the retry. Callers
  therefore look at what lies there instead of trusting that it is somebody else's.
- Four ways to fail, told apart: not there, already there, out of reach (after bounded retries), denied (no retry).
- Keys are relative to the run's prefix, of letters, digits and `/-_.`.
- Instances may be used from several threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from muster.contract.errors import MusterError

Bytes = bytes | bytearray | memoryview

# What is large goes up in parts of this size. A part takes 0.2 s at the 85 MB/s that one connection to S3 gets, many
# times the 30 ms of a request.
PART_BYTES = 16 * 2**20
OBJECT_BYTES_MAX = 10_000 * PART_BYTES  # S3: an upload has at most 10,000 parts


class StoreError(MusterError):
    """Root of what a store raises."""


class ObjectMissingError(StoreError):
    """There is no such object (yet)."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} does not exist.")


class ObjectExistsError(StoreError):
    """The object exists already: the race is lost."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} exists already.")


class StoreUnavailableError(StoreError):
    """The store did not answer, or answered with errors that pass, for longer than the retries last."""

    def __init__(self, uri: str, tries: int, detail: str) -> None:
        super().__init__(f"{uri} could not be reached in {tries} tries: {detail}")


class StoreDeniedError(StoreError):
    """The store refuses this caller. Waiting does not help."""

    def __init__(self, uri: str, detail: str) -> None:
        super().__init__(f"Access to {uri} is denied; check the replica role and the bucket's policy: {detail}")


@dataclass(frozen=True)
class Part:
    """Bytes of an object, how long the whole object is, and when it was created."""

    body: memoryview
    size: int
    # Seconds since 1970 by the store's own clock (S3 counts whole ones): the only time that all replicas share.
    created_at: float


class Store(ABC):
    """Objects below one prefix; see the module's text for the promises."""

    @abstractmethod
    def create(self, key: str, body: Bytes) -> None:
        """Write a new object.

        Raises:
            ObjectExistsError: the key is taken.
            StoreUnavailableError: out of reach.
            StoreDeniedError: refused.
        """

    def upload(self, key: str, body: Bytes) -> None:
        """Write an object that nobody else writes, however large: as `create`, but not exclusive where it is large."""
        self.create(key, body)

    @abstractmethod
    def read(self, key: str, start: int = 0, stop: int | None = None) -> Part:
        """The bytes from `start` up to `stop` (exclusive, None for the end); fewer where the object is shorter.

        Raises:
            ObjectMissingError: no such object.
            StoreUnavailableError: out of reach.
            StoreDeniedError: refused.
        """

    def stream(self, key: str, start: int, stop: int) -> Iterator[memoryview]:
        """The bytes from `start` up to `stop` as they come in, in pieces of any size; fewer where it is shorter.

        Raises as `read`, at the first piece or later.
        """
        yield self.read(key, start, stop).body

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Whether the object is there; raises as `read` otherwise."""

    @abstractmethod
    def keys(self, folder: str, stop: str) -> list[str]:
        """The keys below `folder` (which ends with a slash) that sort before `stop`, sorted; raises as `read`."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are not there are no error. Raises as `read` otherwise."""

    @abstractmethod
    def uri(self, key: str) -> str:
        """The absolute URI of a key, for messages."""
