"""Why a name cannot be used for a new run, and which one can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.client.client_errors import ClientError, UnknownRunError
from muster.client.runs.observer import Observer
from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import RunStatus
from muster.contract.errors import RunNameTakenError
from muster.contract.names import is_run_name
from muster.contract.text import shortened

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud

_TRIED = range(2, 8)  # numbers behind the name; each costs a call
_REASON_MAX = 200


def taken_name(cloud: Cloud, name: str, error: RunNameTakenError) -> RunNameTakenError:
    """`error` with what became of the run that has the name, and a name that is free."""
    try:
        status = Observer(cloud, name).look()
        free = next((one for one in (f"{name}-{number}" for number in _TRIED) if _is_free(cloud, one)), None)
    except ClientError:
        return error
    remedy = "choose another name" if free is None else f"use another name, such as {free}: `--name {free}`"
    return RunNameTakenError(name, _owner(status), remedy)


def _owner(status: RunStatus) -> str:
    """The run that has the name, in words."""
    if not status.state.is_terminal:
        return "a run with another spec that has not ended"
    how = "was stopped" if status.state is RunState.STOPPED else str(status.state)
    if not any(replica.attempt for replica in status.replicas):
        how += " before it trained"
    if status.reason and status.state is not RunState.SUCCEEDED:
        how += f" ({shortened(status.reason.splitlines()[0].rstrip('.:'), _REASON_MAX)})"
    return f"a run that {how}; Step Functions keeps a name until 90 days after the end"


def _is_free(cloud: Cloud, name: str) -> bool:
    if not is_run_name(name):
        return False
    try:
        cloud.executions.describe(name)
    except UnknownRunError:
        return True
    return False
