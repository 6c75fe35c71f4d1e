"""Where the seats of an elastic run stand, and how a spec's numbers of replicas are read."""

from typing import Any

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import NOT_CREATED, Attempt
from muster.contract.run.record import Decision, Next
from muster.contract.run.seat_states import SeatRecord, SeatState
from muster.contract.spec.elastic import SeatLimits
from muster.options.elastic.contract.seat_states import seats_view, standing
from muster.options.elastic.contract.seats import Seats
from tests.support import elastic_run
from tests.support.elastic_run import NOW, RUN, TYPE, at

LIMITS = SeatLimits(2, 4, 32)


def record(decision: dict[str, Any] | None = None, **fields: Any) -> SeatRecord:
    attempt = Attempt(**{"attempt": 1, "job": "j", "status": "InProgress", "secondary": "Training", **fields})
    made = None if decision is None else Decision(**{"next": Next.RERUN, "attempt": 2, **decision})
    return SeatRecord([attempt], made)


def ended(why: FailureClass | None, decision: dict[str, Any] | None = None, **fields: Any) -> SeatRecord:
    status = "Completed" if why is None else "Failed"
    end = {"status": status, "secondary": status, "ended_at": at(60), "failure_class": why}
    return record(decision, **{**end, **fields})


CAPACITY, QUOTA, CRASH = FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.USER_CODE
PARKED = {"parked": True, "delay_seconds": 600, "decided_at": at(60)}
REFUSED = ended(CAPACITY, {"delay_seconds": 30, "decided_at": at(60)}, secondary=NOT_CREATED, instance_type=TYPE)
DONE = {"next": Next.DONE}


@pytest.mark.parametrize(
    ("found", "is_open", "run_ended", "expected"),
    [
        (None, True, False, (SeatState.STARTING, "", None)),
        (None, False, False, (SeatState.PARKED, "not wanted", None)),
        (None, True, True, (SeatState.PARKED, "not wanted", None)),
        (record(), True, False, (SeatState.TRAINING, "", None)),
        (record(secondary="Downloading"), True, False, (SeatState.STARTING, "", None)),
        (record(status="", secondary=""), True, False, (SeatState.STARTING, "", None)),
        (record(status="Stopping", secondary="Stopping"), False, False, (SeatState.LEAVING, "", None)),
        (record(), False, False, (SeatState.LEAVING, "", None)),
        (ended(FailureClass.STOPPED_BY_MUSTER, PARKED), False, False, (SeatState.PARKED, "not wanted", None)),
        (ended(FailureClass.SPOT, {}), True, False, (SeatState.STARTING, "", None)),
        (REFUSED, True, False, (SeatState.WAITING, TYPE, at(90))),
        (ended(CAPACITY, PARKED), True, False, (SeatState.WAITING, "capacity", at(660))),
        (ended(QUOTA, PARKED, instance_type=TYPE), True, False, (SeatState.WAITING, f"quota of {TYPE}", at(660))),
        (ended(CAPACITY, PARKED, instance_type=TYPE), True, True, (SeatState.PARKED, f"no capacity for {TYPE}", None)),
        (ended(CRASH, {"next": Next.FAIL, "lost": True}), True, False, (SeatState.LOST, "user-code", None)),
        (ended(CRASH, {"next": Next.FAIL, "lost": True}), False, False, (SeatState.LOST, "user-code", None)),
        (ended(CRASH), True, True, (SeatState.LOST, "user-code", None)),
        (ended(None, DONE), True, False, (SeatState.ENDED, "", None)),
        (ended(FailureClass.STOPPED_BY_USER), True, True, (SeatState.ENDED, "", None)),
    ],
)  # fmt: skip
def test_a_seat_stands_where_its_document_and_its_attempts_say(
    found: SeatRecord | None, is_open: bool, run_ended: bool, expected: tuple[SeatState, str, str | None]
) -> None:
    assert standing(found, is_open=is_open, ended=run_ended) == expected


def test_all_seats_of_a_run_are_in_a_few_groups_however_many_there_may_be() -> None:
    view = seats_view(elastic_run.seats().to_json(), RUN, SeatLimits(2, 4, 10_000), elastic_run.records())
    assert [(one.state.value, one.ranks, one.count, one.reason) for one in view.groups] == [
        ("training", "0-5", 6, ""),
        ("waiting", "6-7", 2, TYPE),
        ("parked", "8-9999", 9_992, "not wanted"),
    ]
    assert (view.wanted, view.present, view.open, len(view.changes)) == (8, 6, "0-7", 3)
    assert len(view.states()) == 10_000


def test_a_run_without_a_document_has_the_seats_of_its_launch_and_one_that_is_over_opens_none() -> None:
    new = seats_view(None, RUN, LIMITS, {})
    assert [(one.state.value, one.ranks) for one in new.groups] == [("starting", "0-3"), ("parked", "4-31")]
    over = Seats.first(RUN, 4).model_copy(update={"ended": "replica 0 has finished"})
    assert seats_view(over.to_json(), RUN, LIMITS, {}).groups[-1].reason == "replica 0 has finished"


def test_the_time_in_which_a_seat_is_parked_follows_from_the_changes() -> None:
    view = seats_view(elastic_run.seats().to_json(), RUN, LIMITS, elastic_run.records())
    parked = {rank: view.parked_seconds(rank, at(0), at(NOW)) for rank in (0, 4, 5, 8, 31)}
    assert parked == {0: 0, 4: 1_200, 5: 1_200 + 1_200, 8: 1_200 + 2_400, 31: NOW}
    assert view.parked_seconds(5, at(3_500), at(4_000)) == 500
    assert view.parked_seconds(5, at(4_300), at(4_400)) == 0


def test_the_numbers_of_a_spec_are_read_as_they_were_written() -> None:
    given = {"replicas": {"min": 2, "start": 4, "max": 32}}
    assert SeatLimits.of(given) == SeatLimits.of({"replicas": 32, "elastic": {"min": 2, "start": 4}}) == LIMITS
    for fixed in ({"replicas": 4}, {}, {"replicas": {"min": 2}}, {"replicas": "x", "elastic": {"min": 1, "start": 1}}):
        assert SeatLimits.of(fixed) is None, fixed
