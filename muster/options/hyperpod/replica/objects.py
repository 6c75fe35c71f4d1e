"""The pod's transfers with S3, by boto3: it checks what S3 has checksums of, and finds the pod's credentials.

Every call is repeated a bounded number of times. A download continues where its connection broke, and ends with the
bytes of one version of the object or not at all.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError, NoCredentialsError
from urllib3.exceptions import HTTPError

from muster.contract.layout import s3_uri, split_s3_uri
from muster.contract.run.replica_variables import ENV_REGION
from muster.replica.replica_errors import StoppedError
from muster.replica.store.transport import (
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

TRIES = 6
_CONNECT_SECONDS, _READ_SECONDS = 10, 60
CONNECTIONS = 8
_PIECE = 2**20
UNFINISHED = ".tmp"
"""How a name ends that is being written. `store/checkpoints.py` names states so, too."""
# One PUT up to here. S3: an upload has at most 10,000 parts.
PART_BYTES = 64 * 2**20
_DAMAGED = "its checksum does not match its bytes"
_DENIED = {"AccessDenied", "403", "Forbidden", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"}
_MISSING = {"NoSuchKey", "404", "NotFound"}
_WRONG = {"NoSuchBucket", "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
_REPLACED = {"PreconditionFailed", "412"}


@dataclass(frozen=True)
class Found:
    """An object in a listing: its key, bytes, version, and when it was written (seconds since 1970)."""

    bucket: str
    key: str
    size: int
    etag: str
    modified: float

    @property
    def uri(self) -> str:
        """`s3://bucket/key`."""
        return s3_uri(self.bucket, self.key)


class DamagedError(StoreUnavailableError):
    """An object's bytes do not have its checksum, in all tries."""


@dataclass
class Objects:
    """S3 as a pod uses it. A download ends with `StoppedError` soon after `stop` is set."""

    stop: threading.Event = field(default_factory=threading.Event)

    @cached_property
    def client(self) -> S3Client:
        """The client; made when it is first used. Safe to use in several threads."""
        import boto3  # noqa: PLC0415 - takes longer than a pod without a usable input needs

        bounds = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": TRIES},
            max_pool_connections=2 * CONNECTIONS,
        )
        return boto3.Session().client("s3", region_name=os.environ.get(ENV_REGION) or None, config=bounds)

    def below(self, uri: str) -> list[Found]:
        """All objects whose keys begin as `uri` does; without those that stand for folders.

        Raises:
            StoreDeniedError, StoreUnavailableError
        """
        bucket, prefix = split_s3_uri(uri)
        with errors_of(uri):
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            return [
                Found(bucket, item["Key"], item["Size"], item["ETag"], item["LastModified"].timestamp())
                for page in pages
                for item in page.get("Contents", [])
                if not item["Key"].endswith("/")
            ]

    def download(self, found: Found, path: Path) -> str:
        """Write an object to `path`; returns the version's ETag. What is unfinished lies beside it.

        Raises:
            ObjectMissingError, StoreDeniedError, StoreUnavailableError
            StoppedError: `stop` was set.
        """
        # In its own folder: each folder below may be a mount of its own, and nothing is renamed from one to another.
        # The same name each time, so that a restarted container overwrites what a killed one has left.
        part = path.with_name(f".muster-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}{UNFINISHED}")
        path.parent.mkdir(parents=True, exist_ok=True)
        detail = ""
        try:
            for _ in range(TRIES):
                with part.open("wb") as file:
                    etag, detail = self._fetch(found, file)
                if not detail:
                    part.replace(path)
                    return etag
        finally:
            part.unlink(missing_ok=True)
        raise DamagedError(found.uri, TRIES, detail)

    def _fetch(self, found: Found, file: BinaryIO) -> tuple[str, str]:
        """Fetch one version of an object; returns its ETag, and what is wrong with the bytes (empty: nothing)."""
        with errors_of(found.uri):
            answer = self.client.get_object(Bucket=found.bucket, Key=found.key, ChecksumMode="ENABLED")
        etag, size, check = answer["ETag"], answer["ContentLength"], _check_of(answer)
        broken = 0
        while True:
            try:
                self._copy(answer, file, check)
            except FlexibleChecksumError:  # of an answer that has arrived whole
                return etag, _DAMAGED
            except (BotoCoreError, HTTPError, ConnectionError, TimeoutError) as error:
                broken += 1
                if broken >= TRIES:
                    raise StoreUnavailableError(found.uri, TRIES, _first_line(error)) from None
            if (fetched := file.seek(0, os.SEEK_CUR)) >= size:
                break
            try:
                with errors_of(found.uri):
                    span = f"bytes={fetched}-"
                    answer = self.client.get_object(Bucket=found.bucket, Key=found.key, Range=span, IfMatch=etag)
            except ObjectExistsError:  # 412: a newer version
                return etag, "it was replaced while it was read"
        file.flush()
        os.fsync(file.fileno())
        return etag, "" if check is None or check.is_right else _DAMAGED

    def _copy(self, answer: GetObjectOutputTypeDef, file: BinaryIO, check: _Check | None) -> None:
        while piece := answer["Body"].read(_PIECE):
            if self.stop.is_set():
                raise StoppedError
            file.write(piece)
            if check is not None:
                check.digest.update(piece)

    def put(self, uri: str, body: bytes) -> str:
        """Write a small object; returns its ETag. Raises StoreDeniedError, StoreUnavailableError."""
        bucket, key = split_s3_uri(uri)
        with errors_of(uri):
            return self.client.put_object(Bucket=bucket, Key=key, Body=body)["ETag"]

    def upload(self, file: BinaryIO, size: int, uri: str, is_whole: Callable[[], bool]) -> str | None:
        """Write the first `size` bytes of a file; returns the ETag.

        None, with nothing written, where the file is not whole any more once it is read. Raises as `put`.
        """
        if size <= PART_BYTES:
            body = os.pread(file.fileno(), size, 0) if size else b""
            return self.put(uri, body) if len(body) == size and is_whole() else None
        return self._upload_parts(file, size, uri, is_whole)

    def _upload_parts(self, file: BinaryIO, size: int, uri: str, is_whole: Callable[[], bool]) -> str | None:
        bucket, key = split_s3_uri(uri)
        length = max(PART_BYTES, -(-size // 10_000))
        with errors_of(uri):
            upload = self.client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
            done = False

            def put(number: int) -> Any:
                body = os.pread(file.fileno(), min(length, size - (number - 1) * length), (number - 1) * length)
                answer = self.client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=body)
                checksums = {name: value for name, value in answer.items() if name.startswith("Checksum")}
                return {"PartNumber": number, "ETag": answer["ETag"], **checksums}

            try:
                with ThreadPoolExecutor(2) as pool:
                    parts = list(pool.map(put, range(1, -(-size // length) + 1)))
                if not is_whole():
                    return None
                answer = self.client.complete_multipart_upload(
                    Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}
                )
                done = True
                return answer["ETag"]
            finally:
                if not done:
                    with suppress(ClientError, BotoCoreError):
                        self.client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)

    def delete(self, uri: str) -> None:
        """Delete an object; a missing one is no error. Raises StoreDeniedError, StoreUnavailableError."""
        bucket, key = split_s3_uri(uri)
        with errors_of(uri):
            self.client.delete_object(Bucket=bucket, Key=key)


@dataclass(frozen=True)
class _Check:
    """What S3 says of an object's bytes, and the digest of what they are, with the methods of hashlib's."""

    expected: bytes
    digest: Any

    @property
    def is_right(self) -> bool:
        """Whether all bytes have the checksum."""
        return bool(self.digest.digest() == self.expected)


class _Crc32:
    """zlib's CRC-32 as hashlib's digests are used."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, piece: bytes) -> None:
        self._value = zlib.crc32(piece, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


def _check_of(answer: GetObjectOutputTypeDef) -> _Check | None:
    """A check of the whole object that Python's own library can make; None where S3 has none."""
    known: list[tuple[str | None, Callable[[], Any]]] = [
        (answer.get("ChecksumSHA256"), hashlib.sha256),
        (answer.get("ChecksumSHA1"), lambda: hashlib.sha1(usedforsecurity=False)),
        (answer.get("ChecksumCRC32"), _Crc32),
    ]
    # Of an upload in parts it may be one of the parts' checksums: those have the number of parts behind them.
    if answer.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT":
        for expected, digest in known:
            if expected and "-" not in expected:
                return _Check(base64.b64decode(expected), digest())
    tag = answer["ETag"].strip('"')
    # The MD5 of what was sent at once, unless it is encrypted with a key of KMS or of the customer.
    is_plain = answer.get("ServerSideEncryption") in {None, "AES256"} and answer.get("SSECustomerAlgorithm") is None
    if not is_plain or not re.fullmatch(r"[0-9a-f]{32}", tag):
        return None
    return _Check(bytes.fromhex(tag), hashlib.md5(usedforsecurity=False))


@contextmanager
def errors_of(uri: str) -> Iterator[None]:
    """Raise the errors of a call to S3 as those of the replica's store."""
    try:
        yield
    except NoCredentialsError as error:
        # A pod that was made before its association took effect never gets any. The next one may.
        needed = "the pod's service account needs a pod identity association before the pod is made"
        raise StoreUnavailableError(uri, TRIES, f"{_first_line(error)}: {needed}") from None
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        detail = _first_line(error)
        if code in _DENIED or code in _WRONG:
            raise StoreDeniedError(uri, detail) from None
        if code in _MISSING:
            raise ObjectMissingError(uri) from None
        if code in _REPLACED:
            raise ObjectExistsError(uri) from None
        raise StoreUnavailableError(uri, TRIES, detail) from None
    except BotoCoreError as error:
        raise StoreUnavailableError(uri, TRIES, _first_line(error)) from None


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:500]
