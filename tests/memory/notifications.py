"""Events that AWS services send of their own accord, on their way to the rules that wait for them.

EventBridge promises neither order nor that an event comes once, or at all: the test decides.
"""

import random
import threading
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from tests.memory.clock import VirtualClock
from tests.memory.plain_data import copied


class Notifications:
    """Events that were sent and not delivered yet, in the order in which they were sent."""

    def __init__(self, clock: VirtualClock, account: str, region: str, seed: int) -> None:
        self._clock = clock
        self._account = account
        self._region = region
        self._random = random.Random(seed)  # noqa: S311 - identifiers that are the same in every run
        self._lock = threading.Lock()
        self.on_send: Callable[[dict[str, Any]], None] | None = None
        """Gets every event in place of `pending`."""
        self.pending: list[dict[str, Any]] = []
        """Delete one to lose it, append one to deliver it twice, swap two: they are whole EventBridge events."""

    def send(self, source: str, detail_type: str, resource: str, detail: Mapping[str, Any]) -> None:
        """Put an event on its way."""
        with self._lock:
            event = {
                "version": "0",
                "id": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
                "detail-type": detail_type,
                "source": source,
                "account": self._account,
                "time": f"{self._clock.now():%Y-%m-%dT%H:%M:%SZ}",
                "region": self._region,
                "resources": [resource],
                "detail": dict(detail),
            }
        self.put(event)

    def put(self, event: dict[str, Any]) -> None:
        """Put an event on its way that is whole."""
        if self.on_send is not None:
            self.on_send(event)
            return
        with self._lock:
            self.pending.append(copied(event))

    def drain(self) -> list[dict[str, Any]]:
        """Take all that are pending, in order."""
        with self._lock:
            taken, self.pending = self.pending, []
        return taken


def epoch_milliseconds(at: datetime) -> int:
    """How the events of SageMaker and Step Functions write a time."""
    return round(at.timestamp() * 1000)
