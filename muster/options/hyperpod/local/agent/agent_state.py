"""The states of the agent, and what GET /status says of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from enum import StrEnum

_log = logging.getLogger("hyperpodrun")


class AgentState(StrEnum):
    """What the agent is doing."""

    INIT = "INIT"
    READY = "READY"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAULTED = "FAULTED"
    STOPPING = "STOPPING"
    SHUTDOWN = "SHUTDOWN"


TRANSITIONS: Mapping[AgentState, frozenset[AgentState]] = {
    AgentState.INIT: frozenset({AgentState.READY, AgentState.SHUTDOWN}),
    AgentState.READY: frozenset({AgentState.RUNNING, AgentState.SHUTDOWN}),
    AgentState.RUNNING: frozenset({AgentState.COMPLETED, AgentState.FAULTED, AgentState.STOPPING, AgentState.SHUTDOWN}),
    AgentState.FAULTED: frozenset({AgentState.STOPPING, AgentState.SHUTDOWN}),
    AgentState.STOPPING: frozenset({AgentState.READY}),
    AgentState.COMPLETED: frozenset({AgentState.SHUTDOWN, AgentState.STOPPING}),
    AgentState.SHUTDOWN: frozenset(),
}


class StateBox:
    """The agent's state with reason and message. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = AgentState.INIT
        self._reason = ""
        self._message = ""

    @property
    def state(self) -> AgentState:
        """The state now."""
        with self._lock:
            return self._state

    def set(self, state: AgentState, reason: str = "", message: str = "") -> bool:
        """Move to `state` if that is a transition; False, and a line in the log, if it is none."""
        with self._lock:
            if state not in TRANSITIONS[self._state]:
                _log.error("Invalid agent state transition from %s to %s.", self._state, state)
                return False
            _log.info("Transitioned from %s to %s", self._state, state)
            self._state, self._reason, self._message = state, reason, message
            return True

    def document(self) -> dict[str, str]:
        """The part of the status that is about the state."""
        with self._lock:
            shown = {"status": self._state.lower(), "reason": self._reason, "message": self._message}
            return {name: text for name, text in shown.items() if text}
