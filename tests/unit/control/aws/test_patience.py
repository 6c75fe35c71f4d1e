"""Calls that AWS throttles are tried again for as long as the function has time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.job_status import JobStatus
from muster.control.aws.patience import patiently
from muster.control.jobs import Jobs
from muster.control.runtime.time_budget import TimeBudget
from tests.memory import AwsError, Fault, server_error, throttle
from tests.memory.harness import PREFIX, RUN, ControlHarness
from tests.support.control_steps import Row

CALLS: dict[str, Callable[[Jobs, str], object]] = {
    "DescribeTrainingJob": lambda jobs, name: jobs.find(name),
    "StopTrainingJob": lambda jobs, name: jobs.stop(name),
    "ListTrainingJobs": lambda jobs, _: list(jobs.under_names_of(PREFIX, RUN, JobStatus.IN_PROGRESS)),
    "ListTags": lambda jobs, name: jobs.tags(f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}"),
}


def test_a_throttled_call_outlasts_minutes_of_throttling_if_there_is_time(row: Row) -> None:
    for operation, call in CALLS.items():
        with row(operation) as harness:
            harness.plan()
            harness.arm()
            jobs = harness.plane.jobs
            harness.cloud.calls.inject(throttle(operation))
            with pytest.raises(ClientError, match="Throttling"):
                call(jobs, harness.job())
            harness.cloud.calls.inject(throttle(operation, 30))
            jobs.patience = TimeBudget.of(800)
            call(jobs, harness.job())
            assert harness.cloud.calls.counts()[operation] >= 32
            assert 60 < harness.cloud.clock.monotonic() < 800


def test_patience_ends_with_the_budget(harness: ControlHarness) -> None:
    harness.plan()
    harness.cloud.calls.inject(throttle("DescribeTrainingJob", None))
    harness.plane.jobs.patience = TimeBudget.of(100)
    with pytest.raises(ClientError, match="Throttling"):
        harness.plane.jobs.find("any")
    assert harness.cloud.clock.monotonic() == pytest.approx(100, abs=1)


def test_only_what_another_try_may_change_is_tried_again(row: Row) -> None:
    operation = "DescribeTrainingJob"
    for fault, tries in ((server_error(operation, 2), 3), (Fault(operation, AwsError("AccessDenied")), 1)):
        with row(fault) as harness:
            sagemaker = harness.cloud.client("sagemaker")
            harness.cloud.calls.inject(fault)
            with pytest.raises(ClientError):
                patiently(lambda: sagemaker.describe_training_job(TrainingJobName="any"), TimeBudget.of(60))  # noqa: B023
            assert harness.cloud.calls.counts()[operation] == tries
