"""What a run with source code needs of the bucket: its source, and Muster's replica package.

The package comes with the functions' code. Its key is its digest, and a plan pins it. So the reruns of a run get the
package with which the run began, whatever has been deployed since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from muster.contract.training.source_delivery import REFRESH_DAYS, package_key
from muster.control.aws.store import DocumentStore
from muster.control.runtime import clock


class ReplicaPackage:
    """The package in the file `path`; it is read when a run first needs it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _body(self) -> bytes:
        return self._path.read_bytes()

    @cached_property
    def key(self) -> str:
        """Where it is stored in the stack's bucket."""
        return package_key(hashlib.sha256(self._body).hexdigest())

    def store(self, store: DocumentStore) -> str:
        """Store the package unless a recent copy exists; its URI. It then exists for as long as a run can need it.

        Raises:
            ConflictError: others kept replacing it.
        """
        if not keep(store, self.key, lambda: self._body):
            # If this fails, another plan has just stored it.
            store.create(self.key, self._body, "application/zip")
        return store.uri(self.key)


def keep(store: DocumentStore, key: str, read: Callable[[], bytes | None]) -> bool:
    """Write an object again with what `read` returns, unless it is young; whether it exists.

    Objects of this kind expire by their age (source_delivery.EXPIRY_DAYS).

    Raises:
        ConflictError: others kept replacing it.
    """
    for _ in store.attempts(store.uri(key)):
        found = store.version(key)
        if found is None:
            return False
        if clock.utc_now() - found.written_at <= timedelta(days=REFRESH_DAYS):
            return True
        body = read()
        if body is not None and store.replace(key, body, found.etag, "application/octet-stream"):
            return True
    raise AssertionError  # attempts() ends by raising
