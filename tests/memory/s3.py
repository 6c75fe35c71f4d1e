"""S3: strongly consistent objects with conditional writes, ranges and listings. Without versions and multipart."""

import hashlib
import io
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from botocore.response import StreamingBody
from urllib3.exceptions import ProtocolError

from tests.memory.calls import AwsError, Operation, Parameters, refuse
from tests.memory.clock import VirtualClock

HOME_REGION = "us-east-1"
KEYS_PER_PAGE = 1_000  # ListObjectsV2: at most 1,000 keys a page
_KEY_BYTES_MAX = 1_024
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True)
class StoredObject:
    """An object as it is in the bucket."""

    body: bytes
    etag: str
    """With its quotes."""
    modified_at: datetime
    """In whole seconds, as in S3."""
    content_type: str


def refuse_foreign(regions: Mapping[str, str], region: str, parameters: Parameters) -> None:
    """A bucket is reached at the endpoint of its own region alone."""
    if regions.get(parameters["Bucket"], HOME_REGION) != region:
        refuse("PermanentRedirect", "The bucket you are attempting to access must be addressed elsewhere.", 301)


class _Interrupted(io.BytesIO):
    """A body whose connection breaks, as botocore meets it."""

    def __init__(self, body: bytes, after: int) -> None:
        super().__init__(body[:after])

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        if not found:
            message = "Connection broken"
            raise ProtocolError(message)
        return found


class S3:
    """Buckets. Every operation is atomic, whatever threads call it."""

    def __init__(self, clock: VirtualClock, account: str) -> None:
        self._clock = clock
        self._account = account
        self._lock = threading.Lock()
        self._buckets: dict[str, dict[str, StoredObject]] = {}
        self.regions: dict[str, str] = {}
        """Of the buckets that are not in the region of home."""
        self.interruptions: list[int] = []
        """The next transfers break, one each, after so many bytes."""
        bucket = {"Bucket", "ExpectedBucketOwner"}
        head = {*bucket, "Key", "IfMatch"}
        write = {*bucket, "Key", "Body", "IfMatch", "IfNoneMatch", "ContentType"}
        listing = {*bucket, "Prefix", "StartAfter", "ContinuationToken", "MaxKeys"}
        self.operations = {
            "GetObject": Operation(self._get, {*head, "Range"}),
            "HeadObject": Operation(self._head, head),
            "PutObject": Operation(self._put, write),
            "DeleteObject": Operation(self._delete, {*bucket, "Key"}, 204),
            "ListObjectsV2": Operation(self._list, listing),
        }

    def in_region(self, region: str) -> SimpleNamespace:
        """S3 at the endpoint of a region."""

        def there(operation: Operation) -> Operation:
            def effect(parameters: Parameters) -> dict[str, Any]:
                refuse_foreign(self.regions, region, parameters)
                return operation.effect(parameters)

            return operation._replace(effect=effect)

        return SimpleNamespace(operations={name: there(one) for name, one in self.operations.items()})

    def add_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        self._buckets[name] = {}

    def objects(self, bucket: str) -> dict[str, StoredObject]:
        """A copy of what is in a bucket, in the order in which S3 lists it."""
        with self._lock:
            return {key: self._buckets[bucket][key] for key in sorted(self._buckets[bucket], key=str.encode)}

    def peek(self, bucket: str, key: str) -> StoredObject | None:
        """An object, without a call."""
        return self._buckets[bucket].get(key)

    def _get(self, request: Parameters) -> dict[str, Any]:
        found = self._read(request)
        answer = _described(found)
        body = found.body
        if (span := _span(request.get("Range"), len(body))) is not None:
            answer["ContentRange"] = f"bytes {span.start}-{span.stop - 1}/{len(body)}"
            body = body[span.start : span.stop]
        sent = _Interrupted(body, self.interruptions.pop(0)) if self.interruptions else io.BytesIO(body)
        return {**answer, "ContentLength": len(body), "Body": StreamingBody(sent, len(body))}

    def _head(self, request: Parameters) -> dict[str, Any]:
        found = self._read(request)
        return {**_described(found), "ContentLength": len(found.body)}

    def _read(self, request: Parameters) -> StoredObject:
        with self._lock:
            found = self._bucket(request).get(request["Key"])
        if found is None:
            refuse("NoSuchKey", "The specified key does not exist.", 404)
        if "IfMatch" in request and not _names(request["IfMatch"], found):
            raise _precondition_failed()
        return found

    def _put(self, request: Parameters) -> dict[str, Any]:
        key, body = request["Key"], _bytes(request.get("Body", b""))
        if len(key.encode()) > _KEY_BYTES_MAX:
            refuse("KeyTooLongError", "Your key is too long", 400)
        wanted, unwanted = request.get("IfMatch"), request.get("IfNoneMatch")
        if unwanted not in {None, "*"} or (wanted is not None and unwanted is not None):
            message = "A header you provided implies functionality that is not implemented"
            refuse("NotImplemented", message, 501)
        etag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
        content_type = request.get("ContentType", "binary/octet-stream")
        with self._lock:
            bucket = self._bucket(request)
            found = bucket.get(key)
            if unwanted is not None and found is not None:
                raise _precondition_failed()
            if wanted is not None and found is None:
                refuse("NoSuchKey", "The specified key does not exist.", 404)
            if wanted is not None and found is not None and not _names(wanted, found):
                raise _precondition_failed()
            bucket[key] = StoredObject(body, etag, self._clock.now().replace(microsecond=0), content_type)
        return {"ETag": etag, "ServerSideEncryption": "AES256"}

    def _delete(self, request: Parameters) -> dict[str, Any]:
        with self._lock:
            self._bucket(request).pop(request["Key"], None)
        return {}

    def _list(self, request: Parameters) -> dict[str, Any]:
        prefix = request.get("Prefix", "")
        # A continuation token stands for all that came before it: StartAfter no longer counts.
        after = request.get("ContinuationToken") or request.get("StartAfter", "")
        most = min(request.get("MaxKeys", KEYS_PER_PAGE), KEYS_PER_PAGE)
        with self._lock:
            found = {key: one for key, one in self._bucket(request).items() if key.startswith(prefix)}
        keys = sorted((key for key in found if key.encode() > after.encode()), key=str.encode)
        contents = [_listed(key, found[key]) for key in keys[:most]]
        truncated = len(keys) > most
        return {
            "Name": request["Bucket"],
            "Prefix": prefix,
            "MaxKeys": request.get("MaxKeys", KEYS_PER_PAGE),
            "KeyCount": len(contents),
            "IsTruncated": truncated,
            **{name: request[name] for name in ("StartAfter", "ContinuationToken") if name in request},
            **({"Contents": contents} if contents else {}),
            **({"NextContinuationToken": keys[most - 1]} if truncated else {}),
        }

    def _bucket(self, request: Parameters) -> dict[str, StoredObject]:
        found = self._buckets.get(request["Bucket"])
        if found is None:
            refuse("NoSuchBucket", "The specified bucket does not exist", 404)
        if request.get("ExpectedBucketOwner", self._account) != self._account:
            refuse("AccessDenied", "Access Denied", 403)
        return found


def _listed(key: str, found: StoredObject) -> dict[str, Any]:
    return {
        "Key": key,
        "LastModified": found.modified_at,
        "ETag": found.etag,
        "Size": len(found.body),
        "StorageClass": "STANDARD",
    }


def _described(found: StoredObject) -> dict[str, Any]:
    return {
        "ETag": found.etag,
        "LastModified": found.modified_at,
        "ContentType": found.content_type,
        "AcceptRanges": "bytes",
        "ServerSideEncryption": "AES256",
        "Metadata": {},
    }


def _span(wanted: str | None, size: int) -> range | None:
    """The bytes of a Range header. None: the whole object, also for a header that means nothing."""
    found = _RANGE.fullmatch(wanted or "")
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:  # the last so many bytes
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(size, int(last) + 1) if last else size
        if last and int(last) < start:
            return None
    if start >= stop or start >= size:
        refuse("InvalidRange", "The requested range is not satisfiable", 416)
    return range(start, stop)


def _names(wanted: str, found: StoredObject) -> bool:
    return wanted == "*" or wanted.strip('"') == found.etag.strip('"')


def _precondition_failed() -> AwsError:
    return AwsError("PreconditionFailed", "At least one of the pre-conditions you specified did not hold", 412)


def _bytes(body: Any) -> bytes:
    if isinstance(body, str):
        return body.encode()
    return bytes(body) if isinstance(body, bytes | bytearray | memoryview) else bytes(body.read())
