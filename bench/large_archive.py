"""An output.tar.gz of any size, generated as it is read, and a loopback S3 that serves it."""

from __future__ import annotations

import random
import re
import tarfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_CHUNK = 1 << 20
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


@dataclass(frozen=True)
class LargeArchive:
    """head + chunk * count + tail.

    The chunk is random and thus incompressible. Deflate has been flushed before and after it, so that the same
    compressed bytes may follow each other any number of times in one gzip member.
    """

    head: bytes
    chunk: bytes
    count: int
    tail: bytes

    @property
    def size(self) -> int:
        """Compressed bytes."""
        return len(self.head) + len(self.chunk) * self.count + len(self.tail)

    def slices(self, start: int, stop: int) -> Iterator[memoryview]:
        """The bytes `start` to `stop` in pieces."""
        position = 0
        for part in self._parts():
            begin, end = max(start - position, 0), min(stop - position, len(part))
            if begin < end:
                yield memoryview(part)[begin:end]
            position += len(part)

    def _parts(self) -> Iterator[bytes]:
        yield self.head
        for _ in range(self.count):
            yield self.chunk
        yield self.tail


def large_archive(size: int, manifest: bytes, *, manifest_first: bool) -> LargeArchive:
    """A gzipped tar of about `size` bytes that holds `weights.bin` and `manifest.json`."""
    count = size // _CHUNK
    weights = random.Random(0).randbytes(_CHUNK)  # noqa: S311 - the same archive in every run
    member = _header("manifest.json", len(manifest)) + manifest + bytes(-len(manifest) % 512)
    before = (member if manifest_first else b"") + _header("weights.bin", count * _CHUNK)
    after = (b"" if manifest_first else member) + bytes(1024)

    deflate = zlib.compressobj(1, wbits=-zlib.MAX_WBITS)
    head = _GZIP_HEADER + deflate.compress(before) + deflate.flush(zlib.Z_FULL_FLUSH)
    chunk = deflate.compress(weights) + deflate.flush(zlib.Z_FULL_FLUSH)
    checksum = zlib.crc32(before)
    for _ in range(count):
        checksum = zlib.crc32(weights, checksum)
    checksum = zlib.crc32(after, checksum)
    length = len(before) + count * _CHUNK + len(after)
    trailer = checksum.to_bytes(4, "little") + (length % (1 << 32)).to_bytes(4, "little")
    return LargeArchive(head, chunk, count, deflate.compress(after) + deflate.flush() + trailer)


def _header(name: str, size: int) -> bytes:
    header = tarfile.TarInfo(name)
    header.size = size
    return header.tobuf(tarfile.GNU_FORMAT)


@dataclass
class LoopbackS3:
    """An S3 with one object, which knows HEAD and GET with ranges and counts what it sends."""

    path: str
    archive: LargeArchive
    url: str = ""
    sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, size: int) -> None:
        """Add `size` bytes of a body; several connections may send at once."""
        with self._lock:
            self.sent += size


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: LoopbackS3

    def log_message(self, *_: object) -> None:
        """A benchmark prints nothing but its table."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        if self.path.partition("?")[0] != self.service.path:
            self._send(404, b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>")
            return
        size = self.service.archive.size
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        stop = min(int(wanted[2]) + 1, size) if wanted and wanted[2] else size
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", '"archive"')
        self.send_header("Last-Modified", "Sat, 01 Jan 2000 00:00:00 GMT")
        self.send_header("Content-Length", str(stop - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.end_headers()
        if with_body:
            self._send_slices(start, stop)

    def _send_slices(self, start: int, stop: int) -> None:
        try:
            for piece in self.service.archive.slices(start, stop):
                for offset in range(0, len(piece), 65_536):
                    part = piece[offset : offset + 65_536]
                    # Counted before it is sent, so that a client that has the bytes finds them counted.
                    self.service.count(len(part))
                    self.connection.sendall(part)
        except ConnectionError:
            self.close_connection = True

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.service.count(len(body))
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has read enough hangs up."""


@contextmanager
def loopback_s3(path: str, archive: LargeArchive) -> Iterator[LoopbackS3]:
    """Serve `archive` under `path` (/bucket/key) on a free loopback port while the context lasts."""
    service = LoopbackS3(path, archive)
    with _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"service": service})) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
