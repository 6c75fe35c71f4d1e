"""An invented elastic run in progress: 4 replicas, then 10, 5 and 8, of which two wait for capacity."""

from datetime import UTC, datetime, timedelta
from typing import Any

from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import NOT_CREATED, Attempt, Transition
from muster.contract.run.commit import Commit
from muster.contract.run.plan import Place, Plan
from muster.contract.run.record import Decision, Next
from muster.contract.run.seat_states import SeatRecord
from muster.contract.run.time_use import Activity, RoundTimes, spent_on, time_use
from muster.contract.spec.elastic import SCHEDULED, SeatLimits
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.timestamps import Timestamp
from muster.options.elastic.contract.seat_states import seats_view
from muster.options.elastic.contract.seats import Scaling, Seats
from muster.report.page_model import PageInput, ReplicaView
from muster.report.rounds import RoundTable
from tests.support.round_commits import commit_of, member

RUN = "elastic"
TYPE = "ml.p5.48xlarge"
NOW = 5_400.0
"""Seconds from the start of the run."""
_START = datetime(2026, 5, 4, 3, 0, tzinfo=UTC)
_PLACE = Place(bucket="muster-sample", role_arn="arn:aws:iam::123456789012:role/Replica", job_prefix="muster")
_EXECUTION = f"arn:aws:states:us-east-1:123456789012:execution:Runs:{RUN}"
_ROUND, _LAUNCH = 120.0, 150.0
# When the job of each attempt began, when it ended or None, and why.
_STOPPED, _LOST, _CAPACITY = FailureClass.STOPPED_BY_MUSTER, FailureClass.INFRASTRUCTURE, FailureClass.CAPACITY
_ATTEMPTS: dict[int, list[tuple[float, float | None, FailureClass | None]]] = {
    **{rank: [(rank, None, None)] for rank in (0, 1, 3)},
    2: [(2, 2_000, _LOST), (2_030, None, None)],
    4: [(1_204, None, None)],
    5: [(1_205, 3_060, _STOPPED), (4_205, None, None)],
    6: [(1_206, 3_060, _STOPPED), (4_206, 4_800, _CAPACITY)],
    7: [(1_207, 3_060, _STOPPED), (4_207, 4_800, _CAPACITY)],
    8: [(1_208, 1_800, _CAPACITY)],
    9: [(1_209, 1_800, _CAPACITY)],
}


def at(seconds: float) -> Timestamp:
    """A time of the run."""
    return timestamps.text(_START + timedelta(seconds=seconds))


def seats() -> Seats:
    """The seats as the control plane has written them."""
    changes = (
        (1_200, 10, "4-9", "", "3f0c1d6e"),
        (3_000, 5, "", "5-9", f"{SCHEDULED}0"),
        (4_200, 8, "5-7", "", "9a77b2c4"),
    )
    found = Seats.first(RUN, 4)
    for revision, (seconds, replicas, opened, closed, by) in enumerate(changes, start=2):
        more: dict[str, Any] = {"revision": revision, "before": found.wanted, "per_second": 10}
        scaling = Scaling(at=at(seconds), replicas=replicas, opened=opened, closed=closed, by=by, **more)
        found = found.scaled(scaling)
    return found


def records() -> dict[int, SeatRecord]:
    """What is known of the ranks that have been launched."""
    found = {}
    for rank, jobs in _ATTEMPTS.items():
        attempts = [_attempt(rank, number, *job) for number, job in enumerate(jobs, start=1)]
        ended, why = jobs[-1][1:]
        decision = None
        if ended is not None:
            decision = Decision(
                next=Next.RERUN,
                attempt=len(jobs) + 1,
                parked=True,
                delay_seconds=1_800 if why is _CAPACITY else 0,
                decided_at=at(ended),
                reason=f"no capacity for {TYPE}" if why is _CAPACITY else "its seat is not wanted",
            )
        found[rank] = SeatRecord(attempts, decision)
    return found


def elastic_run(most: int = 32) -> PageInput:
    """The run with so many seats."""
    replicas = {"min": 2, "start": 4, "max": most}
    document = {"replicas": replicas, "trainer": "training:train", "image": "muster:1", "instance_type": TYPE}
    plan = Plan.make(RUN, _EXECUTION, at(0), _PLACE, parse_spec(document))
    table, use = RoundTable(most, plan.created_at), None
    for number in range(1, int((NOW - _LAUNCH) / _ROUND) + 1):
        made = _commit(number)
        use = time_use(use, RoundTimes([one.time for one in made.members], None, None))
        table.add(made.model_copy(update={"time_use": use}))
    known = records()
    view = seats_view(seats().to_json(), RUN, SeatLimits(2, 4, most), known)
    states = view.states()
    rows = [
        ReplicaView(rank=rank, state=_state(states[rank]), attempts=tuple(record.attempts), round=table.latest)
        for rank, record in known.items()
    ]
    return PageInput(plan, "running", "", at(NOW), None, rows, table.view(), seats=view)


def _state(seat: str) -> str:
    return {"training": "Training", "waiting": "waiting for capacity"}.get(seat, str(seat))


def _commit(number: int) -> Commit:
    end = _LAUNCH + number * _ROUND
    ranks = [rank for rank, jobs in _ATTEMPTS.items() if any(_trains(job, end) for job in jobs)]
    parts = {Activity.TRAINING: 0.8, Activity.WAITING: 0.1, Activity.EXCHANGING: 0.1}
    time = spent_on({name: share * _ROUND for name, share in parts.items()})
    metrics = {"loss": 0.4 + 2.2 / (1 + 0.1 * number), "utilisation": 0.9}
    members = [member(rank, weight=262_144.0, time=time, metrics=metrics) for rank in ranks]
    return commit_of(members, run=RUN, round=number, committed_at=at(end), unit="tokens", expected_rounds=80)


def _trains(job: tuple[float, float | None, FailureClass | None], end: float) -> bool:
    began, ended, why = job
    return why is not _CAPACITY and began + _LAUNCH <= end - _ROUND / 2 and end <= (ended or NOW)


def _attempt(rank: int, number: int, began: float, ended: float | None, why: FailureClass | None) -> Attempt:
    job = {"attempt": number, "job": f"muster-{RUN}-r{rank}-a{number}", "instance_type": TYPE, "launched_at": at(began)}
    if why is _CAPACITY:
        none = {"secondary": NOT_CREATED, "status": "Failed", "failure_class": why, "parked": True}
        return Attempt(**job, ended_at=at(ended or began), **none)
    steps = tuple(
        Transition(at=at(began + after), secondary=name)
        for after, name in ((2, "Starting"), (60, "Downloading"), (_LAUNCH, "Training"))
    )
    if ended is None:
        return Attempt(**job, status="InProgress", secondary="Training", history=steps)
    end = "Stopped" if why is _STOPPED else "Failed"
    ends = {"status": end, "secondary": end, "failure_class": why, "parked": why is _STOPPED}
    return Attempt(**job, ended_at=at(ended), **ends, history=steps)
