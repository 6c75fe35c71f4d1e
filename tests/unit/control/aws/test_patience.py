"""Calls that AWS throttles are tried again for as long as the function has time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.job_status import JobStatus
from muster.contract.run.attempt import Attempt
from muster.control.aws.patience import patiently
from muster.control.jobs import Jobs
from muster.control.runtime.time_budget import TimeBudget
from tests.memory import AwsError, Fault, server_error, throttle
from tests.memory.harness import PREFIX, RUN, ControlHarness

CALLS: dict[str, Callable[[Jobs, str], object]] = {
    "DescribeTrainingJob": lambda jobs, name: jobs.find(name),
    "StopTrainingJob": lambda jobs, name: jobs.stop(name),
    "ListTrainingJobs": lambda jobs, _: list(jobs.under_names_of(PREFIX, RUN, JobStatus.IN_PROGRESS)),
    "ListTags": lambda jobs, name: jobs.tags(f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}"),
}


@pytest.mark.parametrize("operation", CALLS)
def test_a_throttled_call_outlasts_minutes_of_throttling(harness: ControlHarness, operation: str) -> None:
    harness.plan()
    harness.arm()
    jobs = harness.plane.jobs
    harness.cloud.calls.inject(throttle(operation, 30))
    jobs.patience = TimeBudget.of(800)
    CALLS[operation](jobs, harness.job())
    assert harness.cloud.calls.counts()[operation] >= 31
    assert 60 < harness.cloud.clock.monotonic() < 800


@pytest.mark.parametrize("operation", CALLS)
def test_without_time_the_first_refusal_is_raised(harness: ControlHarness, operation: str) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.calls.inject(throttle(operation))
    with pytest.raises(ClientError, match="Throttling"):
        CALLS[operation](harness.plane.jobs, harness.job())


def test_patience_ends_with_the_budget(harness: ControlHarness) -> None:
    harness.plan()
    harness.cloud.calls.inject(throttle("DescribeTrainingJob", None))
    harness.plane.jobs.patience = TimeBudget.of(100)
    with pytest.raises(ClientError, match="Throttling"):
        harness.plane.jobs.find("any")
    assert harness.cloud.clock.monotonic() == pytest.approx(100, abs=1)


def test_a_launch_is_left_to_the_workflow(harness: ControlHarness) -> None:
    harness.plan()
    harness.plane.jobs.patience = TimeBudget.of(800)
    harness.cloud.calls.inject(throttle("CreateTrainingJob"))
    with pytest.raises(ClientError, match="Throttling"):
        harness.arm()
    assert harness.cloud.calls.counts()["CreateTrainingJob"] == 1


def test_a_page_of_a_listing_is_repeated_and_not_the_pages_before_it(harness: ControlHarness) -> None:
    run = harness.plan(replicas=250)
    for rank in range(250):
        run.backends.training.create(run.replica(rank).request([Attempt(attempt=1, job=harness.job(rank))]))
    harness.cloud.calls.reset()
    fault = throttle("ListTrainingJobs")
    fault.skip = 2
    harness.cloud.calls.inject(fault)
    run.backends.patience = TimeBudget.of(800)
    assert len(list(run.backends.training.under_names_of(PREFIX, RUN, JobStatus.IN_PROGRESS))) == 250
    assert harness.cloud.calls.counts()["ListTrainingJobs"] == 4


@pytest.mark.parametrize(
    ("fault", "tries"),
    [(server_error("DescribeTrainingJob", 2), 3), (Fault("DescribeTrainingJob", AwsError("AccessDenied")), 1)],
)
def test_only_what_another_try_may_change_is_tried_again(harness: ControlHarness, fault: Fault, tries: int) -> None:
    sagemaker = harness.cloud.client("sagemaker")
    harness.cloud.calls.inject(fault)
    with pytest.raises(ClientError):
        patiently(lambda: sagemaker.describe_training_job(TrainingJobName="any"), TimeBudget.of(60))
    assert harness.cloud.calls.counts()["DescribeTrainingJob"] == tries
