"""The typed client of the service's own interface: faults and call counts."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from datetime import timedelta

from muster.local.call_rates import CALL_RATES, CallRate
from muster.local.cloud_errors import AdminError, DeadCloudError
from muster.local.cloud_state import CloudState, StateDirectory
from muster.local.counted_calls import CALL_COUNTS, CallCount
from muster.local.faults import FAULT_REPORTS, Fault, FaultReport

_TIMEOUT_SECONDS = 60.0  # for a busy machine; a connection to a service that has ended is refused at once
_POLL_SECONDS = 0.05


class AdminClient:
    """Calls `/_muster/` directly: no proxy and no setting of the environment applies."""

    def __init__(self, state: CloudState, directory: StateDirectory) -> None:
        self._state = state
        self._directory = directory
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(state.ca_file))),
        )

    def status(self) -> dict[str, list[str]]:
        """The jobs that have not ended."""
        return dict(json.loads(self.ask("GET", "status")))

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """One request.

        Raises:
            AdminError: the service refused it.
            DeadCloudError: there is no answer.
        """
        request = urllib.request.Request(  # noqa: S310 - the URL is our own https endpoint
            f"{self._state.endpoint}/_muster/{path}",
            data=body,
            method=method,
            headers={"Authorization": f"Bearer {self._state.admin_token}", "Content-Type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                return bytes(response.read())
        except urllib.error.HTTPError as error:
            raise AdminError(method, path, error.read().decode(errors="replace")) from error
        except OSError as error:
            raise DeadCloudError(self._directory.root, self._state.endpoint) from error


class PlacedFault:
    """A fault that was added."""

    def __init__(self, faults: Faults, identifier: int) -> None:
        self._faults = faults
        self.id = identifier

    @property
    def fired(self) -> int:
        """How often it fired."""
        return next((report.fired for report in self._faults.list() if report.id == self.id), 0)

    def wait(self, *, fired: int = 1, timeout_seconds: float = 90.0) -> None:
        """Wait until it has fired `fired` times.

        Raises:
            TimeoutError: it has not.
        """
        deadline = time.monotonic() + timeout_seconds
        while (count := self.fired) < fired:
            if time.monotonic() >= deadline:
                message = f"fault {self.id} fired {count} times in {timeout_seconds} s, not {fired}"
                raise TimeoutError(message)
            time.sleep(_POLL_SECONDS)

    def remove(self) -> None:
        """Remove it."""
        self._faults.remove(self.id)


class _Part:
    """A part of the service's interface."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin


class Faults(_Part):
    """The faults of a running service."""

    def add(self, fault: Fault) -> PlacedFault:
        """Add a fault."""
        answer = self._admin.ask("POST", "faults", fault.model_dump_json().encode())
        return PlacedFault(self, FaultReport.model_validate_json(answer).id)

    def list(self) -> list[FaultReport]:
        """All faults, and how often each fired."""
        return FAULT_REPORTS.validate_json(self._admin.ask("GET", "faults"))

    def remove(self, identifier: int) -> None:
        """Remove one fault.

        Raises:
            AdminError: no fault has that number.
        """
        self._admin.ask("DELETE", f"faults/{identifier}")

    def clear(self) -> None:
        """Remove all faults."""
        self._admin.ask("DELETE", "faults")


class Clock(_Part):
    """The clock by which a running service's lifecycle rules act."""

    def advance(self, time: timedelta) -> list[str]:
        """Let so much time pass for lifecycle rules; what they deleted, as `bucket/key`.

        Raises:
            AdminError: a bucket has a rule that the embedded cloud cannot carry out.
        """
        return list(json.loads(self._admin.ask("POST", "clock", json.dumps(time.total_seconds()).encode()))["gone"])


class Rates(_Part):
    """How often the account of a running service may make each call."""

    def report(self) -> list[CallRate]:
        """The rates that hold, and how each is known."""
        return CALL_RATES.validate_json(self._admin.ask("GET", "rates"))

    def set(self, *rates: CallRate) -> None:
        """Set the rates of some calls. All buckets are full again."""
        self._admin.ask("PUT", "rates", CALL_RATES.dump_json(list(rates)))

    def reset(self) -> None:
        """Return to the default rates."""
        self._admin.ask("DELETE", "rates")


class Calls(_Part):
    """The calls that a running service has counted."""

    def report(self) -> list[CallCount]:
        """Calls at the endpoint since the last reset, by service, operation and caller."""
        return CALL_COUNTS.validate_json(self._admin.ask("GET", "calls"))

    def reset(self) -> None:
        """Count from zero again."""
        self._admin.ask("DELETE", "calls")
