"""One S3 object as a stream with limits on bytes and time, which continues after a broken connection."""

from __future__ import annotations

import io
from http import HTTPStatus
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from muster.contract.aws.ranged_reads import object_size
from muster.contract.layout import s3_uri
from muster.control.aws.aws_errors import error_code, error_message, http_status, is_transient
from muster.control.manifest.manifest_errors import (
    MIB,
    BeyondLimitsError,
    Limits,
    ManifestError,
    ManifestProblem,
    check,
)
from muster.control.runtime.clock import TimeBudget

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client
    from typing_extensions import Buffer

# The first request: a manifest at the beginning of an archive then transfers at most this much.
FIRST_RANGE = MIB

# botocore wraps most errors of a transfer, but not all.
_TRANSFER_ERRORS = (BotoCoreError, HTTPError, OSError)


class ObjectSource(io.RawIOBase):
    """Reads an object from its beginning by ranged GETs; opens it at once.

    A broken transfer is resumed, at most `limits.interruptions` times; the ETag ensures that it is the same object.
    `missing` is True where there is no such key. Every other failure is a ManifestError.
    """

    def __init__(self, s3: S3Client, bucket: str, key: str, limits: Limits, budget: TimeBudget) -> None:
        self.uri = s3_uri(bucket, key)
        self.missing = False
        self.size = 0
        self._s3, self._bucket, self._key = s3, bucket, key
        self._limits, self._budget = limits, budget
        self._offset = 0
        self._interruptions = 0
        self._etag: str | None = None
        self._body: StreamingBody | None = None
        self._open()

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill `buffer` from one read of the transfer; 0 at the object's end."""
        view = memoryview(buffer)
        while self._offset < self.size:
            check(self._budget, self.uri)
            allowed = self._limits.read_bytes - self._offset
            if allowed <= 0:
                detail = f"no manifest in the first {self._limits.read_bytes:,} bytes; write it first"
                raise BeyondLimitsError(self.uri, detail)
            chunk = self._read(min(len(view), allowed))
            if chunk:
                view[: len(chunk)] = chunk
                self._offset += len(chunk)
                return len(chunk)
        return 0

    def close(self) -> None:
        """Close the connection; the rest of the object is not transferred."""
        self._drop()
        super().close()

    def _read(self, size: int) -> bytes:
        """Some bytes; none at the end of the range or where the transfer broke."""
        try:
            if self._body is None:
                self._open()
            chunk = self._body.read(size) if self._body is not None else b""
        except _TRANSFER_ERRORS as error:
            self._drop()
            self._interruptions += 1
            if self._interruptions > self._limits.interruptions:
                last = f"{type(error).__name__} ({error})"
                detail = f"the transfer failed {self._interruptions} times, most recently with {last}"
                raise ManifestError(ManifestProblem.UNAVAILABLE, self.uri, detail, is_passing=True) from None
            return b""
        if not chunk:
            self._drop()
        return chunk

    def _open(self) -> None:
        end = str(FIRST_RANGE - 1) if self._offset < FIRST_RANGE else ""
        request = {"Bucket": self._bucket, "Key": self._key, "Range": f"bytes={self._offset}-{end}"}
        if self._etag is not None:
            request["IfMatch"] = self._etag
        try:
            answer = self._s3.get_object(**request)  # type: ignore[arg-type]
        except ClientError as error:
            self._refused(error)
            return
        except BotoCoreError as error:
            # botocore has already retried.
            raise ManifestError(ManifestProblem.UNAVAILABLE, self.uri, str(error), is_passing=True) from None
        self._body, self._etag = answer["Body"], answer["ETag"]
        self.size = object_size(answer.get("ContentRange", ""), answer["ContentLength"])

    def _refused(self, error: ClientError) -> None:
        code, status, first = error_code(error), http_status(error), self._etag is None
        if first and code == "NoSuchKey":
            self.missing = True
        elif first and code == "InvalidRange":
            self.size = 0  # only an empty object has no first byte
        elif code == "NoSuchBucket":
            raise ManifestError(ManifestProblem.ABSENT, self.uri, f"there is no bucket {self._bucket}") from None
        elif status == HTTPStatus.FORBIDDEN:
            # S3 also answers 403 for a missing key, unless the caller may list the bucket.
            detail = f"{code}: allow s3:GetObject on the key and s3:ListBucket on {self._bucket}"
            raise ManifestError(ManifestProblem.DENIED, self.uri, detail) from None
        elif not first and status in {HTTPStatus.NOT_FOUND, HTTPStatus.PRECONDITION_FAILED}:
            detail = "the object changed while it was read"
            raise ManifestError(ManifestProblem.UNAVAILABLE, self.uri, detail, is_passing=True) from None
        else:
            detail = f"S3 answered {status} {code}: {error_message(error)}"
            passing = is_transient(error)
            raise ManifestError(ManifestProblem.UNAVAILABLE, self.uri, detail, is_passing=passing) from None

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None
