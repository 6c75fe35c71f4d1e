"""Requests of S3 that move many bytes, signed and judged; their errors are those that obstore raises.

Whatever is not an ordinary answer (a redirect, a refused signature, a clock that is wrong, an authority that is not
known) is left to obstore: for a while it makes these requests as well.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from urllib.request import getproxies, proxy_bypass

from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PermissionDeniedError

from muster.replica.store.bulk.connections import BrokenError, Connections, ResponseHead, Sending
from muster.replica.store.bulk.credentials import Credentials, CredentialSource, NoCredentialsError
from muster.replica.store.bulk.signature import RequestTarget, signed_headers
from muster.replica.store.transport import Bytes, Creation

# How long obstore makes all requests after an answer that is left to it.
SUSPENDED_SECONDS = 60.0
_TRANSIENT = {408, 425, 429, 500, 502, 503, 504}
_CODE = re.compile(rb"<Code>([^<]*)</Code>")
_UPLOAD = re.compile(rb"<UploadId>([!-;=-~]+)</UploadId>")
_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")
_DENIED = b"AccessDenied"
# Their status may be 400.
_TRANSIENT_CODES = {b"SlowDown", b"RequestTimeout"}

log = logging.getLogger("muster.replica")


class LeftToObstoreError(Exception):
    """The request is left to the other client."""


@dataclass(frozen=True)
class Uploaded:
    """One part of a multipart upload."""

    number: int
    etag: str


@dataclass(frozen=True)
class _Request:
    connections: Connections
    path: str
    credentials: Credentials
    head: bytes
    is_conditional: bool


class Put(Creation):
    """A PUT whose body is sent piece by piece, where there is no object. What goes wrong is left to `create`."""

    def __init__(self, transfers: Transfers, request: _Request, sending: Sending) -> None:
        self._transfers, self._request, self._sending = transfers, request, sending

    def send(self, piece: Bytes) -> None:
        """See `Creation`."""
        self._sending.send(piece)

    def finish(self) -> bool:
        """See `Creation`."""
        try:
            self._transfers.judged(self._request, self._sending.answer()).close()
        except (BaseError, BrokenError, OSError, LeftToObstoreError) as error:
            log.info("event=created-afterwards path=%s reason=%r", self._request.path, _text(error))
            return False
        return True

    def discard(self) -> None:
        """See `Creation`."""
        self._sending.discard()


class Transfers:
    """One bucket's requests. Instances may be used from several threads."""

    def __init__(
        self, url: str, bucket: str, region: str, variables: Mapping[str, str], authority: str | None = None
    ) -> None:
        """
        Args:
            url: of the service; the bucket follows in the path.
            variables: the environment, for the credentials.
            authority: a file with the certificates of a private authority.
        """
        self._bucket, self._region = bucket, region
        self._credentials = CredentialSource(variables)
        self._suspended_until = 0.0
        self._connections: Connections | None = None
        if self._credentials.is_known and not _has_proxy(url):
            try:
                self._connections = Connections(url, authority)
            except (OSError, ValueError):  # an authority that cannot be read: obstore says so
                self._connections = None

    @property
    def are_possible(self) -> bool:
        """Whether requests are made here, and not by obstore."""
        return self._connections is not None and time.monotonic() >= self._suspended_until

    def get(self, path: str, start: int, stop: int) -> ResponseHead:
        """The answer to a ranged GET, whose body follows.

        Raises:
            FileNotFoundError, PermissionDeniedError, GenericError: as obstore.
            LeftToObstoreError
        """
        answer = self._ask("GET", path, {}, {"range": f"bytes={start}-{stop - 1}"})
        span = _RANGE.fullmatch(answer.headers.get("content-range", ""))
        if answer.status != 206 or answer.length is None or span is None:
            answer.close()
            raise self._left()
        first, last, size = (int(number) for number in span.groups())
        if first != start or last + 1 != min(stop, size) or last + 1 - first != answer.length:
            answer.close()
            message = f"bytes {start} to {stop - 1} were requested, the answer has {answer.length} from {first} on"
            raise GenericError(message)
        return answer

    def put(self, path: str, body: Bytes, *, create: bool) -> None:
        """PUT; `create`: only where there is no object.

        Raises:
            AlreadyExistsError, FileNotFoundError, PermissionDeniedError, GenericError: as obstore.
            LeftToObstoreError
        """
        self._ask("PUT", path, {}, {"if-none-match": "*"} if create else {}, body).close()

    def begin_upload(self, path: str) -> str:
        """Create a multipart upload; its name. Raises as `put`."""
        found = _UPLOAD.search(self._ask("POST", path, {"uploads": ""}, {}).text())
        if found is None:
            raise self._left()
        return unescape(found[1].decode())

    def put_part(self, path: str, upload: str, number: int, body: Bytes) -> Uploaded:
        """Store a part of a multipart upload, counted from 1. Raises as `put`."""
        answer = self._ask("PUT", path, {"partNumber": str(number), "uploadId": upload}, {}, body)
        answer.close()
        etag = answer.headers.get("etag")
        if etag is None:
            raise self._left()
        return Uploaded(number, etag)

    def complete_upload(self, path: str, upload: str, parts: list[Uploaded]) -> None:
        """Make the object of the parts. Raises as `put`; FileNotFoundError also if it is complete already."""
        listed = "".join(f"<Part><PartNumber>{p.number}</PartNumber><ETag>{p.etag}</ETag></Part>" for p in parts)
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        text = self._ask("POST", path, {"uploadId": upload}, {"content-type": "application/xml"}, body).text()
        # S3 begins its answer before it is done: an error may follow a 200.
        if b"<Error>" in text or b"CompleteMultipartUploadResult" not in text:
            message = f"the upload could not be completed: {_code(text).decode(errors='replace')}"
            raise GenericError(message)

    def abort_upload(self, path: str, upload: str) -> None:
        """Delete the parts. Raises as `put`."""
        self._ask("DELETE", path, {"uploadId": upload}, {}).close()

    def begin_put(self, path: str, size: int) -> Put:
        """Begin a PUT of `size` bytes, which follow, where there is no object.

        Raises:
            GenericError: no connection.
            LeftToObstoreError
        """
        request = self._request("PUT", path, {}, {"if-none-match": "*", "content-length": str(size)})
        try:
            return Put(self, request, request.connections.begin(request.head))
        except ssl.SSLCertVerificationError:
            raise self._left() from None
        except (BrokenError, OSError) as error:
            raise GenericError(_text(error)) from None

    def _ask(
        self, method: str, path: str, query: Mapping[str, str], extra: Mapping[str, str], body: Bytes = b""
    ) -> ResponseHead:
        """An answer with 2xx."""
        length = {} if method == "GET" else {"content-length": str(len(body))}
        request = self._request(method, path, query, {**extra, **length})
        try:
            answer = request.connections.ask(request.head, body)
        except ssl.SSLCertVerificationError:
            raise self._left() from None
        except (BrokenError, OSError) as error:
            raise GenericError(_text(error)) from None
        return self.judged(request, answer)

    def _request(self, method: str, path: str, query: Mapping[str, str], extra: Mapping[str, str]) -> _Request:
        connections = self._connections
        if connections is None:
            raise LeftToObstoreError
        try:
            credentials = self._credentials.current()
        except NoCredentialsError:
            raise self._left() from None
        target = RequestTarget(method, f"{connections.path}/{self._bucket}/{path}", query)
        headers = signed_headers(target, connections.host, self._region, credentials, datetime.now(UTC))
        query_text = f"?{target.quoted_query}" if query else ""
        lines = "".join(f"{name}: {value}\r\n" for name, value in (*headers.items(), *extra.items()))
        head = f"{method} {target.quoted_path}{query_text} HTTP/1.1\r\n{lines}\r\n"
        return _Request(connections, path, credentials, head.encode("latin-1"), "if-none-match" in extra)

    def judged(self, request: _Request, answer: ResponseHead) -> ResponseHead:
        """`answer` if it has 2xx; raises as `put`."""
        if 200 <= answer.status < 300:
            return answer
        status, code = answer.status, _code(answer.text())
        message = f"S3 answers {status} {code.decode(errors='replace')}"
        if status == 404:
            raise FileNotFoundError(request.path)
        if status in (409, 412) and request.is_conditional:
            raise AlreadyExistsError(message)
        # A conflict of other requests passes: S3 answers OperationAborted.
        if status in _TRANSIENT or code in _TRANSIENT_CODES or status in (409, 416):
            raise GenericError(message)
        if status == 403 and code in (_DENIED, b""):
            raise PermissionDeniedError(message)
        self._credentials.refuse(request.credentials)
        raise self._left()

    def _left(self) -> LeftToObstoreError:
        self._suspended_until = time.monotonic() + SUSPENDED_SECONDS
        return LeftToObstoreError()


def _has_proxy(url: str) -> bool:
    """Whether the environment names a proxy for `url`: obstore knows how to use it."""
    scheme, _, rest = url.partition("://")
    proxies = getproxies()
    host = rest.partition("/")[0].partition(":")[0]
    return bool({scheme, "all"} & proxies.keys()) and not proxy_bypass(host)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


def _code(text: bytes) -> bytes:
    found = _CODE.search(text)
    return found[1] if found else b""
