"""Sessions of the launcher role: one per run, with its tags, renewed in time, and the failures of STS."""

import json
from typing import Any

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.result import Result
from muster.control.attempt_request import Launch
from muster.control.jobs import LaunchRefusedError
from muster.control.run_result import write_result
from tests.memory import AwsError, Fault
from tests.memory.harness import LAUNCHER_ROLE, ControlHarness, budget
from tests.support.control_steps import found


def ended(harness: ControlHarness, run: str, **fields: Any) -> Result:
    """The result of a run whose one job completes."""
    planned = harness.plan(run, **fields)
    harness.arm(run=run)
    harness.cloud.training.complete(harness.job(run=run))
    harness.deliver()
    write_result(planned, budget())
    return found(harness.result(run))


def test_a_run_that_starts_from_the_model_of_another_run_has_a_tag_for_that(harness: ControlHarness) -> None:
    [replica] = ended(harness, "one", replicas=1).replicas
    folder = f"s3://{harness.cloud.bucket}/output/one/muster-one-r0-a1/output"
    assert replica.artifacts == f"{folder}/model.tar.gz"
    plan = harness.plan("two", replicas=1, model={"run": "one"}).plan
    harness.arm(run="two")
    tags = {"MusterLineage": "two", "MusterRun": "two", "MusterModel": "one/muster-one-r0-a1/output"}
    assert harness.cloud.sts.creators["muster-two-r0-a1"] == tags
    [channel] = plan.spec.input_data_config
    assert channel.data_source.s3_data_source is not None
    assert channel.data_source.s3_data_source.s3_uri == replica.artifacts
    assert harness.cloud.calls.of("AssumeRole")[-1]["RoleArn"] == LAUNCHER_ROLE
    chained = {"EnableSessionTagChaining": True}
    assert harness.cloud.calls.of("CreateTrainingJob")[-1]["SessionChainingConfig"] == chained
    # A continuation keeps the lineage.
    harness.plan("one-x1", replicas=1, resume_from="one")
    harness.arm(run="one-x1")
    assert harness.cloud.sts.creators["muster-one-x1-r0-a1"] == {"MusterLineage": "one", "MusterRun": "one-x1"}
    # What the user writes as a URI gives no right.
    harness.plan("three", replicas=1, model={"s3": f"{folder}/"})
    harness.arm(run="three")
    assert "MusterModel" not in harness.cloud.sts.creators["muster-three-r0-a1"]


def test_a_checkpoint_that_stays_with_aws_is_the_model_of_the_next_run(harness: ControlHarness) -> None:
    """The manifest names a bucket that is not the stack's: the service itself reads it, and the session has no tag."""
    escrow = "s3://customer-escrow-111122223333-smtj-1a2b/muster-one-r0-a1/step_40"
    manifest = json.dumps({"checkpoint_s3_bucket": f" {escrow}"}).encode()
    harness.plane.store.create("output/one/muster-one-r0-a1/output/output/manifest.json", manifest)
    result = ended(harness, "one", replicas=1, trainer=None, entrypoint=["train"])
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


def test_a_session_that_is_refused_ends_the_attempt_with_the_words_of_aws(harness: ControlHarness) -> None:
    plan = harness.plan().plan
    harness.cloud.calls.inject(Fault("AssumeRole", AwsError("AccessDenied", "not authorized: sts:TagSession", 403)))
    with pytest.raises(LaunchRefusedError) as caught:
        harness.launcher.jobs(plan)
    assert caught.value.failure_class is FailureClass.INVALID_REQUEST
    harness.cloud.calls.inject(Fault("AssumeRole", AwsError("AccessDenied", "not authorized: sts:TagSession", 403)))
    assert harness.arm() is Launch.CONCLUDED
    assert "sts:TagSession" in harness.record().current.reason
