"""A store in memory with S3's semantics: atomic exclusive creates, strong consistency, creation times in whole seconds.

It remembers everything that was ever written or deleted, for those who judge a schedule afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from muster.replica.store.transport import ObjectExistsError, ObjectMissingError, Part, Store

EPOCH_SECONDS = 1_800_000_000  # when the store's clock shows zero


class MemoryStore(Store):
    """Objects in a dictionary."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._objects: dict[str, Part] = {}
        self.creates: Counter[str] = Counter()
        self.written: dict[str, bytes] = {}
        self.deleted: list[str] = []

    def create(self, key: str, body: bytes | bytearray) -> None:
        if key in self._objects:
            raise ObjectExistsError(self.uri(key))
        kept = bytes(body)
        self._objects[key] = Part(memoryview(kept), len(kept), EPOCH_SECONDS + int(self._seconds()))
        self.creates[key] += 1
        self.written[key] = kept

    def read(self, key: str, start: int = 0, stop: int | None = None) -> Part:
        found = self._objects.get(key)
        if found is None:
            raise ObjectMissingError(self.uri(key))
        return Part(found.body[start:stop], found.size, found.created_at)

    def exists(self, key: str) -> bool:
        return key in self._objects

    def keys(self, folder: str, stop: str) -> list[str]:
        return sorted(key for key in self._objects if key.startswith(folder) and key < stop)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self._objects.pop(key, None) is not None:
                self.deleted.append(key)

    def uri(self, key: str) -> str:
        return f"memory:///{key}"
