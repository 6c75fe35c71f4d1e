"""The in-memory checkpoint service of a HyperPod cluster, as AWS's client speaks to it, with faults."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass
class MemoryService:
    """What the service holds, by namespace, rank and step, and how it misbehaves.

    Attributes:
        status: answer every request with it; None: as the service does.
        rewrite: what is given out instead of the stored bytes.
        before: called with the method and path before a request is answered.
    """

    namespaces: dict[str, dict[str, int]] = field(default_factory=dict)
    shards: dict[tuple[str, int, int], tuple[bytes, str]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    status: int | None = None
    rewrite: Callable[[bytes], bytes] = lambda body: body
    before: Callable[[str, str], None] = lambda *_: None
    url: str = ""

    def answer(self, method: str, path: str, body: bytes, meta: str) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of one request."""
        place, query = urlsplit(path).path, parse_qs(urlsplit(path).query)
        self.requests.append((method, place))
        self.before(method, place)
        if self.status is not None:
            return self.status, b"out of order", {}
        kind, name, *rest = place.removeprefix("/v1/cp/").split("/")
        if kind == "namespaces":
            return self._namespace(method, name, query)
        if name not in self.namespaces:
            return 404, b"no such namespace", {}
        if rest == ["latest"]:
            steps = {step for space, _, step in self.shards if space == name}
            return 200, json.dumps(sorted(steps, reverse=True)[: int(query["limit"][0])]).encode(), {}
        return self._shard(method, (name, int(rest[0]), int(rest[1])), body, meta)

    def _namespace(self, method: str, name: str, query: dict[str, list[str]]) -> tuple[int, bytes, dict[str, str]]:
        if method == "POST":
            if name in self.namespaces:
                return 409, b"it exists already", {}
            self.namespaces[name] = {key: int(values[0]) for key, values in query.items()}
        elif name not in self.namespaces:
            return 404, b"no such namespace", {}
        elif method == "DELETE":
            del self.namespaces[name]
            self.shards = {key: shard for key, shard in self.shards.items() if key[0] != name}
            return 200, b"{}", {}
        return 200, json.dumps(self.namespaces[name]).encode(), {}

    def _shard(
        self, method: str, key: tuple[str, int, int], body: bytes, meta: str
    ) -> tuple[int, bytes, dict[str, str]]:
        name, rank, _ = key
        if rank >= self.namespaces[name]["num_ranks"]:
            return 400, b"the namespace has fewer ranks", {}
        if method == "POST":
            self.shards[key] = body, meta
            held = sorted(number for space, owner, number in self.shards if (space, owner) == (name, rank))
            for old in held[: -self.namespaces[name]["steps_retained"]]:
                del self.shards[name, rank, old]
            return 200, b"{}", {}
        if key not in self.shards:
            return 404, b"no such checkpoint", {}
        stored, checksum = self.shards[key]
        return 200, self.rewrite(stored), {"Shard-Meta": checksum}


@contextmanager
def memory_service() -> Iterator[MemoryService]:
    """The service at an address of this machine; `url` has it."""
    service = MemoryService()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, found, headers = service.answer(self.command, self.path, body, self.headers.get("Shard-Meta") or "")
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(found))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(found)

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the names of the base class

        def log_message(self, *_: object) -> None:
            """Tests read the requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
