"""Which ends the rerun policy follows, beside what the result says: the run's own limits are not passed by."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import boto3
import pytest
from moto import mock_aws

from muster.contract.aws.failures import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.fence import Fence
from muster.contract.run.plan import Place, Plan
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.spec.spec_reader import parse_spec
from muster.control.active_run import ActiveRun
from muster.control.aws.bus import Bus
from muster.control.aws.jobs import Jobs
from muster.control.aws.store import Store
from muster.control.documents import RunDocuments
from muster.control.rerun_policy import Succession

REGION = "us-east-1"
ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/any"
PLACE = Place(bucket="bucket", role_arn=ROLE, job_prefix="muster")
LOST = ReplicaResult(
    rank=0,
    outcome=ReplicaOutcome.FAILED,
    attempts=(
        Attempt(
            attempt=1,
            job="job",
            launched_at="",
            status="Failed",
            secondary="Failed",
            failure_class=FailureClass.INFRASTRUCTURE,
        ),
    ),
)
FAILED = Result(run="run", verdict=Verdict.FAILED, reason="", settled_at="", replicas=(LOST,), reruns=0)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[ActiveRun]:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    spec = parse_spec(
        {
            "replicas": 1,
            "trainer": "m:f",
            "image": "i:1",
            "instance_type": "ml.m5.large",
            "deadline_seconds": 90,
            "cost_ceiling_usd": 1.5,
            "rerun": {"on": ["failed"], "max": 1},
        }
    )
    with mock_aws():
        s3 = boto3.client("s3", region_name=REGION)
        s3.create_bucket(Bucket=PLACE.bucket)
        states = boto3.client("stepfunctions", region_name=REGION)
        definition = json.dumps({"StartAt": "End", "States": {"End": {"Type": "Succeed"}}})
        states.create_state_machine(name="machine", definition=definition, roleArn=ROLE)
        arn = f"arn:aws:states:{REGION}:{ACCOUNT}:execution:machine:run"
        documents = RunDocuments(Store(s3, PLACE.bucket), "run")
        jobs = Jobs(boto3.client("sagemaker", region_name=REGION))
        yield ActiveRun(Plan.make("run", arn, "t", PLACE, spec), documents, jobs)


def nothing(run: ActiveRun) -> None:
    """No limit was met."""


def stopped_for_another_reason(run: ActiveRun) -> None:
    run.documents.raise_fence(Fence(verdict=Verdict.FAILED, reason="replica 0 was lost", at="t"))


def deadline_missed(run: ActiveRun) -> None:
    run.documents.raise_fence(Fence(verdict=Verdict.FAILED, reason="deadline: the run was not over", at="t"))


def gate_missed(run: ActiveRun) -> None:
    run.documents.raise_fence(Fence(verdict=Verdict.FAILED, reason="launch gate: 0 of the 1 replicas", at="t"))


def ceiling_reached(run: ActiveRun) -> None:
    run.documents.store.create(f"{run.documents.layout.spent}0-1-cost-1500000", b"{}")


@pytest.mark.parametrize(
    ("before", "continued_by"),
    [
        (nothing, "run-x2"),
        (stopped_for_another_reason, "run-x2"),
        (deadline_missed, None),
        (gate_missed, None),
        (ceiling_reached, None),
    ],
)
def test_a_run_that_one_of_its_limits_has_ended_is_not_followed(
    run: ActiveRun, before: Callable[[ActiveRun], None], continued_by: str | None
) -> None:
    before(run)
    states = boto3.client("stepfunctions", region_name=REGION)
    succession = Succession(states, Bus(boto3.client("events", region_name=REGION), "default"))
    assert succession.follow(run, FAILED) == continued_by
    machine = f"arn:aws:states:{REGION}:{ACCOUNT}:stateMachine:machine"
    started = [found["name"] for found in states.list_executions(stateMachineArn=machine)["executions"]]
    assert started == ([continued_by] if continued_by else [])
