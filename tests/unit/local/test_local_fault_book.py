"""The fault book: which calls and jobs a fault hits, how often, and what is left."""

from __future__ import annotations

import threading

import pytest
from pydantic import ValidationError

from muster.local.calls import Call
from muster.local.faults import (
    FAULT,
    CallError,
    CapacityError,
    Fault,
    LostInstance,
    RateLimit,
    throttled,
)
from muster.local.service.fault_book import FaultBook

CREATE = Call("sagemaker", "CreateTrainingJob")


def fired(book: FaultBook) -> list[int]:
    return [report.fired for report in book.report()]


def test_a_fault_fires_as_often_as_asked_and_is_then_spent() -> None:
    book = FaultBook()
    book.add(CapacityError(count=2))
    hits = [book.take(CapacityError, lambda _: True) is not None for _ in range(4)]
    assert hits == [True, True, False, False]
    assert fired(book) == [2]


def test_a_fault_without_count_never_ends() -> None:
    book = FaultBook()
    book.add(CapacityError(count=None))
    assert all(book.take(CapacityError, lambda _: True) for _ in range(100))
    assert fired(book) == [100]


def test_a_fault_fires_only_for_its_kind_and_a_match() -> None:
    book = FaultBook()
    book.add(CapacityError(job="a-*"))
    assert book.take(LostInstance, lambda _: True) is None
    assert book.take(CapacityError, lambda fault: fault.job == "b-*") is None
    assert fired(book) == [0]


def test_faults_fire_in_their_order_and_spent_ones_are_passed_over() -> None:
    book = FaultBook()
    for code in ("First", "Second"):
        book.add(CallError(code=code))
    codes = [fault.code for _ in range(3) if (fault := book.take_call(CREATE, "root", [""]))]
    assert codes == ["First", "Second"]


@pytest.mark.parametrize(
    ("fault", "matches"),
    [
        (CallError(), True),
        (CallError(service="s3"), False),
        (CallError(operation="Create*"), True),
        (CallError(operation="Stop*"), False),
        (CallError(resource="job-1"), True),
        (CallError(resource="other"), False),
        (CallError(caller="launcher"), True),
        (CallError(caller="replica"), False),
    ],
)
def test_calls_are_matched_by_service_operation_resource_and_caller(fault: CallError, matches: bool) -> None:
    book = FaultBook()
    book.add(fault)
    assert (book.take_call(CREATE, "launcher", ["", "job-1"]) is not None) == matches


def test_a_rate_limit_lets_a_burst_through_and_throttles_the_rest() -> None:
    book = FaultBook()
    book.add(RateLimit(per_second=0.001, burst=3))
    answers = [book.take_call(CREATE, "root", [""]) for _ in range(5)]
    assert [answer.code if answer else None for answer in answers] == [None] * 3 + ["ThrottlingException"] * 2
    assert fired(book) == [2]
    assert book.take_call(Call("s3", "PutObject"), "root", [""]) is None


def test_a_bucket_fills_again() -> None:
    book = FaultBook()
    book.add(RateLimit(per_second=1000, burst=1))
    assert book.take_call(CREATE, "root", [""]) is None
    pause = threading.Event()
    pause.wait(0.005)
    assert book.take_call(CREATE, "root", [""]) is None


def test_s3_is_throttled_in_its_own_words() -> None:
    assert (throttled("s3", "*").code, throttled("s3", "*").status) == ("SlowDown", 503)
    assert throttled("states", "*").code == "ThrottlingException"


def test_faults_can_be_removed() -> None:
    book = FaultBook()
    first, second = book.add(CapacityError()), book.add(CapacityError())
    assert book.remove(first.id)
    assert not book.remove(first.id)
    assert [report.id for report in book.report()] == [second.id]
    book.clear()
    assert book.report() == []


def test_a_count_holds_under_concurrency() -> None:
    book = FaultBook()
    book.add(CapacityError(count=50))
    hits: list[object] = []

    def take() -> None:
        for _ in range(50):
            if book.take(CapacityError, lambda _: True):
                hits.append(object())

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(hits) == 50


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "capacity-error", "count": 0},
        {"kind": "capacity-error", "jobs": "typo"},
        {"kind": "event", "action": "mangle"},
        {"kind": "slow-start", "seconds": 0},
        {"kind": "call-error", "status": 200},
        {"kind": "no-such-kind"},
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        FAULT.validate_python(document)


def test_faults_survive_the_wire() -> None:
    fault: Fault = LostInstance(job="run-r1-*", after_seconds=2.5, count=None)
    assert FAULT.validate_json(fault.model_dump_json()) == fault
