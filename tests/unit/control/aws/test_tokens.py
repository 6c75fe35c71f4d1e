import json
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from muster.contract import timestamps
from muster.contract.errors import ConflictError, MissingDocumentError, NewerDocumentError
from muster.contract.run.record import Decision, Next
from muster.contract.spec.retry_budget import WAIT_PIECE_SECONDS
from muster.control.aws.aws_errors import is_transient
from muster.control.aws.task_tokens import remaining_delay, workflow_state
from muster.control.runtime import clock
from tests.memory import AwsError
from tests.memory.harness import RUN, ControlHarness
from tests.support.control_steps import found


def rerun(delay: int, decided_seconds_ago: float = 0) -> Decision:
    decided = timestamps.text(clock.utc_now() - timedelta(seconds=decided_seconds_ago))
    return Decision(next=Next.RERUN, attempt=2, delay_seconds=delay, decided_at=decided, reason="spot")


@pytest.mark.usefixtures("harness")
def test_the_workflow_gets_all_that_its_states_read_and_what_is_left_of_a_wait() -> None:
    state = workflow_state("run", 3, rerun(0))
    assert state == {"run": "run", "rank": 3, "attempt": 2, "next": "rerun", "delay_seconds": 0, "reason": "spot"}
    left = {(0, 0): 0, (60, 0): 60, (60, 0.5): 60, (60, 30): 30, (60, 30.5): 30, (60, 90): 0}
    assert {case: remaining_delay(rerun(*case)) for case in left} == left
    # A long wait is served in pieces, so that a stop is noticed.
    assert workflow_state("run", 3, rerun(86_400))["delay_seconds"] == WAIT_PIECE_SECONDS
    assert workflow_state("run", 3, rerun(86_400, 86_390))["delay_seconds"] == 10


def test_a_workflow_gets_reruns_and_stops_as_errors_with_the_state_as_their_cause(harness: ControlHarness) -> None:
    tokens, workflow = harness.plane.tokens, harness.cloud.workflow
    for following, delay, ago, error in (
        (Next.DONE, 0, 0, None),
        (Next.FAIL, 0, 0, None),
        (Next.RERUN, 0, 0, "Muster.Rerun"),
        (Next.RERUN, 60, 0, "Muster.RerunLater"),
        (Next.RERUN, 60, 61, "Muster.Rerun"),
        (Next.STOP, 0, 0, "Muster.Stop"),
    ):
        decision = rerun(delay, ago).model_copy(update={"next": following})
        token = workflow.token()
        tokens.complete(token, RUN, 0, decision)
        answer = found(workflow.answer(token))
        assert answer.error == error, (following, delay, ago)
        assert (json.loads(answer.cause or "") if error else answer.output) == workflow_state(RUN, 0, decision)


def error(code: str, status: int) -> ClientError:
    return AwsError(code, "message", status).as_client_error("Operation")


def test_the_workflow_learns_whether_time_heals_a_failure(harness: ControlHarness) -> None:
    passing: list[Exception] = [
        error("ThrottlingException", 400),
        error("SlowDown", 503),
        error("InternalFailure", 500),
        EndpointConnectionError(endpoint_url="https://s3"),
        ConflictError("the record changed during each try"),
        TimeoutError(),
        # After a rollback, until the newer version is deployed again.
        NewerDocumentError("s3://bucket/control/one/replicas/0.json", 2, 1, "0.3.0"),
    ]
    lasting = {
        "Muster.ClientError": error("AccessDenied", 403),
        "Muster.MissingDocumentError": MissingDocumentError("s3://bucket/plan.json"),
        "Muster.LookupError": LookupError("not decided on"),
    }
    for name, failure in [*(("Muster.Unavailable", one) for one in passing), *lasting.items()]:
        token = harness.cloud.workflow.token()
        assert harness.plane.tokens.fail(token, failure)
        answer = found(harness.cloud.workflow.answer(token))
        assert (answer.error, answer.cause) == (name, str(failure))
        assert is_transient(failure) is (failure in passing)
    # A long cause is cut to what Step Functions takes.
    token = harness.cloud.workflow.token()
    assert harness.plane.tokens.fail(token, ValueError("x" * 40_000))
    assert len(found(harness.cloud.workflow.answer(token)).cause or "") == 32_768
