"""S3 over HTTP on a loopback port: the S3 in memory behind it, or exactly the bytes that a test wants for answers.

Below the ordinary answers lies `tests.memory.s3`, which the conformance tests compare with the embedded cloud. Here are
its form in HTTP, uploads in parts, and what can go wrong on the way.
"""

import base64
import re
import socket
import ssl
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import Enum
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tests.memory.calls import AwsError
from tests.memory.clock import VirtualClock
from tests.memory.s3 import S3, StoredObject

BUCKET = "bucket"
EVERY_OBJECT = {"ETag": '"1"', "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT"}


@dataclass(frozen=True)
class Raw:
    """The bytes of an answer. `ends`: it closes the connection. `hasty`: it does not wait for the request's body."""

    data: bytes
    ends: bool = False
    hasty: bool = False


RESET = Raw(b"", ends=True)


def answer(status: int, body: bytes = b"", *, ends: bool = False, **headers: str) -> Raw:
    """An ordinary answer; a header that is given replaces the usual one, and an empty one is left out."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    found = {"Content-Length": str(len(body)), **EVERY_OBJECT, **given}
    lines = "".join(f"{name}: {value}\r\n" for name, value in found.items() if value)
    return Raw(f"HTTP/1.1 {status} Answer\r\n{lines}\r\n".encode() + body, ends)


def error(status: int, code: str) -> Raw:
    """An error as S3 words it."""
    return answer(status, f"<Error><Code>{code}</Code></Error>".encode())


def chunked(status: int, *chunks: bytes) -> Raw:
    """An answer in chunks, as S3 sends its errors."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    return Raw(f"HTTP/1.1 {status} Answer\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + body)


@dataclass(frozen=True)
class Request:
    """A request that was received; the names of its headers are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def line(self) -> str:
        return f"{self.method} {self.target}"

    @property
    def key(self) -> str:
        """The object's; empty for a request to the bucket."""
        return unquote(urlsplit(self.target).path).removeprefix(f"/{BUCKET}").removeprefix("/")

    @property
    def query(self) -> dict[str, str]:
        found = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}


class Mood(Enum):
    """How a request fails the first time that it arrives; when it is repeated, it succeeds."""

    SLOW_DOWN = "503 without an effect"
    RESET = "the connection ends without an effect"
    LOST_ANSWER = "the connection ends after the effect"
    TRUNCATED = "half of the body"
    CONFLICT = "409 without an effect"


class _WallClock(VirtualClock):
    """The time, unless a test says another one."""

    said: float | None = None

    def now(self) -> datetime:
        return datetime.now(UTC) if self.said is None else datetime.fromtimestamp(self.said, UTC)


class S3Server:
    """A bucket, the requests to it, and what happens to the next ones."""

    def __init__(self, mood: Mood | None = None) -> None:
        self.port = self.connections = self.ended = 0
        self.requests: list[Request] = []
        self.mood = mood
        self.failed: Counter[str] = Counter()
        """How many requests of each method the mood has made fail."""
        self.denied: set[str] = set()
        """Keys whose beginnings are denied."""
        self.unavailable: dict[str, int] = {}
        """How many of the next requests for a key are answered by 503."""
        self.cut: dict[str, list[int]] = {}
        """After how many bytes each of the next answers with an object breaks off. A shorter one, and its connection,
        stay whole: a client that has all it asked for sends its next request over the connection that ends."""
        self.before: dict[tuple[str, str], Callable[[], None]] = {}
        """What is done before a request of this method and key is answered."""
        self.parts: dict[str, dict[int, bytes]] = {}
        """The uploads that are not complete."""
        self._script: list[Raw] = []
        self._seen: set[tuple[str, ...]] = set()
        self._wrong: set[str] = set()
        self._lock = threading.Lock()
        self._clock = _WallClock()
        self._s3 = S3(self._clock, "123456789012")
        self._s3.add_bucket(BUCKET)

    def script(self, *answers: Raw) -> None:
        """Send these answers in order from now on, and the last one again and again; requests are counted anew."""
        self._script, self.requests, self.connections, self.ended = list(answers), [], 0, 0

    def put(self, key: str, body: bytes, *, at: float | None = None, wrong: bool = False) -> None:
        """Store an object; `wrong`: S3 shows another checksum than that of its bytes."""
        self._wrong.discard(key)
        if wrong:
            self._wrong.add(key)
        self._clock.said = at
        self._call("PutObject", Key=key, Body=body)
        self._clock.said = None

    @property
    def objects(self) -> dict[str, StoredObject]:
        return self._s3.objects(BUCKET)

    def body(self, key: str) -> bytes:
        return self.objects[key].body

    def count(self, method: str, key: str) -> int:
        return sum((request.method, request.key) == (method, key) for request in self.requests)

    @property
    def lines(self) -> list[str]:
        """Method and target of each request."""
        return [request.line for request in self.requests]

    @property
    def methods(self) -> list[str]:
        return [request.method for request in self.requests]

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

    def next_of_script(self) -> Raw | None:
        with self._lock:
            return self._script.pop(0) if len(self._script) > 1 else self._script[0] if self._script else None

    def respond(self, request: Request) -> Raw:
        """The ordinary answer, or what has befallen this request."""
        with self._lock:
            before = self.before.pop((request.method, request.key), None)
        if before is not None:
            before()
        asked = request.key or request.query.get("prefix", "")
        if any(asked.startswith(prefix) for prefix in self.denied):
            return error(403, "AccessDenied")
        if self.unavailable.get(request.key, 0) > 0:
            self.unavailable[request.key] -= 1
            return error(503, "SlowDown")
        mood = self.mood if self._fails(request) else None
        if mood is Mood.RESET:
            return RESET
        if mood in {Mood.SLOW_DOWN, Mood.CONFLICT}:
            return answer(503 if mood is Mood.SLOW_DOWN else 409, b"<Error/>")
        ordinary = self._ordinary(request)
        if mood is Mood.LOST_ANSWER:
            return RESET
        if mood is Mood.TRUNCATED:
            body = len(ordinary.data) - ordinary.data.index(b"\r\n\r\n") - 4
            return Raw(ordinary.data[: len(ordinary.data) - (body + 1) // 2], ends=True)
        return ordinary

    def _fails(self, request: Request) -> bool:
        """Whether this request arrives for the first time, and is of a kind that the mood makes fail."""
        if self.mood is None:
            return False
        concerned = {Mood.TRUNCATED: {"GET"}, Mood.CONFLICT: {"PUT"}}.get(self.mood, {"GET", "HEAD", "PUT", "POST"})
        what = request.headers.get("range", "") + request.body[:200].hex() * (not request.key)
        seen = request.method, request.target, what
        with self._lock:
            fails = request.method in concerned and seen not in self._seen
            self._seen.add(seen)
            if fails:
                self.failed[request.method] += 1
        return fails

    def _call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        given = {name: value for name, value in parameters.items() if value is not None}
        return self._s3.operations[operation].effect({"Bucket": BUCKET, **given})

    def _ordinary(self, request: Request) -> Raw:
        try:
            match request.method:
                case "GET" if not request.key:
                    return self._listing(request.query)
                case "GET" | "HEAD":
                    return self._read(request)
                case "PUT":
                    return self._put(request)
                case "POST":
                    return self._post(request)
            if "uploadId" in request.query:
                self.parts.pop(request.query["uploadId"], None)
            else:
                self._call("DeleteObject", Key=request.key)
            return answer(204, Content_Length="")
        except AwsError as refused:
            return error(refused.status, refused.code)

    def _read(self, request: Request) -> Raw:
        key, span = request.key, request.headers.get("range")
        operation = "GetObject" if request.method == "GET" else "HeadObject"
        found = self._call(operation, Key=key, Range=span, IfMatch=request.headers.get("if-match"))
        headers = {"ETag": found["ETag"], "Last_Modified": format_datetime(found["LastModified"], usegmt=True)}
        if request.method == "HEAD":
            return answer(200, Content_Length=str(found["ContentLength"]), **headers)
        body, part = found["Body"].read(), found.get("ContentRange")
        if part is not None:
            headers["Content_Range"] = part
        elif "x-amz-checksum-mode" in request.headers:
            checksum = zlib.crc32(body + b"?" * (key in self._wrong)).to_bytes(4, "big")
            headers |= {
                "x_amz_checksum_crc32": base64.b64encode(checksum).decode(),
                "x_amz_checksum_type": "FULL_OBJECT",
            }
        sent = answer(200 if part is None else 206, body, **headers)
        cuts = self.cut.get(key)
        missing = len(body) - cuts.pop(0) if cuts else 0
        return Raw(sent.data[:-missing], ends=True) if missing > 0 else sent

    def _put(self, request: Request) -> Raw:
        if "uploadId" in request.query:
            self.parts[request.query["uploadId"]][int(request.query["partNumber"])] = request.body
            return answer(200, ETag=f'"{zlib.crc32(request.body)}"')
        unless = request.headers.get("if-none-match")
        return answer(200, ETag=self._call("PutObject", Key=request.key, Body=request.body, IfNoneMatch=unless)["ETag"])

    def _post(self, request: Request) -> Raw:
        if "uploads" in request.query:
            upload = f"upload-{len(self.requests)}"
            self.parts[upload] = {}
            return _xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
        if "uploadId" in request.query:
            parts = self.parts.pop(request.query["uploadId"])
            body = b"".join(parts[number] for number in sorted(parts))
            tag = self._call("PutObject", Key=request.key, Body=body)["ETag"]
            return _xml("CompleteMultipartUploadResult", f"<ETag>{tag}</ETag>")
        keys = [unescape(found) for found in re.findall(r"<Key>(.*?)</Key>", request.body.decode())]
        for key in keys:
            self._call("DeleteObject", Key=key)
        return _xml("DeleteResult", "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys))

    def _listing(self, query: dict[str, str]) -> Raw:
        after, token = query.get("start-after"), query.get("continuation-token")
        page = self._call("ListObjectsV2", Prefix=query.get("prefix", ""), StartAfter=after, ContinuationToken=token)
        entries = "".join(
            f"<Contents><Key>{escape(item['Key'])}</Key><LastModified>{item['LastModified']:%Y-%m-%dT%H:%M:%S.000Z}"
            f"</LastModified><ETag>{item['ETag']}</ETag><Size>{item['Size']}</Size></Contents>"
            for item in page.get("Contents", [])
        )
        following = escape(page.get("NextContinuationToken", ""))
        more = f"<NextContinuationToken>{following}</NextContinuationToken>" * page["IsTruncated"]
        truncated = f"<IsTruncated>{str(page['IsTruncated']).lower()}</IsTruncated>"
        return _xml("ListBucketResult", truncated + more + entries)


def _xml(name: str, content: str) -> Raw:
    return answer(200, f"<{name}>{content}</{name}>".encode(), Content_Type="application/xml")


@contextmanager
def s3_server(mood: Mood | None = None, *, tls: ssl.SSLContext | None = None) -> Iterator[S3Server]:
    """Serve on a free loopback port, over `tls` if given."""
    s3, open_ones = S3Server(mood), list[socket.socket]()

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as file, suppress(OSError):
            while (reply := _answered(s3, connection, file)) is not None:
                connection.sendall(reply.data)
                if reply.ends or reply.hasty:
                    connection.shutdown(socket.SHUT_RDWR)
                    break
        s3.ended += 1

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                s3.connections += 1
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                open_ones.append(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    # A client whose connection finds the queue full tries again only a second later.
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        s3.port = listener.getsockname()[1]
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield s3
        finally:
            for connection in open_ones:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            listener.shutdown(socket.SHUT_RDWR)


def _answered(s3: S3Server, connection: socket.socket, file: Any) -> Raw | None:
    """The answer to the next request of a connection; None at its end."""
    if not (line := file.readline()):
        return None
    method, target, _ = line.decode().split()
    headers: dict[str, str] = {}
    while (header := file.readline().decode().strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    scripted = s3.next_of_script()
    size = 0 if scripted is not None and scripted.hasty else int(headers.get("content-length", "0"))
    if "expect" in headers:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    request = Request(method, target, headers, file.read(size))
    s3.requests.append(request)
    if len(request.body) < size:
        return None
    reply = s3.respond(request) if scripted is None else scripted
    if method == "HEAD":
        head, end, _ = reply.data.partition(b"\r\n\r\n")
        return Raw(head + end, reply.ends)
    return reply
