"""Emitting events. A function never fails because an event could not be emitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.contract.document import canonical_json
from muster.contract.run.run_events import SOURCE, Event
from muster.control.runtime.function import count, logger

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_events.type_defs import PutEventsRequestEntryTypeDef


class Bus:
    """The stack's event bus. An event may be lost or arrive twice; both copies have the same id."""

    def __init__(self, events: EventBridgeClient, name: str) -> None:
        self._events = events
        self._name = name

    def emit(self, event: Event) -> None:
        """Put `event` on the bus, after the change that it reports. A failure is logged and counted, never raised."""
        entry: PutEventsRequestEntryTypeDef = {
            "EventBusName": self._name,
            "Source": SOURCE,
            "DetailType": event.detail_type,
            "Detail": canonical_json(event.detail()).decode(),
        }
        try:
            [answer] = self._events.put_events(Entries=[entry])["Entries"]
        except Exception as error:
            problem = str(error)
        else:
            # PutEvents answers 200 also for entries that it refused.
            problem = answer.get("ErrorMessage") or answer.get("ErrorCode", "")
        if problem:
            logger.error("event not sent", extra={"event": event.detail_type, "problem": problem})
            count("EventNotSent")
