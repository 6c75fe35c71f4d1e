"""Another number of replicas for a run: what can be known is checked, then an event asks the control plane for it."""

from __future__ import annotations

import time

from muster.client.aws.cloud import Cloud
from muster.client.aws.error_translation import translated
from muster.client.client_errors import RefusedError, ScaleError, ScalePendingError
from muster.client.runs.observer import Observer, read_plan
from muster.client.runs.scaling import Scaled, ScaleOffer
from muster.client.sdk import POLL_SECONDS
from muster.contract.names import run_name
from muster.contract.run.plan import Plan
from muster.contract.run.run_events import SCALE_REQUESTED, ScaleRequested
from muster.contract.run.seat_states import SeatState, SeatsView
from muster.contract.spec.elastic import scale_problems
from muster.options.elastic.contract.seats import Seats, seats_key

CARRIED_OUT_SECONDS = 60.0
"""EventBridge delivers within seconds, and the function needs one."""
_SOURCE = "muster.client"
_COMING_OR_GOING = {SeatState.STARTING, SeatState.LEAVING}


def scale(cloud: Cloud, execution: str, replicas: int, wait: bool = False) -> Scaled:
    """Scale a run; see `Muster.scale`."""
    run = run_name(execution)
    before = _seats_to_scale(cloud, execution, replicas)
    request = _put(cloud, ScaleRequested(run=run, replicas=replicas))
    scaled = Scaled(run=execution, replicas=replicas, asked=replicas, before=before.wanted, request=request)
    if before.wanted != replicas:
        scaled = _carried_out(cloud, scaled, before)
    return scaled.model_copy(update={"seats": _settled(Observer(cloud, execution))}) if wait else scaled


def _carried_out(cloud: Cloud, asked: Scaled, before: Seats) -> Scaled:
    """What was asked for, with the ranks that come and leave, once the control plane has written it.

    Raises:
        ScaleError: it was refused, or no seat is opened any more.
        ScalePendingError: nothing was written in time.
    """
    began = time.monotonic()
    while True:
        seats = _read(cloud, run_name(asked.run), before)
        own = next((one for one in reversed(seats.scalings) if one.by == asked.request), None)
        if own is not None:
            return asked.model_copy(update={"replicas": own.replicas, "opened": own.opened, "closed": own.closed})
        refusal = next((one for one in seats.refusals if one.by == asked.request), None)
        if refusal is not None:
            raise ScaleError(asked.run, refusal.reason)
        if seats.wanted == asked.replicas:
            return asked  # somebody else has asked for the same number at the same time
        if seats.ended is not None:
            raise ScaleError(asked.run, seats.ended)
        if time.monotonic() - began + POLL_SECONDS > CARRIED_OUT_SECONDS:
            raise ScalePendingError(asked.run, asked.replicas, CARRIED_OUT_SECONDS)
        time.sleep(POLL_SECONDS)


def _seats_to_scale(cloud: Cloud, execution: str, replicas: int) -> Seats:
    """The seats of a run that can have so many replicas.

    Raises:
        ScaleError: it cannot.
    """
    found, run = cloud.executions.describe(execution), run_name(execution)
    if found.ended_at is not None:
        remedy = f"`muster continue {execution}` continues it, and `muster scale` can change that run"
        raise ScaleError(execution, f"it has ended; {remedy}")
    plan = read_plan(cloud, run)
    if plan is None:
        raise ScaleError(execution, "it has just started and has no plan yet; try again in a few seconds")
    _check(execution, plan, replicas)
    seats = _read(cloud, run, Seats.first(run, plan.spec.elastic.start if plan.spec.elastic else replicas))
    if seats.ended is not None:
        raise ScaleError(execution, f"{seats.ended.rstrip('.')}; see `muster status {execution}`")
    return seats


def _check(execution: str, plan: Plan, replicas: int) -> None:
    elastic, most = plan.spec.elastic, plan.spec.replicas
    if elastic is None:
        remedy = "launch it with `replicas: {min: …, start: …, max: …}` to change the number while it trains"
        raise ScaleError(execution, f"its number of replicas is fixed ({most:,}); {remedy}")
    if any(scale_problems(elastic, most, replicas)):
        allowed = f"{elastic.min:,} to {most:,} are allowed, replicas.min to replicas.max of its spec"
        raise ScaleError(execution, f"{replicas:,} replicas were asked for; {allowed}; name another number")


def _read(cloud: Cloud, run: str, otherwise: Seats) -> Seats:
    """The seats of a run; `otherwise` before they are written."""
    body = cloud.objects.read(seats_key(run))
    return otherwise if body is None else Seats.from_json(body, seats_key(run))


def _put(cloud: Cloud, detail: ScaleRequested) -> str:
    """Put the request on the stack's bus; the event's id."""
    entry = {
        "EventBusName": cloud.stack.bus,
        "Source": _SOURCE,
        "DetailType": SCALE_REQUESTED,
        "Detail": detail.to_json().decode(),
    }
    events = cloud.connection.client("events", None)
    with translated():
        [answer] = events.put_events(Entries=[entry])["Entries"]
    # PutEvents answers 200 also for entries that it refused.
    if "EventId" not in answer:
        code = f"PutEvents: {answer.get('ErrorCode')}"
        raise RefusedError(code, answer.get("ErrorMessage", ""))
    return str(answer["EventId"])


def _settled(observer: Observer) -> SeatsView | None:
    """The seats once none is on its way, in or out, or the run has ended."""
    while True:
        status = observer.look()
        groups = () if status.seats is None or status.state.is_terminal else status.seats.groups
        if not any(group.state in _COMING_OR_GOING for group in groups):
            return status.seats
        time.sleep(POLL_SECONDS)


OFFER = ScaleOffer(scale)
