"""S3 in memory, behind obstore's functions: `S3ObjectStore` itself runs over it, with its retries and its 403s.

S3 as it is documented: strongly consistent, atomic PUTs, conditional PUTs of which the first wins (412), creation times
in whole seconds. And what may go wrong with a request: 503, 409, an answer that is lost, an effect that comes after the
client has given up, a connection that breaks inside a body, a byte that is damaged on its way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError

from muster.contract.run.commit import HOME
from muster.replica.wire.binary_format import HEADER_BYTES
from muster.replica.wire.rendezvous_keys import REDUCED
from tests.exploration.activities import current

if TYPE_CHECKING:
    from tests.exploration.world import Process

EPOCH_SECONDS = 1_800_000_000  # when S3's clock shows zero
PAGE_KEYS = 3  # S3: 1,000
PIECES = 8  # in which an object arrives whose bytes take time
HOME_BUCKET = "bucket"
CHECKSUMMED = ("contributions/", "reduced/", "sums/", "snapshots/")  # TLS alone protects the others in transit
# What obstore's errors say.
BROKEN = "the connection ended in the middle of the body"
SLOW_DOWN = "Server returned non-2xx status code: 503 Service Unavailable: <Code>SlowDown</Code>"
CONFLICT = "409 ConditionalRequestConflict"
EXISTS = "412 PreconditionFailed"
DENIED = "403 AccessDenied"
OUT_OF_RANGE = "S3 answers 416 InvalidRange"
TIMED_OUT = "the request timed out"
LOST = "the connection ended before the answer"
UNREACHABLE = "could not connect"

DAMAGED_READS_MAX = 2  # of one object by one process: the third read is sound, as with S3
# Pages after the first one, of one process's listings of a folder until one is whole: after each the listing begins
# anew, and at S3 it has a 300th of the pages.
FAILED_PAGES_MAX = 5

Meta = dict[str, Any]
Pieces = Iterator[bytes]


@lru_cache(1024)
def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(EPOCH_SECONDS + seconds, UTC)


@dataclass(frozen=True)
class Stored:
    body: bytes
    at: int

    @property
    def meta(self) -> Meta:
        return {"size": len(self.body), "last_modified": _time(self.at)}


class Bucket:
    """The objects, and everything that was ever written or deleted, for those who judge a schedule afterwards."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.objects: dict[str, Stored] = {}
        self._order: list[str] = []  # their keys, sorted
        self.creates: Counter[str] = Counter()
        self.written: dict[str, bytes] = {}
        self.deleted: list[str] = []
        self.deleted_statements: list[str] = []

    def put(self, key: str, body: bytes, *, replaces: bool = False) -> bool:
        """If-None-Match: *, unless it replaces an object. Whether there was no object."""
        if key in self.objects:
            if replaces:
                self.objects[key] = Stored(body, int(self._seconds()))
                self.written[key] = body
            return False
        self.objects[key] = Stored(body, int(self._seconds()))
        insort(self._order, key)
        self.creates[key] += 1
        self.written[key] = body
        return True

    def exists(self, key: str) -> bool:
        return key in self.objects

    def delete(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            self.deleted.append(key)
            if self.is_statement(key):
                self.deleted_statements.append(key)
            self._order.remove(key)

    def is_statement(self, key: str) -> bool:
        """Whether an object, or one that was deleted, says that a shard cannot be made: it has no values."""
        return key.startswith(REDUCED) and len(self.written[key]) <= HEADER_BYTES

    def page(self, prefix: str, after: str) -> tuple[list[str], bool]:
        """The first keys below `prefix` after `after`, in order, and whether more follow."""
        order = self._order
        first = bisect_right(order, after) if after >= prefix else bisect_left(order, prefix)
        found = [key for key in order[first : first + PAGE_KEYS + 1] if key.startswith(prefix)]
        return found[:PAGE_KEYS], len(found) > PAGE_KEYS


class Answer:
    def __init__(
        self,
        stored: Stored,
        body: bytes,
        breaks: bool,
        arrives: tuple[float, float] | None = None,
        *,
        is_from_start: bool = False,
    ) -> None:
        """`arrives`: from when to when, where bytes take time."""
        self.meta = stored.meta
        self._is_from_start = is_from_start
        self._body, self._breaks, self._arrives = body, breaks, arrives

    def bytes(self) -> bytes:
        if self._breaks:
            raise GenericError(BROKEN)
        return b"".join(self.stream(0))

    def stream(self, _: int) -> Pieces:
        if self._breaks:
            return self._broken()
        return iter((self._body,)) if self._arrives is None else self._arriving(*self._arrives)

    def _arriving(self, since: float, until: float) -> Pieces:
        header = HEADER_BYTES if self._is_from_start else 0
        if header:
            yield self._body[:header]
        values = self._body[header:]
        for piece in range(PIECES):
            current().pause("receive", since + (until - since) * (piece + 1) / PIECES)
            yield values[len(values) * piece // PIECES : len(values) * (piece + 1) // PIECES]

    def _broken(self) -> Pieces:
        yield self._body[: len(self._body) * 2 // 3]
        raise GenericError(BROKEN)


class Wire:
    """S3 as one process reaches it: every request is a step of the schedule, and may fail."""

    def __init__(self, process: Process, name: str) -> None:
        self._process, self._name = process, name
        self._world = process.world
        self._is_home = name == HOME_BUCKET
        self._bucket = process.world.store if self._is_home else process.world.near[name]
        self._damaged: Counter[str] = Counter()
        self._failed_pages: Counter[str] = Counter()
        self._hidden: str | None = None

    def put(self, path: str, body: Any, *, mode: str = "overwrite", **_: object) -> None:
        replaces = mode == "overwrite"
        self._request(f"{'write' if replaces else 'create'} {path}")
        world = self._world
        if world.overtakes(self._process, path):
            current().pause(f"create {path}")
        until = self._moved(path, len(body), up=True)
        if until > world.seconds:
            current().pause(f"send {path}", until)
        stored = world.spoils(path, bytes(body), self._name)
        fault = world.fault(self._process, ("503", "409", "answer lost", "late"))
        if fault == "409" and not replaces and not self._bucket.exists(path):
            raise AlreadyExistsError(CONFLICT)
        if fault == "503":
            raise GenericError(SLOW_DOWN)
        if fault == "409":
            raise GenericError(CONFLICT)
        if fault == "late":
            world.expect_late(self._process, path, stored, self._bucket)
            raise GenericError(TIMED_OUT)
        created = self._bucket.put(path, stored, replaces=replaces)
        if created and self._is_home:
            world.created(self._process, path)
        if fault == "answer lost":
            raise GenericError(LOST)
        if not created and not replaces:
            world.seen["a create meets an object (412)"] += 1
            raise AlreadyExistsError(EXISTS)

    def get(self, path: str, *, options: dict[str, Any] | None = None) -> Answer:
        self._request(f"read {path}")
        fault = self._world.fault(self._process, ("503", "broken body", "damaged"))
        if fault == "503":
            raise GenericError(SLOW_DOWN)
        if fault != "broken body":
            self._process.answered(path)
        stored = self._found(path)
        size = len(stored.body)
        start, stop = 0, size
        if options is not None:
            span = options["range"]
            start, stop = (span["offset"], size) if isinstance(span, dict) else (span[0], min(span[1], size))
            if start >= size:
                raise GenericError(OUT_OF_RANGE)
        body = stored.body[start:stop]
        if fault == "damaged" and path.startswith(CHECKSUMMED) and self._damaged[path] < DAMAGED_READS_MAX:
            self._damaged[path] += 1
            self._world.seen[f"damaged in transit: {path.split('/', maxsplit=1)[0]}"] += 1
            # In the header if it was asked for alone, else in the last value.
            at = min(40, len(body) - 1) if start == 0 and stop <= HEADER_BYTES else len(body) - 1
            body = body[:at] + bytes([body[at] ^ 16]) + body[at + 1 :]
        now, until = self._world.seconds, self._moved(path, len(body), up=False)
        arrives = (now, until) if until > now else None
        return Answer(stored, body, fault == "broken body", arrives, is_from_start=start == 0)

    def head(self, path: str) -> Meta:
        self._request(f"exists {path}")
        if self._world.fault(self._process, ("503",)) is not None:
            raise GenericError(SLOW_DOWN)
        self._process.answered(path)
        return self._found(path).meta

    def list(self, prefix: str, *, offset: str | None = None) -> Iterator[Sequence[Meta]]:
        after, is_first = offset or "", True
        while True:
            self._request(f"keys {prefix}")
            fault = self._world.fault(self._process, ("503",))
            if fault is not None and (is_first or self._failed_pages[prefix] < FAILED_PAGES_MAX):
                self._failed_pages[prefix] += not is_first
                raise GenericError(SLOW_DOWN)
            if is_first and prefix.startswith("announced/"):
                self._process.answered(prefix)
            is_first = False
            if self._hidden is not None:
                self._world.seen["an object appears after a 403"] += self._bucket.exists(self._hidden)
                self._hidden = None
            page, has_more = self._bucket.page(prefix, after)
            yield [{"path": key, **self._bucket.objects[key].meta} for key in page]
            if not has_more:
                self._failed_pages[prefix] = 0
                return
            after = page[-1]

    def delete(self, paths: Sequence[str]) -> None:
        # Not atomic: the process may die in between. In truth one request has them all, so a second try has less to do.
        for path in paths:
            if path not in self._bucket.objects:
                continue
            self._request(f"delete {path}")
            if self._world.fault(self._process, ("503",)) is not None:
                raise GenericError(SLOW_DOWN)
            self._world.deletes(path)
            self._bucket.delete(path)

    def _moved(self, path: str, size: int, *, up: bool) -> float:
        if self._is_home:
            self._world.cross(self._process, path, size, up=up)
        return self._world.moved(self._process, path, size, is_home=self._is_home, up=up)

    def _request(self, label: str) -> None:
        process, world = self._process, self._world
        is_far = self._is_home and process.place != HOME
        latency = world.latency(process, is_home=self._is_home)
        label = label if self._is_home else f"{label} in {self._name}"
        current().pause(label, world.seconds + latency if latency else None)
        process.asked(label)
        if process.is_cut_off or (is_far and world.seconds < world.parted_until.get(process.place, 0.0)):
            process.was_cut_off = True
            raise GenericError(UNREACHABLE)

    def _found(self, path: str) -> Stored:
        stored = self._bucket.objects.get(path)
        if stored is None:
            if self._world.setting.hides_missing:
                self._world.seen["a missing object is hidden (403)"] += 1
                self._hidden = path
                raise PermissionDeniedError(DENIED)
            raise FileNotFoundError(path)
        return stored


# What `muster.replica.store` takes from obstore: functions whose first argument is the client, here a Wire.
OBSTORE = SimpleNamespace(put=Wire.put, get=Wire.get, head=Wire.head, list=Wire.list, delete=Wire.delete)
