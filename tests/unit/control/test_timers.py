"""What a timer decides by the records alone: every replica here has ended, so that no job is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from muster.contract.run.attempt import Attempt
from muster.contract.run.plan import Place, Plan
from muster.contract.run.record import Decision, Next, Record
from muster.contract.run.result import Result, Verdict
from muster.contract.spec.run_limits import Timer
from muster.contract.spec.spec_reader import parse_spec
from muster.control.active_run import ActiveRun
from muster.control.aws.jobs import Jobs
from muster.control.aws.store import Store
from muster.control.documents import RunDocuments
from muster.control.timers import Fired, fire

PLACE = Place(bucket="bucket", role_arn="arn:aws:iam::123456789012:role/replica", job_prefix="muster")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[ActiveRun]:
    """Two replicas: one has succeeded, one was lost."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    gate = {"replicas": 2, "within_seconds": 60}
    spec = parse_spec({"replicas": 2, "trainer": "m:f", "image": "i:1", "launch_gate": gate, "deadline_seconds": 90})
    with mock_aws():
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket=PLACE.bucket)
        documents = RunDocuments(Store(s3, PLACE.bucket), "run")
        jobs = Jobs(boto3.client("sagemaker", region_name="us-east-1"))
        for rank, follows in enumerate((Next.DONE, Next.FAIL)):
            record = Record(
                run="run",
                rank=rank,
                token="token",
                armed_at="t",
                attempts=(Attempt(attempt=1, job=f"muster-run-r{rank}-a1", launched_at="t"),),
                decision=Decision(next=follows, attempt=1),
            )
            documents.update_record(rank, lambda _, record=record: record)
        yield ActiveRun(Plan.make("run", "arn:execution", "t", PLACE, spec), documents, jobs)


def test_a_gate_that_too_few_have_passed_raises_the_fence_and_is_obeyed_again_when_it_fires_again(run: ActiveRun):
    assert fire(run, Timer.LAUNCH_GATE) is Fired.STOPPED
    fence = run.documents.fence()
    assert fence is not None
    words = "1 of the 2 required replicas were at work after 60 s"
    assert (fence.verdict, fence.reason) == (Verdict.FAILED, f"launch gate: {words}")
    # The first call may have failed before all were asked to stop.
    assert fire(run, Timer.LAUNCH_GATE) is Fired.STOPPED
    assert fire(run, Timer.DEADLINE) is Fired.OVER
    assert run.documents.fence() == fence


def test_a_deadline_raises_the_fence_whatever_the_replicas_do(run: ActiveRun):
    assert fire(run, Timer.DEADLINE) is Fired.STOPPED
    fence = run.documents.fence()
    assert fence is not None
    assert fence.reason == "deadline: the run had not ended 90 s after its launch"


def test_a_timer_of_a_run_that_is_over_or_never_was_does_nothing(run: ActiveRun):
    result = Result(run="run", verdict=Verdict.SUCCEEDED, reason="", settled_at="t", replicas=(), reruns=0)
    run.documents.store.create(run.documents.layout.result, result.to_json())
    assert fire(run, Timer.DEADLINE) is fire(None, Timer.DEADLINE) is Fired.OVER
    assert run.documents.fence() is None
