"""A loopback S3 in memory as boto3 uses it: versions, checksums, conditions, ranges, uploads in parts, faults."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.scripted_s3 import LoopbackServer
from tests.support.serving import serving

BUCKET = "bucket"


@dataclass(frozen=True)
class Stored:
    """An object; `checksum` is the CRC-32 that S3 shows, which a test may have made wrong."""

    body: bytes
    at: float
    checksum: str | None

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'


@dataclass
class PodS3:
    """The objects, the requests (method and key), and the faults: what happens to the next requests."""

    objects: dict[str, Stored] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    denied: set[str] = field(default_factory=set)
    """Keys whose beginnings are denied."""
    cut: dict[str, list[int]] = field(default_factory=dict)
    """After how many bytes each of the next answers with an object ends."""
    before: dict[tuple[str, str], Callable[[], None]] = field(default_factory=dict)
    """What is done before a request of this method and key is answered."""
    unavailable: dict[str, int] = field(default_factory=dict)
    """How many of the next requests for a key are answered by 503."""
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    port: int = 0

    def put(self, key: str, body: bytes, *, at: float | None = None, wrong: bool = False) -> None:
        """Store an object; `wrong`: S3 shows another checksum than that of its bytes."""
        checksum = base64.b64encode(zlib.crc32(body + b"?" * wrong).to_bytes(4, "big")).decode()
        self.objects[key] = Stored(body, time.time() if at is None else at, checksum)

    def body(self, key: str) -> bytes:
        return self.objects[key].body

    def count(self, method: str, key: str) -> int:
        return self.requests.count((method, key))

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a process uses it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def pod_s3() -> Iterator[PodS3]:
    """Serve on a free loopback port."""
    s3 = PodS3()
    with serving(LoopbackServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"s3": s3}))) as server:
        s3.port = server.server_port
        yield s3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    s3: PodS3
    lock = threading.Lock()

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        key = unquote(url.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        query = parse_qs(url.query, keep_blank_values=True)
        with self.lock:
            self.s3.requests.append((self.command, key))
            before = self.s3.before.pop((self.command, key), None)
        if before is not None:
            before()
        asked = key or query.get("prefix", [""])[0]
        if any(asked.startswith(prefix) for prefix in self.s3.denied):
            self.answer(403, b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
        elif self.s3.unavailable.get(key, 0) > 0:
            self.s3.unavailable[key] -= 1
            self.answer(503, b"<Error><Code>SlowDown</Code></Error>")
        else:
            getattr(self, f"serve_{self.command.lower()}")(key, query, body)

    do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - the base class's names

    def serve_get(self, key: str, query: dict[str, list[str]], _: bytes) -> None:
        if not key:
            self.answer(200, self.listing(query.get("prefix", [""])[0]))
            return
        found = self.s3.objects.get(key)
        if found is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        if self.headers.get("If-Match") not in {None, found.etag}:
            self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        headers = {"ETag": found.etag, "Last-Modified": formatdate(found.at, usegmt=True)}
        span = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if span is None and self.headers.get("x-amz-checksum-mode") and found.checksum:
            headers |= {"x-amz-checksum-crc32": found.checksum, "x-amz-checksum-type": "FULL_OBJECT"}
        start = int(span[1]) if span else 0
        cuts = self.s3.cut.get(key)
        self.answer(206 if span else 200, found.body[start:], headers, sent=cuts.pop(0) if cuts else None)

    def serve_put(self, key: str, query: dict[str, list[str]], body: bytes) -> None:
        if "uploadId" in query:
            self.s3.parts[query["uploadId"][0]][int(query["partNumber"][0])] = body
            self.answer(200, b"", {"ETag": f'"{zlib.crc32(body)}"'})
            return
        with self.lock:
            if self.headers.get("If-None-Match") == "*" and key in self.s3.objects:
                self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            self.s3.objects[key] = Stored(body, time.time(), self.headers.get("x-amz-checksum-crc32"))
        self.answer(200, b"", {"ETag": self.s3.objects[key].etag})

    def serve_post(self, key: str, query: dict[str, list[str]], _: bytes) -> None:
        if "uploads" in query:
            upload = uuid.uuid4().hex
            self.s3.parts[upload] = {}
            text = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
            self.answer(200, text.encode())
            return
        parts = self.s3.parts.pop(query["uploadId"][0])
        self.s3.objects[key] = Stored(b"".join(parts[number] for number in sorted(parts)), time.time(), None)
        tag = self.s3.objects[key].etag
        self.answer(200, f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>".encode())

    def serve_delete(self, key: str, query: dict[str, list[str]], _: bytes) -> None:
        if "uploadId" in query:
            self.s3.parts.pop(query["uploadId"][0], None)
        else:
            self.s3.objects.pop(key, None)
        self.answer(204, b"")

    def listing(self, prefix: str) -> bytes:
        def at(seconds: float) -> str:
            return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")

        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{at(item.at)}</LastModified>"
            f"<ETag>{item.etag}</ETag><Size>{len(item.body)}</Size></Contents>"
            for key, item in sorted(self.s3.objects.items())
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None, sent: int | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if sent is None else body[:sent])
        self.close_connection = self.close_connection or sent is not None

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        return
