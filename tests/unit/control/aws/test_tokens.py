from __future__ import annotations

import json
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from muster.contract import timestamps
from muster.contract.errors import ConflictError, MissingDocumentError, NewerDocumentError
from muster.contract.run.record import Decision, Next
from muster.contract.run.workflow_history import WAIT_PIECE_SECONDS
from muster.control.aws.aws_errors import is_transient
from muster.control.aws.task_tokens import Waiting, remaining_delay, workflow_state
from muster.control.runtime import clock
from tests.memory import AwsError, server_error
from tests.memory.harness import RUN, ControlHarness


def rerun(delay: int, decided_seconds_ago: float = 0) -> Decision:
    decided = timestamps.text(clock.utc_now() - timedelta(seconds=decided_seconds_ago))
    return Decision(next=Next.RERUN, attempt=2, delay_seconds=delay, decided_at=decided, reason="spot")


@pytest.mark.parametrize(
    ("delay", "ago", "left"), [(0, 0, 0), (60, 0, 60), (60, 0.5, 60), (60, 30, 30), (60, 30.5, 30), (60, 90, 0)]
)
@pytest.mark.usefixtures("harness")
def test_what_is_left_of_a_wait(delay: int, ago: float, left: int) -> None:
    assert remaining_delay(rerun(delay, ago)) == left


@pytest.mark.usefixtures("harness")
def test_a_long_wait_is_served_in_pieces_so_that_a_stop_is_noticed() -> None:
    assert workflow_state("run", 3, rerun(86_400))["delay_seconds"] == WAIT_PIECE_SECONDS
    assert workflow_state("run", 3, rerun(86_400, 86_390))["delay_seconds"] == 10


@pytest.mark.usefixtures("harness")
def test_the_workflow_gets_all_that_its_states_read() -> None:
    state = workflow_state("run", 3, rerun(0))
    assert state == {"run": "run", "rank": 3, "attempt": 2, "next": "rerun", "delay_seconds": 0, "reason": "spot"}


def test_a_token_is_completed_once_and_one_that_is_gone_is_no_error(harness: ControlHarness) -> None:
    harness.plan()
    tokens, workflow = harness.plane.tokens, harness.cloud.workflow
    token, expired, orphaned = workflow.token(RUN), workflow.token(RUN), workflow.token(RUN)
    workflow.expire(expired)
    decision = Decision(next=Next.DONE, attempt=1)
    assert tokens.complete(Waiting(token, catches_reruns=False), RUN, 0, decision)
    assert not tokens.complete(Waiting(token, catches_reruns=False), RUN, 0, decision)
    assert not tokens.release(expired)
    workflow.fail(RUN, "States.Runtime")
    assert not tokens.complete(Waiting(orphaned, catches_reruns=False), RUN, 0, decision)
    assert not tokens.complete(Waiting("no token of this state machine", catches_reruns=False), RUN, 0, decision)


@pytest.mark.parametrize(
    ("following", "delay", "ago", "error"),
    [
        (Next.DONE, 0, 0, None),
        (Next.FAIL, 0, 0, None),
        (Next.RERUN, 0, 0, "Muster.Rerun"),
        (Next.RERUN, 60, 0, "Muster.RerunLater"),
        (Next.RERUN, 60, 61, "Muster.Rerun"),
        (Next.STOP, 0, 0, "Muster.Stop"),
    ],
)
def test_a_workflow_that_catches_reruns_gets_them_as_errors_with_the_state_as_their_cause(
    harness: ControlHarness, following: Next, delay: int, ago: int, error: str | None
) -> None:
    decision = rerun(delay, ago).model_copy(update={"next": following})
    tokens, workflow = harness.plane.tokens, harness.cloud.workflow
    catching, plain = workflow.token(), workflow.token()
    tokens.complete(Waiting(catching, catches_reruns=True), RUN, 0, decision)
    tokens.complete(Waiting(plain, catches_reruns=False), RUN, 0, decision)
    caught, found = workflow.answer(catching), workflow.answer(plain)
    assert caught is not None
    assert found is not None
    assert found.output == workflow_state(RUN, 0, decision)
    assert caught.error == error
    assert (json.loads(caught.cause or "") if error else caught.output) == found.output


def test_a_token_that_could_not_be_completed_is_an_error(harness: ControlHarness) -> None:
    harness.cloud.calls.inject(server_error("SendTaskSuccess"))
    with pytest.raises(ClientError, match="InternalFailure"):
        harness.plane.tokens.release(harness.cloud.workflow.token())


def error(code: str, status: int) -> ClientError:
    return AwsError(code, "message", status).as_client_error("Operation")


@pytest.mark.parametrize(
    ("failure", "name"),
    [
        (error("ThrottlingException", 400), "Muster.Unavailable"),
        (error("SlowDown", 503), "Muster.Unavailable"),
        (error("InternalFailure", 500), "Muster.Unavailable"),
        (EndpointConnectionError(endpoint_url="https://s3"), "Muster.Unavailable"),
        (ConflictError("the record changed during each try"), "Muster.Unavailable"),
        (TimeoutError(), "Muster.Unavailable"),
        # After a rollback, until the newer version is deployed again.
        (NewerDocumentError("s3://bucket/control/one/replicas/0.json", 2, 1, "0.3.0"), "Muster.Unavailable"),
        (error("AccessDenied", 403), "Muster.ClientError"),
        (MissingDocumentError("s3://bucket/plan.json"), "Muster.MissingDocumentError"),
        (LookupError("not decided on"), "Muster.LookupError"),
    ],
)
def test_the_workflow_learns_whether_time_heals_a_failure(
    harness: ControlHarness, failure: Exception, name: str
) -> None:
    token = harness.cloud.workflow.token()
    assert harness.plane.tokens.fail(token, failure)
    answer = harness.cloud.workflow.answer(token)
    assert answer is not None
    assert (answer.error, answer.cause) == (name, str(failure))
    assert is_transient(failure) is (name == "Muster.Unavailable")


def test_a_long_cause_is_cut_to_what_step_functions_takes(harness: ControlHarness) -> None:
    token = harness.cloud.workflow.token()
    assert harness.plane.tokens.fail(token, ValueError("x" * 40_000))
    answer = harness.cloud.workflow.answer(token)
    assert answer is not None
    assert len(answer.cause or "") == 32_768
