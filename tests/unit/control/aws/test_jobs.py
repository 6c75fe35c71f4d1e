"""Training jobs, as far as the control plane's calls go beyond what its functions show."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.job_status import JobStatus
from muster.contract.run.attempt import Attempt
from muster.contract.run.job_request import training_job_request
from muster.control.aws.jobs import TrainingJobs
from muster.control.jobs import LaunchRefusedError
from tests.memory import AwsError, Fault, throttle
from tests.memory.harness import PREFIX, RUN, ControlHarness


def test_a_job_that_is_not_there_is_none_and_a_failure_to_look_is_an_error(harness: ControlHarness) -> None:
    assert harness.plane.jobs.find("muster-one-r0-a1") is None
    harness.cloud.calls.inject(throttle("DescribeTrainingJob"))
    with pytest.raises(ClientError, match="ThrottlingException"):
        harness.plane.jobs.find("muster-one-r0-a1")


@pytest.mark.parametrize(
    ("code", "status"),
    [("ThrottlingException", 400), ("InternalFailure", 500), ("ServiceUnavailable", 503)],
)
def test_a_creation_that_may_pass_later_is_no_refusal(harness: ControlHarness, code: str, status: int) -> None:
    jobs, request = TrainingJobs(harness.cloud.client("sagemaker")), training_job_request(harness.plan().plan, 0, 1)
    harness.cloud.calls.inject(Fault("CreateTrainingJob", AwsError(code, "again", status)))
    with pytest.raises(ClientError, match=code):
        jobs.create(request)
    assert jobs.create(request).is_new
    assert not jobs.create(request).is_new


def test_a_refusal_has_a_class_and_the_words_of_aws(harness: ControlHarness) -> None:
    jobs, request = TrainingJobs(harness.cloud.client("sagemaker")), training_job_request(harness.plan().plan, 0, 1)
    harness.cloud.calls.inject(Fault("CreateTrainingJob", AwsError("ResourceLimitExceeded", "0 instances")))
    with pytest.raises(LaunchRefusedError) as caught:
        jobs.create(request)
    assert caught.value.failure_class is FailureClass.QUOTA
    assert caught.value.reason == "ResourceLimitExceeded: 0 instances"


def test_a_refusal_does_not_repeat_values_that_may_be_secret(harness: ControlHarness) -> None:
    harness.plan(environment={"TOKEN": "hunter2"})
    message = (
        "3 validation errors detected: Value 'ml.none.large' at 'resourceConfig.instanceType' failed to satisfy "
        "constraint; Value '{TOKEN=hunter2, URL='http://u:hunter2@h'}' at 'environment' failed to satisfy constraint: "
        "Map value must have length less than or equal to 512; "
        "Value '[--token, hunter2]' at 'algorithmSpecification.containerArguments' failed to satisfy constraint"
    )
    harness.cloud.calls.inject(Fault("CreateTrainingJob", AwsError("ValidationException", message, 400)))
    harness.arm()
    reason = harness.record().current.reason
    assert "hunter2" not in reason
    assert "Value 'ml.none.large' at 'resourceConfig.instanceType'" in reason
    assert "The value (not shown) at 'environment' failed to satisfy constraint: Map value must" in reason


def test_a_stop_that_is_refused_for_a_job_that_runs_is_an_error(harness: ControlHarness) -> None:
    """A ValidationException is how Stop answers for a job that has ended; here it means something else."""
    harness.plan()
    harness.arm()
    refused = AwsError("ValidationException", "Status Stopping is not valid")
    harness.cloud.calls.inject(Fault("StopTrainingJob", refused))
    with pytest.raises(ClientError, match="ValidationException"):
        harness.plane.jobs.stop(harness.job())
    harness.plane.jobs.stop(harness.job())
    harness.plane.jobs.stop(harness.job())
    harness.cloud.clock.advance(120)
    harness.plane.jobs.stop(harness.job())
    assert harness.cloud.training.names("Stopped") == [harness.job()]


def test_a_status_that_is_not_known_is_no_end(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    job = harness.plane.jobs.find(harness.job())
    assert job is not None
    attempt = Attempt(attempt=1, job=job.name)
    seen = job.applied_to(attempt, stopping=False)
    assert (job.end, seen.status, seen.ended_at, seen.billable_seconds) == (None, "InProgress", None, None)


def test_names_of_another_run_that_contain_ours_are_not_ours(harness: ControlHarness) -> None:
    """ListTrainingJobs filters by a part of the name."""
    for name in (RUN, "muster-one", "one-r0"):
        harness.plan(name)
        harness.arm(run=name)
    harness.cloud.client("sagemaker").create_training_job(
        **{**harness.cloud.calls.of("CreateTrainingJob")[0], "TrainingJobName": "x-muster-one-r0-a1"}
    )
    found = harness.plane.jobs.under_names_of(PREFIX, RUN, JobStatus.IN_PROGRESS)
    assert [str(job.name) for job in found] == ["muster-one-r0-a1"]
    assert len(harness.plane.jobs.active(PREFIX)) == 3


def test_a_listing_sees_every_page(harness: ControlHarness) -> None:
    harness.plan(replicas=101)
    for rank in range(101):
        harness.arm(rank)
    found = list(harness.plane.jobs.under_names_of(PREFIX, RUN, JobStatus.IN_PROGRESS))
    assert {job.name.rank for job in found} == set(range(101))
