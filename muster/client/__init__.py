"""The Muster SDK: launch runs, look at them, wait for them, cancel them.

    from muster.client import Muster

    run = Muster().launch({"replicas": 4, "trainer": "my.module:train"})
    run.wait()
    print(run.result().verdict)

The names load on first use, so that `muster --help` does not pay for boto3.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muster.client.errors import ClientError as ClientError
    from muster.client.logs.log_lines import LogLine as LogLine
    from muster.client.runs.event_log import EventLogEntry as EventLogEntry
    from muster.client.runs.run_list import RunSummary as RunSummary
    from muster.client.runs.run_status import ReplicaStatus as ReplicaStatus
    from muster.client.runs.run_status import RunState as RunState
    from muster.client.runs.run_status import RunStatus as RunStatus
    from muster.client.sdk import Muster as Muster
    from muster.client.sdk import Run as Run
    from muster.contract.errors import MusterError as MusterError

_HOMES = {
    "ClientError": "muster.client.errors",
    "EventLogEntry": "muster.client.runs.event_log",
    "LogLine": "muster.client.logs.log_lines",
    "Muster": "muster.client.sdk",
    "MusterError": "muster.contract.errors",
    "ReplicaStatus": "muster.client.runs.run_status",
    "Run": "muster.client.sdk",
    "RunState": "muster.client.runs.run_status",
    "RunStatus": "muster.client.runs.run_status",
    "RunSummary": "muster.client.runs.run_list",
}

__all__ = [
    "ClientError",
    "EventLogEntry",
    "LogLine",
    "Muster",
    "MusterError",
    "ReplicaStatus",
    "Run",
    "RunState",
    "RunStatus",
    "RunSummary",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)
