"""The object store that connects the replicas: what every implementation guarantees.

- Objects are written once and never changed, but for those of `writer`; they may be deleted. `create` is atomic and
  exclusive: of any number of concurrent calls for one key exactly one returns, all others raise ObjectExistsError; a
  reader sees the whole object or nothing.
- Reads are strongly consistent: once `create` has returned or raised ObjectExistsError, every reader finds the object.
  One exception: if the answer to a successful `create` is lost, its retry raises ObjectExistsError. Callers therefore
  read the object instead of assuming that another process wrote it.
- Four kinds of failure: missing, exists already, unavailable (after bounded retries), denied (no retry).
- Keys are relative to the run's prefix, of letters, digits and `/-_.`.
- Instances may be used from several threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from muster.contract.errors import MusterError

Bytes = bytes | bytearray | memoryview

# Part size of multipart uploads. A part takes 0.2 s at the 85 MB/s of one connection to S3, many times the 30 ms of a
# request.
PART_BYTES = 16 * 2**20
OBJECT_BYTES_MAX = 10_000 * PART_BYTES  # S3: an upload has at most 10,000 parts


class StoreError(MusterError):
    """Base class of a store's errors."""


class ObjectMissingError(StoreError):
    """The object does not exist (yet)."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} does not exist.")


class ObjectExistsError(StoreError):
    """The object exists already: another process created it first."""

    def __init__(self, uri: str) -> None:
        super().__init__(f"{uri} exists already.")


class StoreUnavailableError(StoreError):
    """The store did not answer, or answered with transient errors, in all retries."""

    def __init__(self, uri: str, tries: int, detail: str) -> None:
        super().__init__(f"{uri} could not be reached in {tries} tries: {detail}")


class StoreDeniedError(StoreError):
    """The store denies access. A retry does not help."""

    def __init__(self, uri: str, detail: str) -> None:
        super().__init__(f"Access to {uri} is denied; check the replica role and the bucket's policy: {detail}")


@dataclass(frozen=True)
class ObjectRange:
    """Bytes of an object, the size of the whole object, and its creation time."""

    body: memoryview
    size: int
    # Seconds since 1970 by the store's clock (S3 has whole seconds): the only time that all replicas share.
    created_at: float


class Creation(ABC):
    """An object that is sent while it is made. It exists only once all of it was sent. For one thread."""

    @abstractmethod
    def send(self, piece: Bytes) -> None:
        """The next bytes. Raises nothing: `finish` says what went wrong."""

    @abstractmethod
    def finish(self) -> bool:
        """After all bytes: whether the object was created. If not, call `create`, which says why not."""

    @abstractmethod
    def discard(self) -> None:
        """Create nothing. Not after `finish`."""


class ObjectWriter(ABC):
    """An object that is being written piece by piece. It exists, whole, once it is closed. For one thread."""

    @abstractmethod
    def write(self, body: Bytes) -> None:
        """Append bytes; they may be sent later. Raises as `close`."""

    @abstractmethod
    def close(self) -> None:
        """Complete the object.

        Raises:
            StoreUnavailableError: unavailable.
            StoreDeniedError: denied.
        """

    @abstractmethod
    def discard(self) -> None:
        """Give up: the object stays as it was before. Never raises."""


class Store(ABC):
    """Objects below one prefix; the module's docstring lists the guarantees."""

    @abstractmethod
    def create(self, key: str, body: Bytes) -> None:
        """Write a new object.

        Raises:
            ObjectExistsError: the key exists.
            StoreUnavailableError: unavailable.
            StoreDeniedError: denied.
        """

    def creation(self, key: str, size: int) -> Creation | None:  # noqa: ARG002 - for stores that have one
        """Begin to create an object of `size` bytes that is sent while it is made. None: call `create` with all."""
        return None

    def upload(self, key: str, body: Bytes) -> None:
        """Write an object of any size that no other process writes: as `create`, but not exclusive if it is large."""
        self.create(key, body)

    @abstractmethod
    def writer(self, key: str, size: int | None = None) -> ObjectWriter:
        """Write an object of any size without holding it in memory; an existing one is replaced.

        Args:
            size: its bytes, if they are known: of a small object less is held in memory.
        """

    @abstractmethod
    def read(self, key: str, start: int = 0, stop: int | None = None) -> ObjectRange:
        """The bytes from `start` up to `stop` (exclusive, None for the end); fewer if the object is shorter.

        Raises:
            ObjectMissingError: no such object.
            StoreUnavailableError: unavailable.
            StoreDeniedError: denied.
        """

    def stream(
        self,
        key: str,
        start: int,
        stop: int,
        *,
        sizes: tuple[int, int] = (0, 0),  # noqa: ARG002 - of pieces that are read anyway
    ) -> Iterator[memoryview]:
        """The bytes from `start` up to `stop` while they arrive, in pieces of any size; fewer if the object is shorter.

        Each piece is valid until the next one. Raises as `read`, at the first piece or later.

        Args:
            sizes: of the first piece, and of each other one, as the reader would like them; 0: any.
        """
        yield self.read(key, start, stop).body

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Whether the object exists; raises StoreUnavailableError and StoreDeniedError as `read`."""

    @abstractmethod
    def keys(self, folder: str, stop: str, over: int = -1) -> list[str]:
        """The keys below `folder` (which ends with a slash) that sort before `stop`, sorted; raises as `read`.

        Args:
            over: only those of objects of more bytes.
        """

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones are not an error. Raises StoreUnavailableError, StoreDeniedError as `read`."""

    @abstractmethod
    def uri(self, key: str) -> str:
        """The absolute URI of a key, for messages."""


def create_once(store: Store, key: str, body: Bytes) -> bool:
    """Create an object unless it exists, and say whether this call has; raises as `Store.create` otherwise."""
    try:
        store.create(key, body)
    except ObjectExistsError:
        return False
    return True
