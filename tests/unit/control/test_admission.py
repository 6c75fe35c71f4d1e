"""The run queue in its bucket: the token first, then the look, so that a run that is admitted gets its answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from muster.contract.errors import ConflictError, DocumentError
from muster.contract.layout import RunLayout
from muster.contract.run.result import Result, Verdict
from muster.contract.run.run_queue import QUEUE_KEY, Queue, QueuedRun, QueueToken
from muster.control.admission import AdmitRequest, RunQueue, admit
from tests.memory import AwsError, Fault, server_error
from tests.memory.harness import ControlHarness


class FunctionEndedError(BaseException):
    """The function's time is over: no code of it runs any more."""


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    """A stack that runs at most four replicas at once."""
    with ControlHarness(cap=4).installed() as harness:
        yield harness


@pytest.fixture
def queue(harness: ControlHarness) -> RunQueue:
    assert harness.plane.queue is not None
    return harness.plane.queue


def queued(run: str, replicas: int) -> QueuedRun:
    return QueuedRun(run=run, execution_arn=f"arn:{run}", replicas=replicas, asked_at="t")


def join(queue: RunQueue, run: str, replicas: int, token: str) -> bool:
    return queue.join(queued(run, replicas), QueueToken(token=token))


def settle(harness: ControlHarness, run: str) -> None:
    result = Result(run=run, verdict=Verdict.FAILED, reason="", settled_at="t", replicas=(), reruns=0)
    harness.plane.store.create(RunLayout(run).result, result.to_json())


def in_queue(harness: ControlHarness) -> list[str]:
    found = harness.plane.store.get(QUEUE_KEY)
    assert found is not None
    return [one.run for one in Queue.from_json(found.body, "queue").runs]


def test_a_run_that_leaves_admits_the_next_one(harness: ControlHarness, queue: RunQueue) -> None:
    first, second = harness.cloud.workflow.token(), harness.cloud.workflow.token()
    assert join(queue, "a", 3, first)
    assert not join(queue, "b", 2, second)
    assert (harness.output(first), harness.output(second)) == ({}, None)
    queue.leave("arn:a")
    assert harness.output(second) == {}
    assert not queue.must_wait("b", "arn:b")


def test_an_admission_whose_answer_was_lost_is_repeated_by_the_next_call(
    harness: ControlHarness, queue: RunQueue
) -> None:
    workflow = harness.cloud.workflow
    second, later = workflow.token(), workflow.token()
    join(queue, "a", 3, workflow.token())
    join(queue, "b", 2, second)
    harness.cloud.calls.inject(server_error("SendTaskSuccess"))
    with pytest.raises(ClientError):
        queue.leave("arn:a")
    assert harness.output(second) is None
    # Settle is tried again; or the wait of the second run times out, and it joins with a fresh token.
    queue.leave("arn:a")
    assert harness.output(second) == {}
    assert join(queue, "b", 2, later)
    assert harness.output(later) == {}


def test_a_run_that_is_in_the_queue_has_its_token_there(harness: ControlHarness, queue: RunQueue) -> None:
    """Its function ended right after it had joined: the run before it leaves, and admits it."""
    join(queue, "a", 3, harness.cloud.workflow.token())
    joined = Fault(
        "PutObject", FunctionEndedError(), after_effect=True, when=lambda call: call.parameters["Key"] == QUEUE_KEY
    )
    harness.cloud.calls.inject(joined)
    token = harness.cloud.workflow.token()
    with pytest.raises(FunctionEndedError):
        join(queue, "b", 2, token)
    queue.leave("arn:a")
    assert harness.output(token) == {}


def test_a_damaged_queue_is_an_error_and_not_an_empty_one(harness: ControlHarness, queue: RunQueue) -> None:
    harness.plane.store.create(QUEUE_KEY, b"damaged")
    with pytest.raises(DocumentError, match=re.escape(QUEUE_KEY)):
        join(queue, "a", 1, "token")


def test_two_runs_that_join_at_once_do_not_overwrite_each_other(harness: ControlHarness, queue: RunQueue) -> None:
    tokens = [harness.cloud.workflow.token() for _ in "ab"]
    rival = Fault(
        "PutObject",
        when=lambda call: call.parameters["Key"] == QUEUE_KEY,
        action=lambda: join(queue, "a", 3, tokens[0]),
    )
    harness.cloud.calls.inject(rival)
    assert not join(queue, "b", 2, tokens[1])
    found = harness.plane.store.get(QUEUE_KEY)
    assert found is not None
    runs = Queue.from_json(found.body, "queue").runs
    assert [(one.run, one.admitted) for one in runs] == [("a", True), ("b", False)]


def test_a_queue_that_is_always_written_by_others_is_given_up(harness: ControlHarness, queue: RunQueue) -> None:
    conflict = AwsError("ConditionalRequestConflict", "again", 409)
    harness.cloud.calls.inject(
        Fault("PutObject", conflict, count=None, when=lambda call: "queue/" in call.parameters["Key"])
    )
    with pytest.raises(ConflictError, match="changed during each of 20"):
        join(queue, "a", 1, harness.cloud.workflow.token())


def test_a_run_whose_end_did_not_leave_the_queue_is_removed_by_the_next_one_that_joins(
    harness: ControlHarness, queue: RunQueue
) -> None:
    join(queue, "a", 3, harness.cloud.workflow.token())
    settle(harness, "a")
    assert join(queue, "b", 2, harness.cloud.workflow.token())
    assert in_queue(harness) == ["b"]


def test_a_run_that_joins_after_it_was_settled_leaves_no_place_behind(harness: ControlHarness, queue: RunQueue) -> None:
    """It was cancelled while its function was late: its settlement has left the queue already."""
    workflow = harness.cloud.workflow
    join(queue, "a", 3, workflow.token())
    token = workflow.token()

    def cancel() -> None:
        settle(harness, "b")
        queue.leave("arn:b")

    harness.cloud.calls.inject(Fault("PutObject", action=cancel, when=lambda call: call.parameters["Key"] == QUEUE_KEY))
    assert join(queue, "b", 2, token)
    # A redriven execution continues, and finds its run settled.
    assert harness.output(token) == {}
    assert in_queue(harness) == ["a"]
    assert not queue.must_wait("b", "arn:b")


def test_a_settled_run_that_waits_is_not_admitted_in_place_of_another(harness: ControlHarness, queue: RunQueue) -> None:
    """Its function ended between its entry and the look at its result."""
    workflow = harness.cloud.workflow
    join(queue, "a", 3, workflow.token())
    settle(harness, "b")
    joined = Fault(
        "PutObject", FunctionEndedError(), after_effect=True, when=lambda call: call.parameters["Key"] == QUEUE_KEY
    )
    harness.cloud.calls.inject(joined)
    with pytest.raises(FunctionEndedError):
        join(queue, "b", 2, workflow.token())
    tokens = [workflow.token() for _ in range(2)]
    assert join(queue, "c", 1, tokens[0])
    assert not join(queue, "d", 4, tokens[1])
    queue.leave("arn:a")
    queue.leave("arn:c")
    assert in_queue(harness) == ["d"]
    assert [harness.output(token) for token in tokens] == [{}, {}]


def test_a_settled_run_that_could_not_leave_is_not_admitted_in_place_of_the_next(
    harness: ControlHarness, queue: RunQueue
) -> None:
    """It was cancelled while it waited, and the function that settled it ended before it left."""
    tokens = {run: harness.cloud.workflow.token() for run in "abc"}
    for run, replicas in (("a", 3), ("b", 2), ("c", 4)):
        join(queue, run, replicas, tokens[run])
    settle(harness, "b")
    queue.leave("arn:a")
    assert in_queue(harness) == ["c"]
    assert harness.output(tokens["c"]) == {}


def test_a_run_is_queued_by_its_plan_and_joins_once_however_often_it_asks(harness: ControlHarness) -> None:
    for name in ("first", "second"):
        harness.plan(name, replicas=4)
    tokens = [harness.cloud.workflow.token() for _ in range(3)]
    assert admit(harness.plane, AdmitRequest(run="first", token=tokens[0]))
    assert not admit(harness.plane, AdmitRequest(run="second", token=tokens[1]))
    harness.cloud.workflow.expire(tokens[1])
    assert not admit(harness.plane, AdmitRequest(run="second", token=tokens[2]))
    queue = harness.plane.queue
    assert queue is not None
    queue.leave(harness.cloud.workflow.execution_arn("first"))
    assert [harness.output(token) for token in tokens] == [{}, None, {}]


def test_a_call_that_is_late_leaves_the_token_of_a_later_call(harness: ControlHarness) -> None:
    """The answer of the first call was lost while it ran, so the workflow called again, and waits for that call."""
    for name in ("first", "second"):
        harness.plan(name, replicas=4)
    workflow = harness.cloud.workflow
    admit(harness.plane, AdmitRequest(run="first", token=workflow.token(), entered_at="2026-01-01T00:00:00.000Z"))
    lost, awaited = workflow.token(), workflow.token()
    calls = [
        AdmitRequest(run="second", token=token, entered_at="2026-01-01T00:00:00.000Z", retry=retry)
        for retry, token in enumerate((lost, awaited))
    ]
    admit(harness.plane, calls[1])
    admit(harness.plane, calls[0])
    assert harness.plane.queue is not None
    harness.plane.queue.leave(workflow.execution_arn("first"))
    assert harness.output(awaited) == {}
    assert harness.output(lost) is None


def test_a_redriven_execution_of_an_older_definition_waits_with_its_own_token(harness: ControlHarness) -> None:
    """Its definition does not say when its state was entered, so its last call counts."""
    for name in ("first", "second"):
        harness.plan(name, replicas=4)
    workflow = harness.cloud.workflow
    admit(harness.plane, AdmitRequest(run="first", token=workflow.token()))
    tokens = [workflow.token() for _ in range(2)]
    admit(harness.plane, AdmitRequest(run="second", token=tokens[0], entered_at="2026-01-01T00:00:00.000Z"))
    admit(harness.plane, AdmitRequest(run="second", token=tokens[1]))
    assert harness.plane.queue is not None
    harness.plane.queue.leave(workflow.execution_arn("first"))
    assert harness.output(tokens[1]) == {}


def test_a_write_that_takes_effect_late_finds_another_queue_although_the_same_runs_are_in_it(
    harness: ControlHarness, queue: RunQueue
) -> None:
    """S3's ETags follow from the bytes: a document that looks as before has the ETag of before."""
    join(queue, "a", 3, harness.cloud.workflow.token())
    before = harness.plane.store.get(QUEUE_KEY)
    join(queue, "b", 2, harness.cloud.workflow.token())
    queue.leave("arn:b")
    assert in_queue(harness) == ["a"]
    assert before is not None
    assert not harness.plane.store.replace(QUEUE_KEY, Queue().to_json(), before.etag)


def test_a_stack_without_a_cap_admits_every_run_at_once() -> None:
    with ControlHarness().installed() as harness:
        harness.plan()
        token = harness.cloud.workflow.token()
        assert admit(harness.plane, AdmitRequest(run="one", token=token))
        assert harness.output(token) == {}
        assert harness.keys("queue/") == []
