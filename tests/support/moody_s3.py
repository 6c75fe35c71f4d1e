"""A loopback S3 in memory: conditional PUT, ranged GET, HEAD, LIST and DeleteObjects, each of which fails once.

The first time that a request arrives, it fails in the way of the server's mood; when it is repeated, it succeeds.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from enum import Enum
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tests.support.scripted_s3 import LoopbackServer
from tests.support.serving import serving


class Mood(Enum):
    """How a request fails the first time."""

    SLOW_DOWN = "503 without an effect"
    RESET = "the connection ends without an effect"
    LOST_ANSWER = "the connection ends after the effect"
    TRUNCATED = "half of the body"
    CONFLICT = "409 without an effect"


class MoodyS3:
    """The objects, and what happened."""

    def __init__(self, mood: Mood) -> None:
        self.mood = mood
        self.port = 0
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.failed: Counter[str] = Counter()
        self._seen: set[tuple[str, ...]] = set()
        self._lock = threading.Lock()

    def meets_mood(self, method: str, path: str, span: str) -> bool:
        """Whether this request arrives for the first time, and is of a kind that the mood makes fail."""
        concerned = {Mood.TRUNCATED: {"GET"}, Mood.CONFLICT: {"PUT"}}.get(self.mood, {"GET", "HEAD", "PUT", "POST"})
        with self._lock:
            first = (method, path, span) not in self._seen
            self._seen.add((method, path, span))
            if first and method in concerned:
                self.failed[method] += 1
                return True
        return False

    def put(self, key: str, body: bytes) -> bool:
        """If-None-Match: *."""
        with self._lock:
            if key in self.objects:
                return False
            self.objects[key] = (body, time.time())
            return True

    def delete(self, keys: list[str]) -> None:
        with self._lock:
            for key in keys:
                self.objects.pop(key, None)


@contextmanager
def moody_s3(mood: Mood) -> Iterator[MoodyS3]:
    """Serve on a free loopback port."""
    s3 = MoodyS3(mood)
    with serving(LoopbackServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"s3": s3}))) as server:
        s3.port = server.server_port
        yield s3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    s3: MoodyS3

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        key = unquote(url.path).removeprefix("/bucket").removeprefix("/")
        fails = self.s3.meets_mood(
            self.command, self.path, self.headers.get("Range", "") + body[:200].hex() * (not key)
        )
        if fails and self.s3.mood is Mood.RESET:
            self.close_connection = True
            return
        if fails and self.s3.mood in {Mood.SLOW_DOWN, Mood.CONFLICT}:
            self.answer(503 if self.s3.mood is Mood.SLOW_DOWN else 409, b"<Error/>")
            return
        status, answer, headers = self.serve(key, parse_qs(url.query), body)
        if fails and self.s3.mood is Mood.LOST_ANSWER:
            self.close_connection = True
            return
        self.answer(status, answer, headers, truncated=fails and self.s3.mood is Mood.TRUNCATED)

    do_GET = do_PUT = do_HEAD = do_POST = handle_any  # noqa: N815 - the base class's names

    def serve(self, key: str, query: dict[str, list[str]], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        if self.command == "POST":
            keys = [unescape(found) for found in re.findall(r"<Key>(.*?)</Key>", body.decode())]
            self.s3.delete(keys)
            deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
            return 200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), {}
        if self.command == "PUT":
            return (200 if self.s3.put(key, body) else 412), b"", {"ETag": '"1"'}
        if not key:
            return 200, self.listing(query["prefix"][0]), {}
        if key not in self.s3.objects:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", {}
        found, at = self.s3.objects[key]
        headers = {"ETag": '"1"', "Last-Modified": formatdate(at, usegmt=True)}
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if span is None:
            return 200, found, headers
        start, stop = int(span[1]), min(int(span[2] or len(found)) + 1, len(found))
        if start >= len(found):
            return 416, b"<Error><Code>InvalidRange</Code></Error>", {}
        return 206, found[start:stop], {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{len(found)}"}

    def listing(self, prefix: str) -> bytes:
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-21T00:00:00.000Z</LastModified>"
            f'<ETag>"1"</ETag><Size>{len(self.s3.objects[key][0])}</Size></Contents>'
            for key in sorted(self.s3.objects)
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None, truncated: bool = False) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if truncated else body)
        self.close_connection = truncated

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        return
