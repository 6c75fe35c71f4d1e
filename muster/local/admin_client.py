"""The typed client of the service's own interface: faults and call counts."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request

from muster.local.calls import CALL_COUNTS, CallCount
from muster.local.errors import AdminError, DeadCloudError
from muster.local.faults import FAULT_REPORTS, Fault, FaultReport
from muster.local.state import CloudState, StateDirectory

_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.05


class AdminClient:
    """Speaks to `/_muster/`, past every proxy and whatever else the environment says."""

    def __init__(self, state: CloudState, directory: StateDirectory) -> None:
        self._state = state
        self._directory = directory
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(state.ca_file))),
        )

    def running_jobs(self) -> list[str]:
        """Names of the training jobs that have not ended."""
        return list(json.loads(self._ask("GET", "status"))["running_jobs"])

    def add_fault(self, fault: Fault) -> FaultReport:
        """Ask for a fault."""
        return FaultReport.model_validate_json(self._ask("POST", "faults", fault.model_dump_json().encode()))

    def faults(self) -> list[FaultReport]:
        """All faults that were asked for, and how often each struck."""
        return FAULT_REPORTS.validate_json(self._ask("GET", "faults"))

    def remove_fault(self, identifier: int) -> None:
        """Strike one fault out."""
        self._ask("DELETE", f"faults/{identifier}")

    def clear_faults(self) -> None:
        """Strike all faults out."""
        self._ask("DELETE", "faults")

    def wait_for_fault(self, identifier: int, *, fired: int = 1, timeout_seconds: float = 30.0) -> FaultReport:
        """Wait until a fault struck `fired` times.

        Raises:
            TimeoutError: it did not.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            report = next((report for report in self.faults() if report.id == identifier), None)
            if report is not None and report.fired >= fired:
                return report
            if time.monotonic() >= deadline:
                message = f"fault {identifier} did not strike {fired} times in {timeout_seconds} s: {report}"
                raise TimeoutError(message)
            time.sleep(_POLL_SECONDS)

    def calls(self) -> list[CallCount]:
        """Calls at the endpoint since the last reset, by service, operation and caller."""
        return CALL_COUNTS.validate_json(self._ask("GET", "calls"))

    def reset_calls(self) -> None:
        """Count from zero again."""
        self._ask("DELETE", "calls")

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
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
            detail = error.read().decode(errors="replace")
            raise AdminError(f"The embedded cloud refused {method} {path}: {detail}") from error  # noqa: EM102
        except OSError as error:
            raise DeadCloudError(self._directory.root, self._state.endpoint) from error
