"""Calls at the endpoint, counted by service, operation and caller."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from pydantic import TypeAdapter

from muster.contract.document import Document


@dataclass(frozen=True)
class Call:
    """One request as an AWS call. Service is the signing name, `unsigned` without a signature."""

    service: str
    operation: str


class CallCount(Document):
    """How often a caller made a call."""

    service: str
    operation: str
    caller: str
    count: int


CALL_COUNTS: TypeAdapter[list[CallCount]] = TypeAdapter(list[CallCount])


class CallLog:
    """Counts every call that reaches the endpoint by (service, operation, caller)."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Call, str]] = Counter()
        self._lock = threading.Lock()

    def add(self, call: Call, caller: str) -> None:
        """Count one call."""
        with self._lock:
            self._counts[call, caller] += 1

    def reset(self) -> None:
        """Count from zero again."""
        with self._lock:
            self._counts.clear()

    def report(self) -> list[CallCount]:
        """All counts, sorted."""
        with self._lock:
            counts = dict(self._counts)
        rows = [
            CallCount(service=call.service, operation=call.operation, caller=caller, count=count)
            for (call, caller), count in counts.items()
        ]
        return sorted(rows, key=lambda row: (row.service, row.operation, row.caller))
