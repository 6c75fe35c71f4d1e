"""Lambda, as far as functions are called from outside: every event that was accepted is remembered."""

import json
import threading
from typing import Any, NamedTuple

from tests.memory.calls import Operation, Parameters, refuse

_PAYLOAD_BYTES_MAX = 1_048_576  # Lambda: an asynchronous invocation


class Invocation(NamedTuple):
    """An event that Lambda has accepted for a function."""

    function: str
    event: dict[str, Any]


class Functions:
    """The functions of an account."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.names: set[str] = set()
        """The functions that exist."""
        self.accepted: list[Invocation] = []
        """In order."""
        self.operations = {
            "Invoke": Operation(self._invoke, {"FunctionName", "InvocationType", "Payload"}, status=202),
        }

    def _invoke(self, request: Parameters) -> dict[str, Any]:
        name = request["FunctionName"]
        if name not in self.names:
            refuse("ResourceNotFoundException", f"Function not found: {name}", 404)
        if request.get("InvocationType") != "Event":
            message = "only asynchronous invocations are here"
            raise NotImplementedError(message)
        if len(request["Payload"]) > _PAYLOAD_BYTES_MAX:
            refuse("RequestTooLargeException", "Request must be smaller than 1048576 bytes", 413)
        try:
            event = json.loads(request["Payload"])
        except ValueError:
            refuse("InvalidRequestContentException", "Could not parse request body into json")
        with self._lock:
            self.accepted.append(Invocation(name, event))
        return {"StatusCode": 202}
