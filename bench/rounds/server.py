"""A loopback S3: objects are files in memory, bodies leave by sendfile.

By itself it is as fast as it can be. With a `Pace` it answers as slowly as S3 does: each request after a while, and no
connection faster than one to S3. On a machine whose cores could not move so many bytes all times are stretched.

It supports the requests of the store's client: GET with ranges, HEAD, LIST, PUT with If-None-Match, deletions and
multipart uploads, path style. No TLS, no check of signatures. Every request becomes one line of a log: bytes and
requests are counted there. MiniStack, which the tests use, moves 150 to 280 MB/s, less than one replica does, so the
benchmark would measure MiniStack.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

LOG = "requests.log"
WORKERS = 3  # processes: Python parses one head at a time in each, bodies move in the kernel
_HEAD_BYTES_MAX = 65_536
_PART = "part-"
_RECEIVE_BYTES = 1 << 20
_PACED_BYTES = 1 << 18
_REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 404: "Not Found", 412: "Precondition Failed"}
_FIXED = 'Last-Modified: Sat, 01 Jan 2000 00:00:00 GMT\r\nETag: "1"\r\n'


@dataclass(frozen=True)
class Request:
    """One answered request. `caller` is the access key; `received` and `sent` are bytes of bodies.

    `sent` counts the whole answer, also where the caller hung up in the middle of it.
    """

    caller: str
    method: str
    key: str
    status: int
    received: int
    sent: int


@dataclass(frozen=True)
class Pace:
    """How slow the server is.

    Attributes:
        first_byte_seconds: from a request's head (or its body's end) to the first byte of its answer: from, to.
        bytes_per_second: of one connection, in each direction.
        stretch: all times are so many times longer.
    """

    first_byte_seconds: tuple[float, float] = (0.010, 0.030)
    bytes_per_second: float = 87e6
    stretch: float = 1.0

    @property
    def rate(self) -> float:
        """Bytes per second of one connection."""
        return self.bytes_per_second / self.stretch


@dataclass
class _Request:
    method: str
    key: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body_start: bytes

    @property
    def length(self) -> int:
        return int(self.headers.get("content-length", "0"))

    @property
    def caller(self) -> str:
        found = re.search(r"Credential=([^/]+)/", self.headers.get("authorization", ""))
        return found[1] if found else "-"


class _Folder:
    """Objects as files. An uploaded part is a file of its own; a completed upload is a folder of parts."""

    def __init__(self, root: Path) -> None:
        self._objects = root / "objects"
        self._aside = root / "aside"
        self._objects.mkdir(parents=True, exist_ok=True)
        self._aside.mkdir(exist_ok=True)
        self._log = os.open(root / LOG, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(self, *fields: object) -> None:
        """One line in a single write, so that lines of several processes do not mix."""
        os.write(self._log, (" ".join(map(str, fields)) + "\n").encode())

    def aside(self) -> Path:
        """A new path that no reader sees."""
        return self._aside / uuid.uuid4().hex

    def upload(self, upload: str) -> Path:
        """The folder of an upload's parts."""
        return self._aside / f"upload-{upload}"

    def path(self, key: str) -> Path:
        """Where an object lies."""
        return self._objects / key

    def publish(self, source: Path, key: str, *, exclusive: bool) -> bool:
        """Move `source` to its key; False when the key had to be new and existed."""
        target = self.path(key)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not exclusive:
            source.replace(target)
            return True
        try:
            target.hardlink_to(source)
        except FileExistsError:
            return False
        finally:
            source.unlink()
        return True

    def parts(self, key: str) -> list[Path]:
        """The files that make an object, none where it does not exist."""
        path = self.path(key)
        if path.is_dir():
            return sorted(path.glob(f"{_PART}*"))
        # Not `exists`: an upload may be completed, and a folder be there, since the look before.
        return [path] if path.is_file() else []

    def keys(self, bucket: str, prefix: str) -> list[tuple[str, int]]:
        """Keys below `prefix` (which ends with a slash) and their sizes, sorted."""
        root = self._objects / bucket
        sizes: Counter[str] = Counter()
        for path in (root / prefix).rglob("*"):
            if path.is_file():
                whole = path.parent if path.name.startswith(_PART) else path
                sizes[whole.relative_to(root).as_posix()] += path.stat().st_size
        return sorted(sizes.items())

    def delete(self, key: str) -> None:
        """Remove an object; none is no error."""
        for path in self.parts(key):
            path.unlink(missing_ok=True)


class _Connection:
    """One client's connection, request after request."""

    def __init__(self, connection: socket.socket, folder: _Folder, pace: Pace | None, seed: int) -> None:
        self._socket = connection
        self._folder = folder
        self._pace = pace
        self._random = random.Random(seed)  # noqa: S311 - times, not secrets
        self._pending = b""

    def serve(self) -> None:
        """Answer until the client hangs up."""
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._socket, contextlib.suppress(ConnectionError):
            while (request := self._next()) is not None:
                self._answer(request)

    def _next(self) -> _Request | None:
        data = self._pending
        while b"\r\n\r\n" not in data:
            if len(data) > _HEAD_BYTES_MAX or not (more := self._socket.recv(_HEAD_BYTES_MAX)):
                return None
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        parsed = urlsplit(target)
        request = _Request(
            method, parsed.path.lstrip("/"), parse_qs(parsed.query, keep_blank_values=True), headers, b""
        )
        request.body_start, self._pending = rest[: request.length], rest[request.length :]
        return request

    def _answer(self, request: _Request) -> None:
        match request.method:
            case "PUT":
                self._put(request)
            case "POST":
                self._post(request)
            case "DELETE":
                self._folder.delete(request.key)
                self._send(request, 204)
            case _ if "list-type" in request.query:
                self._list(request)
            case _:
                self._get(request)

    def _put(self, request: _Request) -> None:
        aside = self._folder.aside()
        if request.headers.get("expect", "").lower() == "100-continue":
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")  # botocore waits a second for it
        self._receive(request, aside)
        if "uploadId" in request.query:
            number = int(request.query["partNumber"][0])
            aside.replace(self._folder.upload(request.query["uploadId"][0]) / f"{_PART}{number:05d}")
            self._send(request, 200)
            return
        exclusive = request.headers.get("if-none-match") == "*"
        self._send(request, 200 if self._folder.publish(aside, request.key, exclusive=exclusive) else 412)

    def _receive(self, request: _Request, path: Path) -> None:
        began = time.monotonic()
        with path.open("wb", buffering=0) as file:
            file.write(request.body_start)
            left = request.length - len(request.body_start)
            buffer = memoryview(bytearray(min(_RECEIVE_BYTES, max(left, 1))))
            while left:
                received = self._socket.recv_into(buffer, min(left, len(buffer)))
                if not received:
                    raise ConnectionResetError
                file.write(buffer[:received])
                left -= received
                self._keep_pace(began, request.length - left)

    def _post(self, request: _Request) -> None:
        bucket, _, key = request.key.partition("/")
        if "delete" in request.query:
            self._delete_many(request)
            return
        if "uploads" in request.query:
            upload = uuid.uuid4().hex
            self._folder.upload(upload).mkdir()
            body = (
                f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{key}</Key><UploadId>{upload}</UploadId>"
            )
            self._send(request, 200, f"{body}</InitiateMultipartUploadResult>".encode())
            return
        self._body(request)  # the list of parts: all that were uploaded are meant
        source, target = self._folder.upload(request.query["uploadId"][0]), self._folder.path(request.key)
        target.parent.mkdir(parents=True, exist_ok=True)
        source.replace(target)
        body = f"<CompleteMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{key}</Key><ETag>1</ETag>"
        self._send(request, 200, f"{body}</CompleteMultipartUploadResult>".encode())

    def _body(self, request: _Request) -> bytes:
        body = request.body_start
        while len(body) < request.length:
            body += self._socket.recv(request.length - len(body))
        return body

    def _delete_many(self, request: _Request) -> None:
        found = re.findall(r"<Key>([^<]*)</Key>", self._body(request).decode())
        for key in found:
            self._folder.delete(f"{request.key.strip('/')}/{key}")
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in found)
        self._send(request, 200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _list(self, request: _Request) -> None:
        """All keys on one page."""
        prefix = request.query["prefix"][0]
        found = self._folder.keys(request.key.strip("/"), prefix)
        entries = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2000-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>1</ETag><Size>{size}</Size></Contents>"
            for key, size in found
        )
        body = f"<ListBucketResult><KeyCount>{len(found)}</KeyCount><IsTruncated>false</IsTruncated>{entries}"
        self._send(request, 200, f"{body}</ListBucketResult>".encode())

    def _get(self, request: _Request) -> None:
        parts = self._folder.parts(request.key)
        if not parts:
            self._send(request, 404, b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>")
            return
        sizes = [part.stat().st_size for part in parts]
        size = sum(sizes)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        start = int(wanted[1]) if wanted else 0
        stop = min(int(wanted[2]) + 1, size) if wanted and wanted[2] else size
        if wanted and start >= size:
            self._send(request, 416, b"<Error><Code>InvalidRange</Code><Message>beyond the end</Message></Error>")
            return
        extra = f"Content-Range: bytes {start}-{stop - 1}/{size}\r\n" if wanted else ""
        self._head(request, 206 if wanted else 200, stop - start, extra)
        if request.method == "HEAD":
            return
        begin = 0
        for part, length in zip(parts, sizes, strict=True):
            first, last = max(start, begin), min(stop, begin + length)
            if first < last:
                self._send_file(part, first - begin, last - first)
            begin += length

    def _send_file(self, path: Path, offset: int, count: int) -> None:
        with path.open("rb") as file:
            began, start = time.monotonic(), offset
            while count:
                step = count if self._pace is None else min(count, _PACED_BYTES)
                sent = os.sendfile(self._socket.fileno(), file.fileno(), offset, step)
                offset, count = offset + sent, count - sent
                self._keep_pace(began, offset - start)

    def _keep_pace(self, began: float, moved: int) -> None:
        """Wait until as much time has passed since `began` as so many bytes take."""
        if self._pace is not None:
            time.sleep(max(0.0, began + moved / self._pace.rate - time.monotonic()))

    def _send(self, request: _Request, status: int, body: bytes = b"") -> None:
        self._head(request, status, len(body))
        if body and request.method != "HEAD":
            self._socket.sendall(body)

    def _head(self, request: _Request, status: int, length: int, extra: str = "") -> None:
        """Log the request before its answer begins, so that a client that has an answer finds its line in the log."""
        if self._pace is not None:
            time.sleep(self._pace.stretch * self._random.uniform(*self._pace.first_byte_seconds))
        sent = 0 if request.method == "HEAD" else length
        self._folder.note(request.caller, request.method, request.key, status, request.length, sent)
        reason = _REASONS.get(status, "Answer")
        head = f"HTTP/1.1 {status} {reason}\r\nContent-Length: {length}\r\n{_FIXED}{extra}\r\n"
        self._socket.sendall(head.encode())


def serve(root: Path, listener: socket.socket, pace: Pace | None) -> None:
    """Serve for ever, one thread per connection."""
    folder = _Folder(root)
    for seed in itertools.count():
        connection, _ = listener.accept()
        threading.Thread(target=_Connection(connection, folder, pace, seed).serve, daemon=True).start()


@dataclass(frozen=True)
class Server:
    """A running server."""

    root: Path
    url: str
    processes: tuple[subprocess.Popen[bytes], ...]

    def requests(self) -> list[Request]:
        """The requests since the last `forget`, in the order of their answers."""
        lines = (self.root / LOG).read_text().splitlines()
        return [
            Request(caller, method, key, int(status), int(received), int(sent))
            for caller, method, key, status, received, sent in (line.split(" ") for line in lines)
        ]

    def forget_requests(self) -> None:
        """Start a new log. No request may be in progress."""
        os.truncate(self.root / LOG, 0)

    def delete(self, prefix: str, above_bytes: int) -> None:
        """Delete the objects below `prefix` (bucket/…/) that are larger than `above_bytes`."""
        for path in (self.root / "objects" / prefix).rglob("*"):
            if path.is_file() and path.stat().st_size > above_bytes:
                path.unlink()


@contextmanager
def running_server(pace: Pace | None = None) -> Iterator[Server]:
    """A server with WORKERS processes and its objects in memory, while the context lasts."""
    shared = Path("/dev/shm")  # noqa: S108 - the folder in it is made by tempfile
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        root = Path(folder)
        _Folder(root)
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
            paced = json.dumps(pace and asdict(pace))
            command = [sys.executable, "-m", "bench.rounds.server", folder, str(listener.fileno()), paced]
            processes = tuple(subprocess.Popen(command, pass_fds=[listener.fileno()]) for _ in range(WORKERS))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            yield Server(root, url, processes)
        finally:
            for process in processes:
                process.kill()
                process.wait()


if __name__ == "__main__":
    _pace = json.loads(sys.argv[3])
    serve(Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])), None if _pace is None else Pace(**_pace))
