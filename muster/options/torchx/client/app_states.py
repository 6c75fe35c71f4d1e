"""The states of runs and replicas in TorchX's words."""

from __future__ import annotations

from enum import IntEnum

from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import ReplicaStatus, RunStatus


class State(IntEnum):
    """TorchX's AppState and ReplicaState, which are the same; the numbers are TorchX's."""

    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLED = 6


_OF_RUN = {
    RunState.STOPPING: State.RUNNING,
    RunState.SUCCEEDED: State.SUCCEEDED,
    RunState.FAILED: State.FAILED,
    RunState.STOPPED: State.CANCELLED,
}


def listed_state(state: RunState) -> State:
    """The state of a run of which only its line in a list is known."""
    return _OF_RUN.get(state, State.RUNNING)


def app_state(status: RunStatus) -> State:
    """The state of the application; pending until the first replica's program runs."""
    if status.state is not RunState.RUNNING:
        return _OF_RUN[status.state]
    started = any(replica_state(replica, status.state) is not State.PENDING for replica in status.replicas)
    return State.RUNNING if started or status.round is not None else State.PENDING


def replica_state(replica: ReplicaStatus, run: RunState) -> State:
    """The state of a replica in a run in this state."""
    return State[replica.state_in(run).name]
