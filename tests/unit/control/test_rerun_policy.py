"""Which ends the rerun policy follows, beside what the result says: the run's own limits are not evaded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.control.active_run import ActiveRun
from muster.control.aws.executions import state_machine_of
from muster.control.rerun_policy import RerunPolicy
from tests.memory import throttle
from tests.memory.harness import ControlHarness

LOST = ReplicaResult(
    rank=0,
    outcome=ReplicaOutcome.FAILED,
    attempts=(
        Attempt(attempt=1, job="job", status="Failed", secondary="Failed", failure_class=FailureClass.INFRASTRUCTURE),
    ),
)
FAILED = Result(run="run", verdict=Verdict.FAILED, reason="", settled_at="", replicas=(LOST,), reruns=0)
STOPPED = FAILED.model_copy(update={"verdict": Verdict.STOPPED})
POLICY = {"on": ["failed"], "max": 2}


@pytest.fixture
def run(harness: ControlHarness) -> ActiveRun:
    return harness.plan("run", deadline_seconds=90, cost_ceiling_usd=1.5, rerun=POLICY)


def fenced(cause: FenceCause) -> Callable[[ActiveRun], object]:
    # The reason is for people: no code reads it.
    fence = Fence(verdict=Verdict.FAILED, cause=cause, reason="any words", at="t")
    return lambda run: run.documents.raise_fence(fence)


def ceiling_reached(run: ActiveRun) -> None:
    run.documents.store.create(f"{run.documents.layout.spent}0-1-cost-1500000", b"{}")


@pytest.mark.parametrize(
    ("before", "continued_by"),
    [
        (lambda _: None, "run-x2"),
        (fenced(FenceCause.QUORUM_LOST), "run-x2"),
        (fenced(FenceCause.EXECUTION_FAILED), "run-x2"),
        (fenced(FenceCause.DEADLINE), None),
        (fenced(FenceCause.LAUNCH_GATE), None),
        (fenced(FenceCause.EXECUTION_STOPPED), None),
        (ceiling_reached, None),
    ],
)
def test_a_run_that_a_user_or_one_of_its_limits_has_ended_is_not_continued(
    harness: ControlHarness, run: ActiveRun, before: Callable[[ActiveRun], object], continued_by: str | None
) -> None:
    before(run)
    assert harness.plane.rerun_policy.start_next(run, FAILED) == continued_by
    started = harness.executions.live_runs() - {"run"}
    assert started == ({continued_by} if continued_by else set())
    assert harness.emitted() == (["Run Rerun"] if continued_by else [])


def test_a_run_that_was_stopped_is_not_continued(harness: ControlHarness, run: ActiveRun) -> None:
    assert harness.plane.rerun_policy.start_next(run, STOPPED) is None
    assert harness.executions.live_runs() == {"run"}


def test_a_repeated_call_names_the_same_continuation(harness: ControlHarness, run: ActiveRun) -> None:
    policy = harness.plane.rerun_policy
    names = [policy.start_next(run, FAILED) for _ in range(2)]
    harness.cloud.workflow.succeed("run-x2")
    names.append(policy.start_next(run, FAILED))
    assert names == ["run-x2"] * 3
    details = harness.cloud.events.of("Run Rerun")
    # Step Functions does not say that the execution runs already: the second event is a copy of the first.
    assert len(details) == 2
    assert len({detail["id"] for detail in details}) == 1
    assert (details[0]["continued_by"], details[0]["generation"], details[0]["max"]) == ("run-x2", 1, 2)


def test_a_continuation_whose_name_is_taken_is_refused_and_announced(harness: ControlHarness, run: ActiveRun) -> None:
    harness.executions.start("run-x2", '{"another": "spec"}')
    assert harness.plane.rerun_policy.start_next(run, FAILED) is None
    [refused] = harness.cloud.events.of("Run Refused")
    assert (refused["request"], refused["error"]) == (run.plan.execution_arn, "Muster.RunNameTakenError")


def test_a_start_that_fails_is_an_error_and_is_repeated(harness: ControlHarness, run: ActiveRun) -> None:
    policy = RerunPolicy(harness.cloud.client("stepfunctions"), harness.plane.bus)
    harness.cloud.calls.inject(throttle("StartExecution"))
    with pytest.raises(ClientError, match="ThrottlingException"):
        policy.start_next(run, FAILED)
    assert policy.start_next(run, FAILED) == "run-x2"


def test_a_run_without_a_policy_ends(harness: ControlHarness) -> None:
    assert harness.plane.rerun_policy.start_next(harness.plan("other"), FAILED) is None


def test_the_continuation_is_of_the_same_state_machine() -> None:
    arn = "arn:aws-cn:states:cn-north-1:123456789012:execution:Runs:one"
    assert state_machine_of(arn) == "arn:aws-cn:states:cn-north-1:123456789012:stateMachine:Runs"
