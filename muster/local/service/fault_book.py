"""The faults of a running service, and how often each fired."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Collection
from fnmatch import fnmatchcase
from typing import TypeVar

from muster.contract.spec.places import HOME
from muster.local.counted_calls import Call
from muster.local.faults import CallError, Fault, FaultBase, FaultReport, PlacedFault, RateLimit, throttled
from muster.local.service.rate_limiter import TokenBucket

_F = TypeVar("_F", bound=FaultBase)


class _Entry:
    """A fault with its count, and a token bucket's level."""

    def __init__(self, identifier: int, fault: Fault) -> None:
        self.id = identifier
        self.fault = fault
        self.fired = 0
        self.bucket = TokenBucket(fault.per_second, fault.burst) if isinstance(fault, RateLimit) else None

    @property
    def spent(self) -> bool:
        return self.fault.count is not None and self.fired >= self.fault.count

    def waits_in(self, place: str) -> bool:
        where = self.fault.place if isinstance(self.fault, PlacedFault) else HOME
        return not self.spent and fnmatchcase(place, where)


class FaultBook:
    """The faults of a service as one place sees them, in the order in which they were asked for. Thread-safe."""

    def __init__(self) -> None:
        self._place = HOME
        self._entries: dict[int, _Entry] = {}
        self._identifiers = itertools.count(1)
        self._lock = threading.Lock()
        self._on_add: list[Callable[[], None]] = []

    def at(self, place: str) -> FaultBook:
        """The same faults, as another place sees them."""
        book = copy.copy(self)
        book._place = place
        return book

    def on_add(self, call: Callable[[], None]) -> None:
        """Call `call`, which must be quick, whenever a fault was added."""
        self._on_add.append(call)

    def add(self, fault: Fault) -> FaultReport:
        """Add `fault`."""
        with self._lock:
            entry = _Entry(next(self._identifiers), fault)
            self._entries[entry.id] = entry
            report = _report(entry)
        for call in self._on_add:
            call()
        return report

    def find(self, kind: type[_F], matches: Callable[[_F], bool]) -> _F | None:
        """The first fault of `kind` that is not spent and matches; it is not counted."""
        with self._lock:
            entry = self._find(kind, matches)
        return entry and entry.fault  # type: ignore[return-value]  # of the kind that was asked for

    def all(self, kind: type[_F]) -> list[_F]:
        """The faults of `kind` that are not spent, the newest last; none is counted."""
        with self._lock:
            found = [entry.fault for entry in self._entries.values() if entry.waits_in(self._place)]
        return [fault for fault in found if isinstance(fault, kind)]

    def remove(self, identifier: int) -> bool:
        """Remove a fault; False when no fault has that number."""
        with self._lock:
            return self._entries.pop(identifier, None) is not None

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._entries.clear()

    def report(self) -> list[FaultReport]:
        """All faults, spent ones too."""
        with self._lock:
            return [_report(entry) for entry in self._entries.values()]

    def take(self, kind: type[_F], matches: Callable[[_F], bool]) -> _F | None:
        """The first fault of `kind` that is not spent and matches, counted as fired."""
        with self._lock:
            entry = self._find(kind, matches)
            if entry is not None:
                entry.fired += 1
        return entry and entry.fault  # type: ignore[return-value]  # of the kind that was asked for

    def _find(self, kind: type[_F], matches: Callable[[_F], bool]) -> _Entry | None:
        for entry in self._entries.values():
            if isinstance(entry.fault, kind) and entry.waits_in(self._place) and matches(entry.fault):
                return entry
        return None

    def take_call(self, call: Call, caller: str, resources: Collection[str]) -> CallError | None:
        """The error for a call, if any; an empty token bucket is a ThrottlingException."""
        with self._lock:
            for entry in self._entries.values():
                fault = entry.fault
                if not isinstance(fault, CallError | RateLimit) or not entry.waits_in(self._place):
                    continue
                if not (fnmatchcase(call.service, fault.service) and fnmatchcase(call.operation, fault.operation)):
                    continue
                if isinstance(fault, RateLimit):
                    if entry.bucket is None or entry.bucket.take():
                        continue
                    entry.fired += 1
                    return throttled(call.service, call.operation)
                if fnmatchcase(caller, fault.caller) and any(fnmatchcase(name, fault.resource) for name in resources):
                    entry.fired += 1
                    return fault
        return None


def _report(entry: _Entry) -> FaultReport:
    return FaultReport(id=entry.id, fault=entry.fault, fired=entry.fired)
