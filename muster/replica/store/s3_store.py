"""A store in S3, by obstore's synchronous API (which releases the GIL, so threads run in parallel).

Large objects that are in memory, and ranges that are read piece by piece, are moved without copies by `bulk`, and by
obstore where that cannot.

The region is that of the run. Credentials come from the environment, as for every AWS client; those of a container role
(AWS_CONTAINER_CREDENTIALS_*) are renewed before they expire.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from muster.contract.layout import s3_uri
from muster.replica.store.bulk.connections import BrokenError
from muster.replica.store.bulk.credentials import region_of, s3_endpoint
from muster.replica.store.bulk.transfers import LeftToObstoreError, Transfers, Uploaded
from muster.replica.store.missing_objects import MissingObjects
from muster.replica.store.pace import PAUSE_SECONDS, Pace
from muster.replica.store.transport import (
    PART_BYTES,
    Bytes,
    Creation,
    ObjectExistsError,
    ObjectMissingError,
    ObjectRange,
    ObjectWriter,
    Store,
    StoreDeniedError,
    StoreUnavailableError,
)
from muster.replica.store.upload_writer import UploadWriter

DEFAULT_REGION = "us-east-1"  # for a process outside of SageMaker that names no region
TRIES = 8
BACKOFF_FIRST_SECONDS = 0.1
BACKOFF_MAX_SECONDS = 5.0
CONNECT_SECONDS = 5
# A single PUT has at most 5 GiB, which takes a minute at the 85 MB/s of one connection to S3.
REQUEST_SECONDS = 120
PARTS_AT_ONCE = 16
PART_BYTES_MIN = 5 * 2**20  # S3: of all parts but the last one
# While an object is written piece by piece, so much of it is in memory at once, in parts that are being sent.
SENT_SHARE = 1 / 16
# A multipart upload takes two more requests, one after the other: 40 ms, where 16 MiB take 200 ms over one connection.
UPLOAD_PARTS_FROM = 16 * 2**20
# Of obstore a stream yields the pieces in which the body arrives (up to 400 KB each); smaller ones are joined first.
STREAM_BYTES = 2**16
# From so many bytes on a request is made by `bulk`: there each byte costs more than the request.
BULK_BYTES = 2**18
# From so many bytes on an object is sent while it is made: it takes 10 ms over one connection.
CREATION_BYTES = 2**20
# The variables that name a private certificate authority, for AWS clients and for other programs.
CA_VARIABLES = ("AWS_CA_BUNDLE", "SSL_CERT_FILE")

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, RetryConfig
    from typing_extensions import Buffer

T = TypeVar("T")

# What obstore and `bulk` say of a 503, which to a HEAD has no code, and of a 416. obstore has no error types for them.
_SLOW_DOWN = re.compile(r"(status code:|S3 answers) 503\b|\bSlowDown\b")
_OUT_OF_RANGE = re.compile(r"(status code:|S3 answers) 416\b")

# `_call` alone retries.
_NO_RETRIES: RetryConfig = {"max_retries": 0}
_PART_RETRIES: RetryConfig = {
    "max_retries": TRIES - 1,
    "backoff": {
        "init_backoff": timedelta(seconds=BACKOFF_FIRST_SECONDS),
        "max_backoff": timedelta(seconds=BACKOFF_MAX_SECONDS),
    },
}


class S3ObjectStore(Store):
    """Objects of `bucket` below `prefix` (empty, or ending with a slash). `region`: None for this process's."""

    def __init__(self, bucket: str, prefix: str, pace: Pace | None = None, region: str | None = None) -> None:
        self._bucket, self._region = bucket, region
        self._prefix = prefix
        self._pace = pace or Pace()
        self.client = _client(bucket, region=region)
        self._missing = MissingObjects(self.client)
        self._bulk: Transfers | None = None

    def create(self, key: str, body: Bytes) -> None:
        """PUT with If-None-Match: *. S3 answers 412 if the object exists.

        It may also answer 409 while another such PUT is running, which can still fail: if no object exists after a
        409, the PUT is retried.
        """
        self._call(key, lambda: self._put(self._prefix + key, body))

    def creation(self, key: str, size: int) -> Creation | None:
        """PUT with If-None-Match: *, while the body is made: it is there a latency after its last byte."""
        if size >= CREATION_BYTES and (bulk := self._transfers(size)) is not None:
            with suppress(LeftToObstoreError, BaseError):
                return bulk.begin_put(self._prefix + key, size)
        return None

    def upload(self, key: str, body: Bytes) -> None:
        """PUT; large objects in parallel parts: one connection to S3 carries no more than about 85 MB/s."""
        if len(body) < UPLOAD_PARTS_FROM:
            self.create(key, body)
            return
        part = min(PART_BYTES, max(PART_BYTES_MIN, -(-len(body) // PARTS_AT_ONCE)))
        if (bulk := self._transfers(len(body))) is not None:
            with suppress(LeftToObstoreError):
                self._upload_parts(bulk, key, body, part)
                return
        self._call(key, lambda: self._put_parts(key, body, part))

    def writer(self, key: str, size: int | None = None) -> ObjectWriter:
        """A multipart upload, whose parts are sent while further bytes are written; a small object is one PUT.

        What a process leaves that dies meanwhile is deleted by the bucket's lifecycle rule.
        """
        path = self._prefix + key
        part, at_once = _pace(size)

        def put(body: Bytes) -> None:
            self._call(key, lambda: obstore.put(self.client, path, body, use_multipart=False))

        def put_parts(pieces: Iterator[Bytes]) -> None:
            # What was taken of `pieces` cannot be taken again: from the first part on all is left to the same client.
            if (bulk := self._transfers(part)) is not None:
                with suppress(LeftToObstoreError):
                    upload = self._call(key, lambda: bulk.begin_upload(path))
                    try:
                        self._send_parts(bulk, key, upload, _cut(pieces, part), at_once)
                    except LeftToObstoreError:
                        raise StoreUnavailableError(self.uri(key), 1, "the credentials have expired") from None
                    return
            # Here that client retries each request.
            client = _client(self._bucket, _PART_RETRIES, self._region)
            try:
                obstore.put(client, path, pieces, chunk_size=part, max_concurrency=at_once)
            except (PermissionDeniedError, UnauthenticatedError) as error:
                raise StoreDeniedError(self.uri(key), _first_line(error)) from None
            except BaseError as error:
                raise StoreUnavailableError(self.uri(key), TRIES, _first_line(error)) from None

        return UploadWriter(put, put_parts, 2 * part)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> ObjectRange:
        """GET, ranged unless the whole object is requested."""
        path = self._prefix + key
        return self._call(key, lambda: self._missing.found(path, lambda: self._get(path, start, stop)))

    def stream(self, key: str, start: int, stop: int, *, sizes: tuple[int, int] = (0, 0)) -> Iterator[memoryview]:
        """GET, yielding the body while it arrives. After a broken connection a new one continues at the same place.

        The pieces are used while they are in the cache, and no memory is requested from the system for them.
        """
        position, broken = start, 0
        while position < stop:
            try:
                # Of a body that broke the pieces lie anywhere.
                ordered = sizes if position == start else (sizes[1], sizes[1])
                for chunk in self._call(key, partial(self._open, key, position, stop, ordered)):
                    piece = memoryview(chunk)
                    yield piece
                    position += len(piece)
            except (BaseError, BrokenError) as error:
                broken += 1
                if broken == TRIES:
                    raise StoreUnavailableError(self.uri(key), TRIES, _first_line(error)) from None
            else:
                return

    def exists(self, key: str) -> bool:
        """HEAD."""
        try:
            self._call(key, lambda: self._head(self._prefix + key))
        except ObjectMissingError:
            return False
        return True

    def keys(self, folder: str, stop: str, over: int = -1) -> list[str]:
        """LIST, page by page (1,000 keys each) until `stop`."""
        return self._call(folder, lambda: self._list(folder, stop, over))

    def delete(self, keys: Sequence[str]) -> None:
        """DeleteObjects, 1,000 keys at a time."""
        if keys:
            self._call(keys[0], lambda: obstore.delete(self.client, [self._prefix + key for key in keys]))

    def uri(self, key: str) -> str:
        """`s3://bucket/key`."""
        return s3_uri(self._bucket, self._prefix + key)

    def _list(self, folder: str, stop: str, over: int) -> list[str]:
        found: list[str] = []
        for page in obstore.list(self.client, self._prefix + folder):
            keys = [entry["path"].removeprefix(self._prefix) for entry in page]
            found += [key for key, entry in zip(keys, page, strict=True) if key < stop and entry["size"] > over]
            if not keys or keys[-1] >= stop:
                break
        return found

    def _head(self, path: str) -> ObjectMeta:
        return self._missing.found(path, lambda: obstore.head(self.client, path))

    def _get(self, path: str, start: int, stop: int | None) -> ObjectRange:
        if start == 0 and stop is None:
            result = obstore.get(self.client, path)
        else:
            try:
                result = obstore.get(
                    self.client, path, options={"range": {"offset": start} if stop is None else (start, stop)}
                )
            except BaseError as error:
                if (meta := self._ended_before(path, start, error)) is None:
                    raise
                return ObjectRange(memoryview(b""), meta["size"], meta["last_modified"].timestamp())
        return ObjectRange(memoryview(result.bytes()), result.meta["size"], result.meta["last_modified"].timestamp())

    def _open(self, key: str, start: int, stop: int, sizes: tuple[int, int]) -> Iterable[Buffer]:
        """The body of a ranged GET, in the pieces in which it arrives, or in pieces of the `sizes`."""
        path = self._prefix + key
        try:
            return self._missing.found(path, partial(self._body, path, start, stop, sizes))
        except BaseError as error:
            if self._ended_before(path, start, error) is None:
                raise
            return ()

    def _ended_before(self, path: str, start: int, error: BaseError) -> ObjectMeta | None:
        """The object, if its range failed because it starts beyond the end. Other failures cost no further request."""
        if _OUT_OF_RANGE.search(str(error)) is None:
            return None
        meta = self._head(path)
        return meta if meta["size"] <= start else None

    def _body(self, path: str, start: int, stop: int, sizes: tuple[int, int]) -> Iterable[Buffer]:
        if (bulk := self._transfers(stop - start)) is not None:
            with suppress(LeftToObstoreError):
                first, size = sizes
                return bulk.get(path, start, stop).pieces(size or BULK_BYTES, first)
        return obstore.get(self.client, path, options={"range": (start, stop)}).stream(STREAM_BYTES)

    def _transfers(self, size: int) -> Transfers | None:
        """What moves so many bytes; None: obstore does."""
        if size < BULK_BYTES:
            return None
        if self._bulk is None:
            region, endpoint, authority = _place(self._region)
            self._bulk = Transfers(endpoint, self._bucket, region, os.environ, authority)
        return self._bulk if self._bulk.are_possible else None

    def _upload_parts(self, bulk: Transfers, key: str, body: Bytes, part: int) -> None:
        """A multipart upload; its parts are sent side by side.

        Raises:
            LeftToObstoreError: obstore must do it.
        """
        path, view = self._prefix + key, memoryview(body).cast("B")
        upload = self._call(key, lambda: bulk.begin_upload(path))
        pieces = (view[first : first + part] for first in range(0, len(view), part))
        self._send_parts(bulk, key, upload, pieces, PARTS_AT_ONCE)

    def _send_parts(self, bulk: Transfers, key: str, upload: str, parts: Iterable[Bytes], at_once: int) -> None:
        """Complete a multipart upload; no more than `at_once` of its parts, and the next one, are in memory.

        Raises:
            LeftToObstoreError: obstore must do it.
        """
        path, sent, running = self._prefix + key, list[Future[Uploaded]](), set[Future[Uploaded]]()

        def put(number: int, piece: Bytes) -> Uploaded:
            return self._call(key, lambda: bulk.put_part(path, upload, number, piece))

        try:
            with ThreadPoolExecutor(at_once, "upload") as pool:
                for number, piece in enumerate(parts, 1):
                    if len(running) == at_once:
                        ended, running = wait(running, return_when=FIRST_COMPLETED)
                        for part in ended:
                            part.result()
                    sent.append(pool.submit(put, number, piece))
                    running.add(sent[-1])
                uploaded = [part.result() for part in sent]
            self._call(key, lambda: bulk.complete_upload(path, upload, uploaded))
        except ObjectMissingError:
            # The upload: it is complete, and the answer was lost; or it has been deleted.
            if not self.exists(key):
                raise StoreUnavailableError(self.uri(key), 1, "the multipart upload has been deleted") from None
        except BaseException:
            with suppress(BaseError, OSError, LeftToObstoreError):
                bulk.abort_upload(path, upload)
            raise

    def _put_parts(self, key: str, body: Bytes, part: int) -> None:
        """A multipart upload by obstore."""
        path = self._prefix + key
        try:
            obstore.put(self.client, path, body, use_multipart=True, chunk_size=part, max_concurrency=PARTS_AT_ONCE)
        except AlreadyExistsError as error:
            # Its requests are not conditional: a 409 passes.
            raise GenericError(_first_line(error)) from None

    def _put(self, path: str, body: Bytes) -> None:
        try:
            self._put_new(path, body)
        except AlreadyExistsError as error:
            try:
                self._head(path)
            except FileNotFoundError:
                raise GenericError(_first_line(error)) from None
            raise

    def _put_new(self, path: str, body: Bytes) -> None:
        if (bulk := self._transfers(len(body))) is not None:
            with suppress(LeftToObstoreError):
                bulk.put(path, body, create=True)
                return
        obstore.put(self.client, path, body, mode="create", use_multipart=False)

    def _call(self, key: str, operation: Callable[[], T]) -> T:
        """Run one request; transient errors are retried, with full jitter between the tries; a 503 as `Pace` allows."""
        with self._pace.turn():
            return self._tried(key, operation)

    def _tried(self, key: str, operation: Callable[[], T]) -> T:
        since, failed, tries = time.monotonic(), 0, 0
        while True:
            begun = self._pace.begin()
            try:
                found = operation()
            except FileNotFoundError:
                raise ObjectMissingError(self.uri(key)) from None
            except AlreadyExistsError:
                raise ObjectExistsError(self.uri(key)) from None
            except (PermissionDeniedError, UnauthenticatedError) as error:
                raise StoreDeniedError(self.uri(key), _first_line(error)) from None
            except BaseError as error:
                detail = _first_line(error)
            else:
                self._pace.served()
                return found
            tries += 1
            if is_slow := _SLOW_DOWN.search(detail) is not None:
                self._pace.refused(begun)
            failed += not (is_slow and self._pace.waits(time.monotonic() - since))
            if failed == TRIES:
                raise StoreUnavailableError(self.uri(key), tries, detail)
            longest = PAUSE_SECONDS if is_slow else BACKOFF_MAX_SECONDS
            ceiling = min(longest, BACKOFF_FIRST_SECONDS * 2 ** min(tries - 1, TRIES))
            time.sleep(random.uniform(0, ceiling))  # noqa: S311 - spreads load, guards nothing


def _place(other: str | None = None) -> tuple[str, str, str | None]:
    """The region, the service's address, and a file with the certificates of a private authority.

    `other`: a region that may be another than this process's.
    """
    region = other or region_of(os.environ) or DEFAULT_REGION
    # An address that is set is that of every region: obstore takes it so, whatever it is given.
    set_ = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    endpoint = set_ or s3_endpoint(region)
    return region, endpoint, next((os.environ[name] for name in CA_VARIABLES if os.environ.get(name)), None)


def _client(bucket: str, retries: RetryConfig = _NO_RETRIES, region: str | None = None) -> S3Store:
    region, endpoint, authority = _place(region)
    options: ClientConfig = {
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "timeout": timedelta(seconds=REQUEST_SECONDS),
        "allow_http": endpoint.startswith("http://"),
    }
    if authority is not None:
        options["root_certificate"] = Path(authority).read_bytes()
    return S3Store(
        bucket,
        region=region,
        endpoint=endpoint,
        client_options=options,
        retry_config=retries,
        # Blocks have checksums of their own, and TLS protects the transfer.
        unsigned_payload=True,
    )


def _pace(size: int | None) -> tuple[int, int]:
    """Bytes of a part, and parts sent at once, for an object of `size` bytes."""
    if size is None:
        return PART_BYTES, PARTS_AT_ONCE
    sent = int(size * SENT_SHARE)
    # At least two, as large as they can be: every part is a request.
    part = min(PART_BYTES, max(PART_BYTES_MIN, sent // 2))
    return part, min(PARTS_AT_ONCE, max(1, sent // part))


def _cut(pieces: Iterable[Bytes], part: int) -> Iterator[Bytes]:
    """A copy of `pieces`, in parts of so many bytes; the last one may be shorter."""
    room = bytearray()
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while view:
            taken = min(len(view), part - len(room))
            room += view[:taken]
            view = view[taken:]
            if len(room) == part:
                yield room
                room = bytearray()
    if room:
        yield room


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:500]
