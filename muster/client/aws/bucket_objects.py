"""Calls to S3: the objects in the stack's bucket."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from botocore.exceptions import ClientError as AwsError
from botocore.exceptions import HTTPClientError, IncompleteReadError

from muster.client.aws.connection import Connection
from muster.client.aws.error_translation import error_code, translated
from muster.contract.aws.ranged_reads import first_bytes, whole_body
from muster.contract.errors import MissingDocumentError
from muster.contract.layout import s3_uri
from muster.contract.training.source_delivery import REFRESH_DAYS

if TYPE_CHECKING:
    from botocore.response import StreamingBody


# Of one transfer in a row, without a byte in between: botocore has tried each of them three times.
_BREAKS_MAX = 4
_READERS_MAX = 8  # botocore keeps ten connections
_READS_PER_CONNECTION = 4


class _Condition(TypedDict, total=False):
    IfNoneMatch: str
    IfMatch: str


def readers(objects: int) -> int:
    """How many threads read so many small objects: a new connection takes as long as about four reads."""
    return min(_READERS_MAX, max(1, -(-objects // _READS_PER_CONNECTION)))


class Item(NamedTuple):
    """An object, and when it was written."""

    key: str
    etag: str
    at: datetime


class BucketObjects:
    """The objects in the stack's bucket."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def keys_after(self, prefix: str, start_after: str) -> Iterator[str]:
        """The keys under `prefix` that sort after `start_after`, in order; 1,000 to a call."""
        return (item.key for item in self.items_after(prefix, start_after))

    def items_after(self, prefix: str, start_after: str) -> Iterator[Item]:
        """The same keys with what a listing shows of their objects."""
        bucket = self._connection.stack.bucket
        with translated():
            pages = self._connection.s3.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=prefix, StartAfter=start_after
            )
            for page in pages:
                for item in page.get("Contents", []):
                    yield Item(item["Key"], item["ETag"], item["LastModified"])

    def read(self, key: str) -> bytes | None:
        """The object at `key`, or None when there is none."""
        bucket = self._connection.stack.bucket
        with translated("NoSuchKey"):
            return self._connection.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return None

    def read_bounded(self, key: str, most: int) -> bytes | None:
        """An object that a replica wrote, or None when there is none. At most `most` bytes are transferred.

        Raises:
            OversizedDocumentError: it is larger.
        """
        bucket = self._connection.stack.bucket
        with translated("NoSuchKey"):
            try:
                answer = self._connection.s3.get_object(Bucket=bucket, Key=key, Range=first_bytes(most))
            except AwsError as error:
                if error_code(error) == "InvalidRange":  # an empty object has no first byte
                    return b""
                raise
            return whole_body(answer, s3_uri(bucket, key), most)
        return None

    def read_range(self, key: str, start: int, stop: int, piece_bytes: int) -> Iterator[bytes]:
        """The bytes from `start` up to `stop` of an object, while they arrive; a broken transfer is continued.

        Raises:
            MissingDocumentError: there is no such object, or it is shorter.
        """
        position, breaks = start, 0
        while position < stop:
            before = position
            with translated("NoSuchKey", "InvalidRange"):
                try:
                    for piece in self._open(key, position, stop).iter_chunks(piece_bytes):
                        yield piece
                        position += len(piece)
                except (HTTPClientError, IncompleteReadError):
                    breaks = 0 if position > before else breaks + 1
                    if breaks == _BREAKS_MAX:
                        raise
                    time.sleep(breaks)
                    continue
            if position == before:
                raise MissingDocumentError(s3_uri(self._connection.stack.bucket, key))

    def _open(self, key: str, start: int, stop: int) -> StreamingBody:
        bucket = self._connection.stack.bucket
        return self._connection.s3.get_object(Bucket=bucket, Key=key, Range=f"bytes={start}-{stop - 1}")["Body"]

    def find(self, key: str) -> str | None:
        """The URI of the object at `key`, or None when there is none."""
        return None if self._stored(key) is None else s3_uri(self._connection.stack.bucket, key)

    def modified_at(self, key: str) -> datetime | None:
        """When the object at `key` was written, or None when there is none."""
        stored = self._stored(key)
        return None if stored is None else stored.at

    def store_content(self, key: str, body: Callable[[], bytes]) -> None:
        """Store an object whose key follows from its content, unless a recent copy is there."""
        bucket = self._connection.stack.bucket
        stored = self._stored(key)
        if stored is None or datetime.now(UTC) - stored.at > timedelta(days=REFRESH_DAYS):
            # The bucket's policy refuses an unconditional overwrite.
            condition: _Condition = {"IfNoneMatch": "*"} if stored is None else {"IfMatch": stored.etag}
            # With these answers another client has just stored the same content.
            with translated("PreconditionFailed", "ConditionalRequestConflict"):
                self._connection.s3.put_object(Bucket=bucket, Key=key, Body=body(), **condition)

    def _stored(self, key: str) -> Item | None:
        bucket = self._connection.stack.bucket
        with translated("404"):
            found = self._connection.s3.head_object(Bucket=bucket, Key=key)
            return Item(key, found["ETag"], found["LastModified"])
        return None
