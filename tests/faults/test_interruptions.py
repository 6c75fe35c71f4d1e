"""A function may end, or AWS fail, at any of its calls: called again, it completes what it began.

Each step is done in a fresh cloud, cut off at its first call of AWS, then in another one at its second call, and so on
up to the last; and then repeated, as Lambda, the workflow or the next event does. Between two calls that write, it does
not matter where a function ends, for all that is left of it is what it wrote; nor does it after which read.
"""

import itertools
import json
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.contract.run.roll_up import ReplicaEntry
from muster.contract.spec.run_limits import Timer
from muster.control.attempt_request import Launch
from muster.control.aws.aws_errors import UnavailableError
from muster.control.aws.inbox import Inbox
from muster.control.aws.timer_schedules import Timers
from muster.control.clear_up import ExecutionEnded, clear_up
from muster.control.documents import RunDocuments
from muster.control.launch_failure import LaunchFailure, give_up_replica
from muster.control.react import JobStateChange
from muster.control.runtime import clock, parallel
from muster.control.settle import UnfinishedError
from muster.control.start import Starter
from muster.control.stop import StopRequest, stop_run
from muster.control.timer import Fired, fire
from tests.memory import AwsError, Call, Fault, lost_answer
from tests.memory.clock import START, SkewedClock
from tests.memory.harness import RUN, SPEC, ControlHarness, budget
from tests.support.control_steps import (
    AGAIN,
    BROKEN,
    CONTINUED,
    FunctionEndedError,
    Row,
    cleared,
    create_job,
    cut_off,
    entries,
    finished,
    found,
    swept,
)

LIMITED = {"replicas": 2, "launch_gate": {"replicas": 2, "within_seconds": 60}, "deadline_seconds": 90}
INBOX_KEY = "inbox/nightly.yaml"


class Step(NamedTuple):
    """A call of a function: what was before it, the call itself, and what holds once it has come through.

    All get what `before` returns. A service that is down strikes at least `calls` of its calls.
    """

    before: Callable[[ControlHarness], Any]
    call: Callable[[ControlHarness, Any], object]
    holds: Callable[[ControlHarness, Any], None]
    cap: int | None = None
    calls: int = 3


# --- the steps ------------------------------------------------------------------------------------


def plan(harness: ControlHarness) -> None:
    harness.plan(replicas=2, **CONTINUED, cost_ceiling_usd=100.0, deadline_seconds=60)


def arm_both(harness: ControlHarness) -> None:
    # So that few looks see the jobs end.
    harness.cloud.training.stop_seconds = 4
    for rank in range(2):
        harness.arm(rank)


def launch(harness: ControlHarness) -> None:
    plan(harness)
    arm_both(harness)


def last_event(harness: ControlHarness, reason: str) -> JobStateChange:
    """The event of the end of rank 0's job, which fails for `reason`."""
    harness.cloud.training.train(harness.job())
    harness.cloud.clock.advance(60)
    harness.cloud.training.fail(harness.job(), reason)
    return harness.last_event(harness.job())


def has_one_job(harness: ControlHarness, _: None = None) -> None:
    assert harness.cloud.training.names("InProgress") == [harness.job()]
    record = harness.record()
    assert (record.decision, len(record.attempts)) == (None, 1)
    assert harness.answer() is None
    assert harness.keys(f"control/{RUN}/spent/") == ["0-1-on-ml.m5.large"]


def ended_by(reason: str, follows: str) -> Step:
    def before(harness: ControlHarness) -> JobStateChange:
        launch(harness)
        return last_event(harness, reason)

    def holds(harness: ControlHarness, _: JobStateChange) -> None:
        answer = found(harness.answer())
        assert (answer["next"], harness.record().current.billable_seconds) == (follows, 60)
        assert [key for key in harness.keys(f"control/{RUN}/spent/") if key.startswith("0-1-cost-")]
        assert harness.keys(f"control/{RUN}/lost/") == (["0"] if follows == "stop" else [])

    return Step(before, ControlHarness.react, holds)


def is_stopped_by(cause: FenceCause) -> Callable[[ControlHarness, None], None]:
    def holds(harness: ControlHarness, _: None) -> None:
        assert found(harness.plane.runs.require(RUN).documents.fence()).cause is cause
        assert len(harness.cloud.training.names("Stopping")) == 2

    return holds


def stop(harness: ControlHarness, _: None) -> object:
    return stop_run(harness.plane, StopRequest(run=RUN, reason="why"), budget())


def fail(harness: ControlHarness) -> None:
    launch(harness)
    harness.react(last_event(harness, BROKEN))
    harness.cloud.training.complete(harness.job(1))
    harness.deliver()


def lose_the_workflow(harness: ControlHarness) -> None:
    launch(harness)
    harness.react(last_event(harness, BROKEN))
    harness.cloud.workflow.fail(RUN, "States.Runtime")


def clear(harness: ControlHarness, _: None = None) -> object:
    arn = harness.cloud.workflow.execution_arn(RUN)
    ended = ExecutionEnded(execution_arn=arn, name=RUN, status="FAILED", started_at=START)
    return clear_up(harness.plane, harness.plane.runs.require(RUN), ended, budget())


def has_ended(harness: ControlHarness, _: None = None) -> None:
    assert harness.cloud.training.names("InProgress", "Stopping") == []
    assert found(harness.result()).verdict is Verdict.FAILED
    assert "one-x2" in harness.executions.live_runs()
    assert harness.keys(f"control/{RUN}/report.html") == [""]


def two_runs(harness: ControlHarness) -> str:
    """The first one is admitted; the token of the second, which waits."""
    tokens = [harness.cloud.workflow.token(harness.plan(name, replicas=2).plan.run) for name in ("first", "second")]
    harness.admit("first", tokens[0])
    return tokens[1]


def join(harness: ControlHarness, token: str) -> object:
    return harness.admit("second", token)


def second_waits(harness: ControlHarness, token: str) -> None:
    assert harness.output(token) is None
    leave(harness, token)
    assert harness.output(token) == {}


def plan_with_timers(harness: ControlHarness, _: None = None) -> None:
    """What the function plan does, for a run with source code and two timers."""
    run = harness.plan(source_dir="s3://elsewhere/source.tar.gz", **LIMITED)
    timers = Timers(harness.cloud.client("scheduler"), "arn:function", "arn:aws:iam::123456789012:role/timer", "muster")
    timers.set(RUN, run.plan.spec.timers())


def is_planned(harness: ControlHarness, _: None = None) -> None:
    assert {"plan.json"} <= set(harness.keys(f"control/{RUN}/"))
    assert harness.keys(f"runs/{RUN}/") == ["document.json"]
    [package] = harness.keys("packages/")
    assert harness.plane.runs.require(RUN).plan.place.package_uri == f"s3://bucket/packages/{package}"
    harness.cloud.clock.advance(200)
    assert [(firing.at - START).seconds for firing in harness.cloud.scheduler.fired] == [60, 90]


def put_spec(harness: ControlHarness) -> str:
    """A spec in the inbox, with the problems of an earlier version of it: its ETag."""
    inbox = Inbox(harness.plane.store)
    inbox.complain(INBOX_KEY, "an earlier problem")
    body = json.dumps(SPEC).encode()
    answer: dict[str, str] = harness.plane.store.s3.put_object(Bucket="bucket", Key=INBOX_KEY, Body=body)
    return answer["ETag"].strip('"')


def start_from_inbox(harness: ControlHarness, etag: str) -> object:
    return Starter(harness.executions, Inbox(harness.plane.store), harness.plane.bus).from_inbox(INBOX_KEY, etag)


def is_started_once(harness: ControlHarness, _: str) -> None:
    assert len(harness.executions.live_runs()) == 1
    assert harness.keys("inbox/") == ["nightly.yaml"]


def launch_with_limits(harness: ControlHarness) -> None:
    harness.plan(**LIMITED)
    arm_both(harness)


def fired(timer: Timer) -> Callable[[ControlHarness, None], object]:
    return lambda harness, _: fire(harness.plane, harness.plane.runs.require(RUN), timer, budget())


def leave(harness: ControlHarness, _: str) -> None:
    found(harness.plane.queue).leave(harness.cloud.workflow.execution_arn("first"))


def both_joined(harness: ControlHarness) -> str:
    token = two_runs(harness)
    join(harness, token)
    return token


def second_is_admitted(harness: ControlHarness, token: str) -> None:
    assert harness.output(token) == {}
    assert not found(harness.plane.queue).must_wait("second", harness.cloud.workflow.execution_arn("second"))


def late_job(harness: ControlHarness) -> JobStateChange:
    """The event of a job that SageMaker created although it had refused it; the next attempt trains."""
    plan(harness)
    harness.cloud.calls.inject(Fault("CreateTrainingJob", AwsError("ResourceLimitExceeded")))
    harness.arm()
    create_job(harness, harness.job())
    event = harness.last_event(harness.job())
    harness.cloud.clock.advance(200)
    harness.arm(attempt=2)
    return event


def only_the_newer_trains(harness: ControlHarness, _: JobStateChange) -> None:
    assert harness.cloud.training.names("Stopping") == [harness.job()]
    assert harness.cloud.training.names("InProgress") == [harness.job(attempt=2)]


def unlaunchable(harness: ControlHarness) -> None:
    """Attempt has failed for good, after it created the job."""
    plan(harness)
    harness.cloud.calls.inject(lost_answer("CreateTrainingJob"))
    with pytest.raises(ClientError):
        harness.arm()


def give_up(harness: ControlHarness, _: None) -> object:
    return give_up_replica(harness.plane, LaunchFailure(run=RUN, rank=0, attempt=1, reason="could not be launched"))


def is_given_up(harness: ControlHarness, _: None) -> None:
    assert harness.keys(f"control/{RUN}/lost/") == ["0"]
    assert harness.cloud.training.names("Stopping") == [harness.job()]


def assert_roll_ups_are_current(harness: ControlHarness) -> None:
    shown = entries(harness.cloud, RUN)
    for rank in (0, 1):
        record = RunDocuments(harness.plane.store, RUN).record(rank).record
        assert (rank in shown) == (record is not None)
        if record is None:
            continue
        assert shown[rank].says_the_same(ReplicaEntry.of(record))


STEPS = {
    "attempt": Step(plan, lambda harness, _: harness.arm(), has_one_job),
    "react to a rerun": ended_by(AGAIN, "rerun"),
    "react to a loss": ended_by(BROKEN, "stop"),
    "stop": Step(launch, stop, is_stopped_by(FenceCause.QUORUM_LOST)),
    "finish": Step(fail, lambda harness, _: finished(harness), has_ended),
    "clear up": Step(lose_the_workflow, clear, has_ended),
    "sweep": Step(lose_the_workflow, lambda harness, _: swept(harness), has_ended),
    "join the queue": Step(two_runs, join, second_waits, cap=3),
    "leave the queue": Step(both_joined, leave, second_is_admitted, cap=3),
    "plan": Step(lambda _: None, plan_with_timers, is_planned),
    "start": Step(put_spec, start_from_inbox, is_started_once, calls=2),
    "launch gate": Step(launch_with_limits, fired(Timer.LAUNCH_GATE), is_stopped_by(FenceCause.LAUNCH_GATE)),
    "deadline": Step(launch_with_limits, fired(Timer.DEADLINE), is_stopped_by(FenceCause.DEADLINE)),
    "react to a late job": Step(late_job, ControlHarness.react, only_the_newer_trains, calls=2),
    "give up a replica": Step(unlaunchable, give_up, is_given_up),
}


def writes(call: Call) -> bool:
    return not call.operation.startswith(("Describe", "Get", "Head", "List", "Search"))


FAULTS: dict[str, Callable[[int], Fault]] = {
    "the function ends": lambda skip: Fault("*", FunctionEndedError(), after_effect=True, when=writes, skip=skip),
    "the service is down": lambda skip: Fault("*", AwsError("ServiceUnavailable", status=503), skip=skip),
    "the key denies": lambda skip: Fault("*Object", AwsError("AccessDenied", "kms:Decrypt", 403), skip=skip),
    "the answer is lost": lambda skip: Fault(
        "*", AwsError("InternalFailure", status=503), after_effect=True, when=writes, skip=skip
    ),
}


class OneByOne(Executor):
    """In place of threads: a function ends at a call that is the same every time, and nothing of it goes on."""

    def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(function(*given, **named))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "ThreadPoolExecutor", lambda **_: OneByOne())


@pytest.mark.usefixtures("_one_by_one")
@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_cut_off_anywhere_is_completed_by_the_next_call(name: str, subtests: pytest.Subtests) -> None:
    step = STEPS[name]
    for fault, of_call in FAULTS.items():
        with subtests.test(fault):
            cut = 0
            try:
                while is_completed(step, of_call(cut)):
                    cut += 1
            except Exception as error:
                error.add_note(f"The step was cut off at the call number {cut} that the fault strikes, from 0.")
                raise
            assert cut >= (step.calls if fault == "the service is down" else 1)


def is_completed(step: Step, fault: Fault) -> bool:
    """Cut the step off by `fault` and repeat it. False: it has not so many calls that the fault strikes."""
    with ControlHarness(cap=step.cap).installed() as harness:
        given = step.before(harness)
        harness.cloud.calls.inject(fault)
        try:
            step.call(harness, given)
        except (FunctionEndedError, ClientError, UnavailableError, UnfinishedError):
            assert fault.fired
        harness.cloud.calls.reset()
        # Also where the step came through: an event may fail without a loss.
        step.call(harness, given)
        step.holds(harness, given)
        assert_roll_ups_are_current(harness)
        return bool(fault.fired)


# --- races ----------------------------------------------------------------------------------------


def cancel(harness: ControlHarness) -> None:
    """A user stops the execution, and stop clears up."""
    cleared(harness, cut_off(harness, "ABORTED"), 600)


def test_a_redriven_execution_of_a_run_that_was_cleared_up_launches_nothing(harness: ControlHarness) -> None:
    """Redrive runs the children that had not ended once more; the fence stands, and the result."""
    harness.plan(replicas=2)
    harness.arm()
    harness.cloud.workflow.fail(RUN, "States.Runtime")
    clear(harness)
    before = harness.result()
    token = harness.cloud.workflow.token()
    for rank, expected in ((0, Launch.CONCLUDED), (1, Launch.REFUSED)):
        assert harness.attempt(harness.request(rank).model_copy(update={"token": token})) is expected
    assert harness.cloud.calls.counts()["CreateTrainingJob"] == 1
    finished(harness)
    assert harness.result() == before


def test_a_cancel_that_races_a_rerun_leaves_no_job(harness: ControlHarness) -> None:
    """The execution is stopped while attempt 2 is on its way to SageMaker; Stop's looks come before the job."""
    harness.plan()
    harness.arm()
    harness.cloud.training.fail(harness.job(), AGAIN)
    harness.deliver()
    request = harness.request(attempt=2)

    harness.cloud.calls.inject(Fault("CreateTrainingJob", action=lambda: cancel(harness)))
    harness.attempt(request)
    harness.cloud.clock.advance(120)
    assert harness.cloud.training.names("InProgress", "Stopping") == []
    assert found(harness.result()).verdict is Verdict.STOPPED


def test_an_event_from_the_dead_letter_queue_changes_no_result(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    event = last_event(harness, BROKEN)
    run = harness.plane.runs.require(RUN)
    run.documents.raise_fence(Fence(verdict=Verdict.STOPPED, cause=FenceCause.EXECUTION_STOPPED, reason="", at="t"))
    finished(harness)
    before = harness.result()
    harness.cloud.clock.advance(7 * 86_400)
    for _ in range(2):
        harness.react(event)
    finished(harness)
    assert harness.result() == before
    assert harness.emitted().count("Run Stopped") == 1


def test_an_attempt_that_is_on_its_way_while_its_run_is_settled_launches_nothing(harness: ControlHarness) -> None:
    """The execution is stopped after the attempt has looked at the fence, and the run is settled before the attempt
    writes its record. The result says that the replica was not launched, so it must not be."""
    harness.plan()
    request = harness.request()
    harness.cloud.calls.inject(Fault("PutObject", action=lambda: cancel(harness)))
    assert harness.attempt(request) is Launch.CONCLUDED
    result = found(harness.result())
    assert (result.verdict, result.replicas[0].outcome) == (Verdict.STOPPED, ReplicaOutcome.NOT_LAUNCHED)
    assert harness.cloud.calls.counts()["CreateTrainingJob"] == 0
    assert harness.record().current.failure_class is FailureClass.STOPPED_BY_MUSTER


# --- clocks that differ by a minute: no decision depends on who is right -----------------------------

SKEW = 60


def rerun_and_succeed(harness: ControlHarness, attempt: int, react: int, other: int) -> None:
    """A run that needs one rerun, whose functions have clocks that are ahead (1) or behind (-1)."""

    def ahead(sign: int) -> AbstractContextManager[None]:
        return clock.replaced(SkewedClock(harness.cloud.clock, sign * SKEW))

    with ahead(other):
        run = harness.plan(
            replicas=2,
            launch_gate={"replicas": 2, "within_seconds": 90},
            cost_ceiling_usd=100.0,
            reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": 100}},
        )
        assert harness.admit()
    # The times of states are Step Functions'.
    requests = [harness.request(rank) for rank in range(2)]
    with ahead(attempt):
        assert [harness.attempt(request) for request in requests] == [Launch.CREATED] * 2
    harness.cloud.training.train(harness.job(1))
    harness.cloud.training.fail(harness.job(), AGAIN)
    with ahead(react):
        harness.deliver()
    waited, launch = 0, Launch.EARLY
    while launch is Launch.EARLY:
        request = harness.request(attempt=2)
        with ahead(attempt):
            launch = harness.attempt(request)
        output = harness.output(request.token)
        if output is not None:
            assert (launch, output["next"]) == (Launch.EARLY, "rerun")
            waited += output["delay_seconds"]
            harness.cloud.clock.advance(output["delay_seconds"])
    assert launch is Launch.CREATED
    # 100 s and their jitter, and two minutes at most by which the two functions differ.
    assert 0 <= waited <= 125 + 2 * SKEW
    harness.cloud.training.train(harness.job(attempt=2))
    with ahead(react):
        harness.deliver()
    with ahead(other):
        assert fire(harness.plane, run, Timer.LAUNCH_GATE, budget()) is Fired.PASSED
    for job in (harness.job(attempt=2), harness.job(1)):
        harness.cloud.training.complete(job)
    with ahead(react):
        harness.deliver()
    with ahead(other):
        result = finished(harness).result
    assert (result.verdict, result.reruns) == (Verdict.SUCCEEDED, 1)


def test_a_run_whose_functions_disagree_about_the_time_is_rerun_once_and_succeeds(row: Row) -> None:
    for attempt, react, other in itertools.product((-1, 1), repeat=3):
        with row(f"attempt {attempt}, react {react}, other {other}", cap=2) as harness:
            rerun_and_succeed(harness, attempt, react, other)
