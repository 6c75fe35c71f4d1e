"""Sessions of the launcher role: one per run, with its tags, renewed in time, and the failures of STS."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.job_request import training_job_request
from muster.control.attempt import Launch
from muster.control.jobs import LaunchRefusedError
from muster.control.settle import settle
from tests.memory import AwsError, Fault
from tests.memory.harness import LAUNCHER_ROLE, ControlHarness, budget


def test_a_job_is_created_in_a_session_with_the_tags_of_its_run(harness: ControlHarness) -> None:
    for name in ("one", "two"):
        harness.plan(name)
        assert harness.arm(run=name) is Launch.CREATED
    assert harness.cloud.sts.creators == {
        "muster-one-r0-a1": {"MusterLineage": "one", "MusterRun": "one"},
        "muster-two-r0-a1": {"MusterLineage": "two", "MusterRun": "two"},
    }
    [asked, _] = harness.cloud.calls.of("AssumeRole")
    assert (asked["RoleArn"], asked["RoleSessionName"]) == (LAUNCHER_ROLE, "muster-one")
    for request in harness.cloud.calls.of("CreateTrainingJob"):
        assert request["SessionChainingConfig"] == {"EnableSessionTagChaining": True}


def test_a_continuation_keeps_the_lineage_and_has_a_run_of_its_own(harness: ControlHarness) -> None:
    first = harness.plan("one")
    harness.arm(run="one")
    harness.cloud.training.complete(harness.job(run="one"))
    harness.deliver()
    settle(first, budget())
    harness.plan("one-x1", resume_from="one")
    harness.arm(run="one-x1")
    assert harness.cloud.sts.creators["muster-one-x1-r0-a1"] == {"MusterLineage": "one", "MusterRun": "one-x1"}


def test_a_run_that_starts_from_the_model_of_another_run_has_a_tag_for_that(harness: ControlHarness) -> None:
    first = harness.plan("one", replicas=1)
    harness.arm(run="one")
    harness.cloud.training.complete(harness.job(run="one"))
    harness.deliver()
    settle(first, budget())
    result = harness.result("one")
    assert result is not None
    [replica] = result.replicas
    folder = f"s3://{harness.cloud.bucket}/output/one/muster-one-r0-a1/output"
    assert replica.artifacts == f"{folder}/model.tar.gz"
    plan = harness.plan("two", replicas=1, model={"run": "one"}).plan
    harness.arm(run="two")
    tags = {"MusterLineage": "two", "MusterRun": "two", "MusterModel": "one/muster-one-r0-a1/output"}
    assert harness.cloud.sts.creators["muster-two-r0-a1"] == tags
    [channel] = plan.spec.input_data_config
    assert channel.data_source.s3_data_source is not None
    assert channel.data_source.s3_data_source.s3_uri == replica.artifacts
    # What the user writes as a URI gives no right.
    harness.plan("three", replicas=1, model={"s3": f"{folder}/"})
    harness.arm(run="three")
    assert "MusterModel" not in harness.cloud.sts.creators["muster-three-r0-a1"]


def test_a_checkpoint_that_stays_with_aws_is_the_model_of_the_next_run(harness: ControlHarness) -> None:
    """The manifest names a bucket that is not the stack's: the service itself reads it, and the session has no tag."""
    first = harness.plan("one", replicas=1, trainer=None, entrypoint=["train"])
    harness.arm(run="one")
    escrow = "s3://customer-escrow-111122223333-smtj-1a2b/muster-one-r0-a1/step_40"
    manifest = json.dumps({"checkpoint_s3_bucket": f" {escrow}"}).encode()
    harness.plane.store.create("output/one/muster-one-r0-a1/output/output/manifest.json", manifest)
    harness.cloud.training.complete(harness.job(run="one"))
    harness.deliver()
    settle(first, budget())
    result = harness.result("one")
    assert result is not None
    assert (result.replicas[0].checkpoint_uri, result.replicas[0].checkpoint_platform) == (escrow, "training-job")
    plan = harness.plan("two", replicas=1, model={"run": "one"}).plan
    assert plan.spec.model is not None
    assert plan.spec.model.s3 == escrow
    harness.arm(run="two")
    assert "MusterModel" not in harness.cloud.sts.creators["muster-two-r0-a1"]


def test_a_session_serves_a_run_until_shortly_before_its_end(harness: ControlHarness) -> None:
    harness.plan(replicas=4)
    for rank, minutes in enumerate((0, 49, 2, 48)):
        harness.cloud.clock.advance(minutes * 60)
        assert harness.arm(rank) is Launch.CREATED
    assert harness.cloud.sts.names == ["muster-one"] * 2


def test_many_runs_do_not_keep_their_sessions_for_ever(harness: ControlHarness) -> None:
    for number in range(40):
        harness.launcher.jobs(harness.plan(f"run{number}").plan)
    assert len(harness.launcher._sessions) < 40
    assert len(harness.cloud.sts.names) == 40


@pytest.mark.parametrize(
    ("code", "status"), [("Throttling", 400), ("InternalFailure", 500), ("ServiceUnavailable", 503)]
)
def test_a_session_that_may_be_had_later_is_no_refusal(harness: ControlHarness, code: str, status: int) -> None:
    harness.plan()
    harness.cloud.calls.inject(Fault("AssumeRole", AwsError(code, "again", status)))
    with pytest.raises(ClientError, match=code):
        harness.arm()
    assert harness.cloud.training.names() == []
    assert harness.arm() is Launch.CREATED


def test_a_session_that_is_refused_ends_the_attempt_with_the_words_of_aws(harness: ControlHarness) -> None:
    plan = harness.plan().plan
    harness.cloud.calls.inject(Fault("AssumeRole", AwsError("AccessDenied", "not authorized: sts:TagSession", 403)))
    with pytest.raises(LaunchRefusedError) as caught:
        harness.launcher.jobs(plan)
    assert caught.value.failure_class is FailureClass.INVALID_REQUEST
    assert "AccessDenied: not authorized: sts:TagSession (the launcher role" in caught.value.reason
    harness.cloud.calls.inject(Fault("AssumeRole", AwsError("AccessDenied", "not authorized: sts:TagSession", 403)))
    assert harness.arm() is Launch.CONCLUDED
    assert "sts:TagSession" in harness.record().current.reason


def test_a_session_that_has_ended_creates_nothing(harness: ControlHarness) -> None:
    """The AWS in memory is as strict as AWS."""
    jobs = harness.launcher.jobs(harness.plan().plan)
    harness.cloud.clock.advance(3_600)
    with pytest.raises(LaunchRefusedError, match="ExpiredTokenException"):
        jobs.create(training_job_request(harness.plane.runs.require("one").plan, 0, 1))
