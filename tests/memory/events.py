"""EventBridge, as far as events are put on it: every entry that was taken is remembered."""

import json
import threading
from datetime import datetime
from typing import Any, NamedTuple

from tests.memory.calls import Operation, Parameters, refuse
from tests.memory.clock import VirtualClock

# PutEvents: the entries of a request together.
_BYTES_MAX = 262_144
_TIME_BYTES = 14


class Entry(NamedTuple):
    """An event that was put on a bus."""

    at: datetime
    bus: str
    source: str
    detail_type: str
    detail: dict[str, Any]


class Events:
    """The event buses of an account."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.entries: list[Entry] = []
        """What was taken, in order."""
        self.operations = {"PutEvents": Operation(self._put, {"Entries"})}

    def of(self, detail_type: str) -> list[dict[str, Any]]:
        """The details of the events of a type."""
        return [entry.detail for entry in self.entries if entry.detail_type == detail_type]

    def _put(self, request: Parameters) -> dict[str, Any]:
        if sum(map(_size, request["Entries"])) > _BYTES_MAX:
            refuse("ValidationException", "Total size of the entries in the request is over the limit.")
        with self._lock:
            answers = [self._entry(entry) for entry in request["Entries"]]
        return {"FailedEntryCount": sum("ErrorCode" in answer for answer in answers), "Entries": answers}

    def _entry(self, entry: Parameters) -> dict[str, str]:
        missing = [name for name in ("Source", "DetailType", "Detail") if not entry.get(name)]
        if missing:
            return _refused(
                "InvalidArgument", f"Parameter {missing[0]} is not valid. Reason: {missing[0]} is required."
            )
        if entry["Source"].startswith("aws."):
            return _refused("NotAuthorizedForSourceException", "Not authorized for the source.")
        try:
            detail = json.loads(entry["Detail"])
        except ValueError:
            detail = None
        if not isinstance(detail, dict):
            return _refused("MalformedDetail", "Detail is malformed.")
        bus = entry.get("EventBusName", "default")
        self.entries.append(Entry(self._clock.now(), bus, entry["Source"], entry["DetailType"], detail))
        return {"EventId": f"{len(self.entries):08}-0000-4000-8000-000000000000"}


def _refused(code: str, message: str) -> dict[str, str]:
    return {"ErrorCode": code, "ErrorMessage": message}


def _size(entry: Parameters) -> int:
    texts = (entry.get("Source", ""), entry.get("DetailType", ""), entry.get("Detail", ""), *entry.get("Resources", ()))
    return sum(len(text.encode()) for text in texts) + (_TIME_BYTES if "Time" in entry else 0)
