"""The operator's calls to the agents of pods: HTTP at POD_IP:8080."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muster.options.hyperpod.contract.pod_bootstrap import AGENT_PORT

_SECONDS = 2.0


@dataclass(frozen=True)
class AgentStatus:
    """What an agent says of itself: `ready`, `running`, `completed`, `faulted`, `stopping`, `shutdown`."""

    state: str = ""
    """Empty where no agent answers."""
    reason: str = ""
    message: str = ""


def status_of(address: str) -> AgentStatus:
    """GET /status."""
    answer = _call(address, "GET", "/status")
    if answer is None:
        return AgentStatus()
    try:
        document = json.loads(answer)
        return AgentStatus(str(document["status"]), document.get("reason", ""), document.get("message", ""))
    except (ValueError, KeyError, TypeError):
        return AgentStatus()


def tell(address: str, path: str, body: Mapping[str, Any] | None = None) -> bool:
    """POST /start, /stop or /shutdown; whether the agent has taken it."""
    return _call(address, "POST", path, body) is not None


def _call(address: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes | None:
    connection = http.client.HTTPConnection(address, AGENT_PORT, timeout=_SECONDS)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"} if content else {})
        response = connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException):
        return None
    else:
        return answer if response.status == 200 else None
    finally:
        connection.close()
