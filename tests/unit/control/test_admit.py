"""The run queue in its bucket: the token first, then the look, so that a run that is admitted gets its answer."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from muster.contract.errors import DocumentError
from muster.contract.layout import RunLayout
from muster.contract.run.result import Result, Verdict
from muster.contract.run.run_queue import QUEUE_KEY, Queue, QueuedRun, QueueToken
from muster.contract.spec.stack_defaults import StackDefaults
from muster.control.plan import make_plan
from muster.control.runtime.parallel import PARALLEL
from muster.control.stored_run_queue import RunQueue
from tests.memory import Call, Fault
from tests.memory.harness import RUN, ControlHarness
from tests.support.control_steps import FunctionEndedError, Row, finished, found

ENTERED = "2026-01-01T00:00:00.000Z"


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    """A stack that runs at most four replicas at once."""
    with ControlHarness(cap=4).installed() as harness:
        yield harness


@pytest.fixture
def queue(harness: ControlHarness) -> RunQueue:
    return found(harness.plane.queue)


def join(harness: ControlHarness, run: str, replicas: int, token: str | None = None) -> bool:
    """Whether the run is admitted at once."""
    queued = QueuedRun(run=run, execution_arn=f"arn:{run}", replicas=replicas, asked_at="t")
    return found(harness.plane.queue).join(queued, QueueToken(token=token or harness.cloud.workflow.token()))


def settle(harness: ControlHarness, run: str) -> None:
    result = Result(run=run, verdict=Verdict.FAILED, reason="", settled_at="t", replicas=(), reruns=0)
    harness.plane.store.create(RunLayout(run).result, result.to_json())


def in_queue(harness: ControlHarness) -> list[tuple[str, bool]]:
    """The runs, and whether each is admitted."""
    body = found(harness.plane.store.get(QUEUE_KEY)).body
    return [(one.run, one.admitted) for one in Queue.from_json(body, "queue").runs]


def is_queue(call: Call) -> bool:
    return bool(call.parameters["Key"] == QUEUE_KEY)


def test_a_damaged_queue_is_an_error_and_not_an_empty_one(harness: ControlHarness) -> None:
    harness.plane.store.create(QUEUE_KEY, b"damaged")
    with pytest.raises(DocumentError, match=re.escape(QUEUE_KEY)):
        join(harness, "a", 1)


# --- a run that was settled -----------------------------------------------------------------------


def test_a_run_that_joins_after_it_was_settled_leaves_no_place_behind(harness: ControlHarness, queue: RunQueue) -> None:
    """It was cancelled while its function was late: its settlement has left the queue already."""
    join(harness, "a", 3)
    token = harness.cloud.workflow.token()

    def cancel() -> None:
        settle(harness, "b")
        queue.leave("arn:b")

    harness.cloud.calls.inject(Fault("PutObject", action=cancel, when=is_queue))
    assert join(harness, "b", 2, token)
    # A redriven execution continues, and finds its run settled.
    assert harness.output(token) == {}
    assert in_queue(harness) == [("a", True)]
    assert not queue.must_wait("b", "arn:b")


def test_a_settled_run_that_waits_is_not_admitted_in_place_of_another(harness: ControlHarness, queue: RunQueue) -> None:
    """Its function ended between its entry and the look at its result."""
    join(harness, "a", 3)
    settle(harness, "b")
    joined = Fault("PutObject", FunctionEndedError(), after_effect=True, when=is_queue)
    harness.cloud.calls.inject(joined)
    with pytest.raises(FunctionEndedError):
        join(harness, "b", 2)
    tokens = [harness.cloud.workflow.token() for _ in range(2)]
    assert (join(harness, "c", 1, tokens[0]), join(harness, "d", 4, tokens[1])) == (True, False)
    queue.leave("arn:a")
    queue.leave("arn:c")
    assert in_queue(harness) == [("d", True)]
    assert [harness.output(token) for token in tokens] == [{}, {}]


def test_a_settled_run_that_could_not_leave_is_not_admitted_in_place_of_the_next(
    harness: ControlHarness, queue: RunQueue
) -> None:
    """It was cancelled while it waited, and the function that settled it ended before it left."""
    token = harness.cloud.workflow.token()
    for run, replicas in (("a", 3), ("b", 2), ("c", 4)):
        join(harness, run, replicas, token if run == "c" else None)
    settle(harness, "b")
    queue.leave("arn:a")
    assert in_queue(harness) == [("c", True)]
    assert harness.output(token) == {}


def test_a_write_that_takes_effect_late_finds_another_queue_although_the_same_runs_are_in_it(
    harness: ControlHarness, queue: RunQueue
) -> None:
    """S3's ETags follow from the bytes: a document that looks as before has the ETag of before."""
    join(harness, "a", 3)
    before = found(harness.plane.store.get(QUEUE_KEY))
    join(harness, "b", 2)
    queue.leave("arn:b")
    assert in_queue(harness) == [("a", True)]
    assert not harness.plane.store.replace(QUEUE_KEY, Queue().to_json(), before.etag)


def test_a_queue_operation_tells_the_newly_admitted_runs_and_no_others(harness: ControlHarness) -> None:
    """Of 400 that were admitted before, each would take two calls, and another one to look whether it is settled."""
    plain = QueuedRun(run="r", execution_arn="arn:r", replicas=1, asked_at="t", admitted=True, told=True)
    many = tuple(plain.model_copy(update={"run": f"r{n}", "execution_arn": f"arn:r{n}"}) for n in range(400))
    harness.plane.store.create(QUEUE_KEY, Queue(runs=many).to_json())
    larger = ControlHarness(cloud=harness.cloud, cap=401)
    tokens = [harness.cloud.workflow.token() for _ in range(2)]
    assert [join(larger, run, 1, token) for run, token in zip("ab", tokens, strict=True)] == [True, False]
    assert harness.cloud.calls.counts()["SendTaskSuccess"] == 1
    assert harness.cloud.calls.counts()["HeadObject"] <= 20
    found(larger.plane.queue).leave("arn:a")
    assert [harness.output(token) for token in tokens] == [{}, {}]
    assert harness.cloud.calls.counts()["SendTaskSuccess"] == 2
    assert not Queue.from_json(found(harness.plane.store.get(QUEUE_KEY)).body, "queue").untold


def test_all_runs_that_are_admitted_in_place_of_a_large_one_are_told(harness: ControlHarness) -> None:
    larger = ControlHarness(cloud=harness.cloud, cap=2 * PARALLEL)
    join(larger, "large", 2 * PARALLEL)
    tokens = [harness.cloud.workflow.token() for _ in range(2 * PARALLEL)]
    assert not any(join(larger, f"r{number}", 1, token) for number, token in enumerate(tokens))
    found(larger.plane.queue).leave("arn:large")
    assert all(harness.output(token) == {} for token in tokens)


def test_a_run_that_was_admitted_by_a_call_that_ended_is_told_by_the_next_one(
    harness: ControlHarness, queue: RunQueue
) -> None:
    tokens = [harness.cloud.workflow.token() for _ in range(2)]
    for run, token in zip("ab", tokens, strict=True):
        join(harness, run, 3, token)
    harness.cloud.calls.inject(Fault("SendTaskSuccess", FunctionEndedError()))
    with pytest.raises(FunctionEndedError):
        queue.leave("arn:a")
    assert harness.output(tokens[1]) is None
    join(harness, "c", 4)
    assert harness.output(tokens[1]) == {}


# --- the function ---------------------------------------------------------------------------------


@pytest.fixture
def waits(harness: ControlHarness) -> None:
    """The run "first" is admitted; "second" has a plan, and has to wait."""
    for name in ("first", "second"):
        harness.plan(name, replicas=4)
    assert harness.admit("first")


def ask(harness: ControlHarness, token: str, retry: int) -> None:
    assert not harness.admit("second", token, entered_at=ENTERED, retry=retry)


def admitted(harness: ControlHarness, *tokens: str) -> list[bool]:
    """To which of the tokens the run is admitted once the first one has left."""
    found(harness.plane.queue).leave(harness.cloud.workflow.execution_arn("first"))
    return [harness.output(token) == {} for token in tokens]


@pytest.mark.usefixtures("waits")
def test_a_call_that_is_late_leaves_the_token_of_a_later_call(harness: ControlHarness) -> None:
    """The answer of the first call was lost while it ran, so the workflow called again, and waits for that call."""
    lost, awaited = harness.cloud.workflow.token(), harness.cloud.workflow.token()
    ask(harness, awaited, 1)
    ask(harness, lost, 0)
    assert admitted(harness, lost, awaited) == [False, True]


# --- a deployment replaces all functions under runs that wait ---------------------------------------


def deployed(before: ControlHarness, cap: int | None = None) -> ControlHarness:
    """The functions of the next deployment: another role, other defaults, another limit, and nothing read yet."""
    after = ControlHarness(cloud=before.cloud, cap=cap)
    place = after.deployment.place.model_copy(update={"role_arn": "arn:aws:iam::123456789012:role/new"})
    defaults = StackDefaults(image="new:2", tags={"team": "new"})
    after.deployment = replace(after.deployment, place=place, defaults=defaults)
    return after


def asked_again(harness: ControlHarness, run: str = RUN) -> bool:
    """The workflow asks, the first time or because its wait has timed out. Whether it goes on now."""
    harness.cloud.clock.advance(1)
    token = harness.cloud.workflow.token(run)
    harness.admit(run, token)
    return harness.output(token) == {}


def queued(harness: ControlHarness) -> None:
    """One run trains, and another one waits for it."""
    for name, replicas in (("first", 3), (RUN, 2)):
        harness.plan(name, replicas=replicas)
        asked_again(harness, name)


def test_a_run_that_waits_is_admitted_once_the_limit_is_removed(row: Row) -> None:
    for name, cap in (("removed", None), ("raised", 5)):
        with row(name, cap=4) as before:
            queued(before)
            assert asked_again(deployed(before, cap))


def test_a_run_that_waits_and_is_larger_than_the_lowered_limit_is_admitted_alone_and_keeps_its_plan(
    harness: ControlHarness,
) -> None:
    queued(harness)
    plan = harness.plane.runs.require(RUN).plan
    after = deployed(harness, cap=1)
    assert not asked_again(after)
    finished(after, "first")
    assert asked_again(after)
    assert make_plan(after.plane, after.deployment, harness.plan_request(replicas=2)) == plan
