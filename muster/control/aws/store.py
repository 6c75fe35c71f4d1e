"""Objects with compare-and-swap: the only way in which the control plane reads and writes its documents.

S3 is strongly consistent and has conditional writes: with `If-None-Match: *` one creator succeeds, with `If-Match` one
writer. 412 is a lost race; 409 means that two conditional writes collided, and the caller may try again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import ClientError

from muster.contract.aws.ranged_reads import first_bytes, whole_body
from muster.contract.document import StoredDocument
from muster.contract.errors import ConflictError
from muster.contract.layout import s3_uri
from muster.control.aws.aws_errors import error_code, http_status, tolerated
from muster.control.runtime import clock

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

D = TypeVar("D", bound=StoredDocument)
After = TypeVar("After", bound=StoredDocument | None)

TRIES = 20
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Stored:
    """An object's bytes and the ETag that a replacement must name."""

    body: bytes
    etag: str


@dataclass(frozen=True)
class Version:
    """The ETag of an object, and when it was written."""

    etag: str
    written_at: datetime


class DocumentStore:
    """The control plane's view of one bucket."""

    def __init__(self, s3: S3Client, bucket: str) -> None:
        self.s3 = s3
        self.bucket = bucket

    def uri(self, key: str) -> str:
        """`s3://bucket/key`."""
        return s3_uri(self.bucket, key)

    def get(self, key: str) -> Stored | None:
        """The object; None where there is none. A denied request is an error, not a missing object."""
        with tolerated("NoSuchKey"):
            answer = self.s3.get_object(Bucket=self.bucket, Key=key)
            return Stored(answer["Body"].read(), answer["ETag"])
        return None

    def read_bounded(self, key: str, most: int) -> bytes | None:
        """An object that a replica wrote; None where there is none. At most `most` bytes are transferred.

        Raises:
            OversizedDocumentError: it is larger.
        """
        try:
            answer = self.s3.get_object(Bucket=self.bucket, Key=key, Range=first_bytes(most))
        except ClientError as error:
            if error_code(error) == "InvalidRange":  # an empty object has no first byte
                return b""
            if error_code(error) == "NoSuchKey":
                return None
            raise
        return whole_body(answer, self.uri(key), most)

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        return self.version(key) is not None

    def version(self, key: str) -> Version | None:
        """The current version of an object; None where there is none."""
        # The answer to a HEAD has no body that could name a code.
        with tolerated(404):
            answer = self.s3.head_object(Bucket=self.bucket, Key=key)
            return Version(answer["ETag"], answer["LastModified"])
        return None

    def keys(self, prefix: str) -> Iterator[str]:
        """The keys under `prefix` in order; 1,000 to a call."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        for page in pages:
            for item in page.get("Contents", []):
                yield item["Key"]

    def document(self, kind: type[D], key: str) -> D | None:
        """The document at `key`; None where there is none.

        Raises:
            DocumentError: it cannot be read.
        """
        found = self.get(key)
        return None if found is None else kind.from_json(found.body, self.uri(key))

    def first(self, key: str, document: D) -> D:
        """Write a document that is written once. The first one written is valid and is returned."""
        if self.create(key, document.to_json()):
            return document
        return self.document(type(document), key) or document

    def change(self, kind: type[D], key: str, change: Callable[[D | None], After]) -> After:
        """Compare-and-swap of a document: `change` gets the current one, and what it returns is written and returned.

        `change` is pure. It is called again with the newer document whenever another writer was first. Nothing is
        written where it returns None, or what it got.

        Raises:
            DocumentError: the document cannot be read.
            ConflictError: other writers were first in every try; the call may be repeated.
        """
        for _ in self.attempts(self.uri(key)):
            found = self.get(key)
            before = None if found is None else kind.from_json(found.body, self.uri(key))
            after = change(before)
            if after is None or after == before or self.put(key, after.to_json(), found.etag if found else None):
                return after
        raise AssertionError  # attempts() ends by raising

    def put(self, key: str, body: bytes, etag: str | None) -> bool:
        """Replace the version with this ETag, or create the object where that is None. False: another was first."""
        return self.create(key, body) if etag is None else self.replace(key, body, etag)

    def create(self, key: str, body: bytes, content_type: str = "application/json") -> bool:
        """Write an object that must not exist yet. False where it exists: another writer was first."""

        def put() -> None:
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, IfNoneMatch="*", ContentType=content_type)

        return self._conditional(key, put)

    def replace(self, key: str, body: bytes, etag: str, content_type: str = "application/json") -> bool:
        """Replace the version with this ETag. False where it is no longer the current one, or there is none."""

        def put() -> None:
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, IfMatch=etag, ContentType=content_type)

        return self._conditional(key, put)

    def count(self, prefix: str) -> int:
        """How many objects there are under `prefix`."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return sum(page["KeyCount"] for page in pages)

    def listed(self, prefix: str) -> list[tuple[str, datetime]]:
        """The keys under `prefix`, each with the time at which its object was written."""
        # ListObjectsV2: at most 1,000 keys a page.
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [(item["Key"], item["LastModified"]) for page in pages for item in page.get("Contents", [])]

    def attempts(self, what: str) -> Iterator[None]:
        """The tries of a read-change-write loop, with growing, jittered pauses between them.

        Raises:
            ConflictError: after the last one.
        """
        for count in range(TRIES):
            if count:
                clock.sleep(random.uniform(0, pause_limit(count)))  # noqa: S311 - jitter
            yield
        message = f"{what} changed during each of {TRIES} compare-and-swap tries; the call will be retried"
        raise ConflictError(message)

    def _conditional(self, key: str, put: Callable[[], None]) -> bool:
        for _ in self.attempts(self.uri(key)):
            try:
                put()
            except ClientError as error:
                # A replaced object that does not exist any more answers 404.
                if http_status(error) == 412 or error_code(error) == "NoSuchKey":
                    return False
                if http_status(error) != 409:
                    raise
            else:
                return True
        raise AssertionError  # attempts() ends by raising


def pause_limit(tries: int) -> float:
    """The longest pause after so many tries of a compare-and-swap, in seconds."""
    return float(_PAUSE_SECONDS * 2 ** min(tries, 5))
