"""The function scale, in every stack, and what other functions may do with the seats of elastic runs."""

from __future__ import annotations

from muster.contract.run.run_events import SCALE_REQUESTED
from muster.infra.functions.event_delivery import RuleSettings
from muster.infra.functions.function_table import (
    COMPLETE_TASKS,
    EMIT,
    FAIL_TASKS,
    LAMBDA_SECONDS_MAX,
    WATCH_AND_STOP_JOBS,
    FunctionRow,
)
from muster.infra.functions.triggers import TriggerContext, on_own_bus
from muster.infra.policy import list_under, read, read_and_write, write
from muster.infra.stack_option import Grant, StackOption

_SEATS, _PARKED = "control/*/seats.json", "control/*/parked/*"


def _requests(context: TriggerContext) -> list[RuleSettings]:
    """Scale is called by events on the stack's bus, and by the schedules of runs."""
    return [on_own_bus(context, "Requests", "Muster: requests to scale a run", SCALE_REQUESTED)]


_SCALE = FunctionRow(
    name="scale",
    description="Muster: gives elastic runs another number of replicas",
    timeout_seconds=LAMBDA_SECONDS_MAX,  # as stop: it stops thousands of jobs at SageMaker's rate
    memory_mb=1024,
    variables=("MUSTER_LAUNCHES_PER_SECOND",),
    triggers=_requests,
    in_network=True,  # it stops jobs on clusters, too
    on_schedule=True,
    statements=(
        read("control/*/plan.json", "control/*/stopping.json", "control/*/result.json", _PARKED),
        read_and_write(_SEATS, "control/*/replicas/*", "control/*/rollup/*"),
        list_under("control/*"),
        WATCH_AND_STOP_JOBS,
        COMPLETE_TASKS,
        FAIL_TASKS,
        EMIT,
    ),
)

# The end of a replica that has trained to the end is that of all parked seats.
_END = Grant((read_and_write(_SEATS), read(_PARKED)))
OFFER = StackOption(
    is_asked_for=lambda _: True,
    grants={
        "plan": Grant((read(_SEATS), write(_SEATS)), ("MUSTER_SCALE_FUNCTION_ARN",)),
        "attempt": Grant((read_and_write(_SEATS, _PARKED),)),
        **dict.fromkeys(("react", "look"), _END),
        "stop": _END,
        "settle": Grant((read(_SEATS),)),
        "sweep": Grant((read(_SEATS),)),
        "timer": Grant((read(_SEATS, _PARKED), COMPLETE_TASKS)),
    },
    rows={"timer": _SCALE},
)
