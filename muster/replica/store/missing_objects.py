"""Whether a 403 means that there is no object.

S3 answers a GET or HEAD of a key without an object with 404 only to callers that may list the whole bucket. A replica
may list the prefixes of its own run alone, so it gets 403, as for an object that it may not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import GenericError, PermissionDeniedError
from obstore.store import S3Store

if TYPE_CHECKING:
    from obstore import ObjectMeta

# How long a store that has read an object takes every 403 for a missing one. Then it looks again, by a LIST: rights may
# have been withdrawn.
TRUST_SECONDS = 60.0

T = TypeVar("T")


class MissingObjects:
    """Distinguishes missing objects from those that may not be read. Instances may be used from several threads."""

    def __init__(self, client: S3Store) -> None:
        self._client = client
        self._has_read = False
        self._looked_at = -TRUST_SECONDS

    def found(self, path: str, request: Callable[[], T]) -> T:
        """What `request`, a GET or HEAD of `path`, returns.

        Raises:
            FileNotFoundError: there is no such object, whether S3 says 404 or 403.
            PermissionDeniedError: it exists, or the folder may not be listed.
        """
        try:
            answer = request()
        except PermissionDeniedError:
            if self._is_trusted() or not self._may_exist(path):
                raise FileNotFoundError(path) from None
            answer = self._again(path, request)
        self._has_read = True
        return answer

    def _again(self, path: str, request: Callable[[], T]) -> T:
        """Ask again for an object that a listing shows: a peer may have written it since the request. It may be gone by
        now, if this process was held up."""
        try:
            return request()
        except PermissionDeniedError:
            if self._may_exist(path):
                raise
            raise FileNotFoundError(path) from None

    def _is_trusted(self) -> bool:
        return self._has_read and time.monotonic() < self._looked_at + TRUST_SECONDS

    def _may_exist(self, path: str) -> bool:
        """Whether a listing shows the object; also where the folder may not be listed."""
        folder, slash, _ = path.rpartition("/")
        # A listing begins after its offset, and nearly always with the key itself.
        listing = obstore.list(self._client, folder + slash, offset=path[:-1])
        try:
            found = next((key for page in listing for key in _keys(page) if key >= path), None)
        except GenericError as error:
            # obstore has no error of its own for a LIST that is refused: its text has the status.
            if " 403 " in str(error):
                return True
            raise
        self._looked_at = time.monotonic()
        return found == path


def _keys(page: Iterable[ObjectMeta]) -> list[str]:
    return [entry["path"] for entry in page]
