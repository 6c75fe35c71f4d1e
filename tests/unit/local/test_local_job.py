"""A job's statuses in time, without a process."""

from __future__ import annotations

from typing import Any

import pytest

from muster.contract.aws.job_status import JobStatus
from muster.local.sagemaker.training_job import Change, Job, Secondary
from tests.support.local_samples import REQUEST

ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/muster-run-r0-a1"


@pytest.fixture
def emitted() -> list[Change]:
    return []


@pytest.fixture
def job(emitted: list[Change]) -> Job:
    return Job(REQUEST, ARN, emitted.append)


def secondaries(emitted: list[Change]) -> list[str]:
    return [change.secondary for change in emitted]


def test_every_status_is_emitted_once_with_the_times_so_far(job: Job, emitted: list[Change]) -> None:
    for secondary in (Secondary.DOWNLOADING, Secondary.TRAINING, Secondary.UPLOADING):
        job.advance(secondary)
    job.end(JobStatus.COMPLETED, Secondary.COMPLETED)
    assert secondaries(emitted) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert [len(change.detail["SecondaryStatusTransitions"]) for change in emitted] == [1, 2, 3, 4, 5]
    assert "EndTime" not in emitted[0].detail["SecondaryStatusTransitions"][0]
    assert all("EndTime" in entry for entry in emitted[-1].detail["SecondaryStatusTransitions"])
    assert job.finished.is_set()


def test_a_job_that_is_stopping_only_uploads_and_never_completes(job: Job, emitted: list[Change]) -> None:
    assert job.request_stop()
    assert job.status is JobStatus.STOPPING
    job.advance(Secondary.TRAINING)
    job.advance(Secondary.UPLOADING)
    job.end(JobStatus.COMPLETED, Secondary.COMPLETED)
    assert secondaries(emitted) == ["Starting", "Stopping", "Uploading", "Stopped"]
    assert job.status is JobStatus.STOPPED


def test_stopping_twice_is_emitted_once_and_an_end_is_final(job: Job, emitted: list[Change]) -> None:
    assert job.request_stop()
    assert job.request_stop()
    job.end(JobStatus.STOPPED, Secondary.STOPPED)
    assert not job.request_stop()
    assert secondaries(emitted) == ["Starting", "Stopping", "Stopped"]


def test_a_reason_is_cut_where_describe_cuts_it(job: Job) -> None:
    job.end(JobStatus.FAILED, Secondary.FAILED, "r" * 2000)
    assert job.describe()["FailureReason"] == "r" * 1024


def test_a_description_repeats_the_request_but_not_its_tags(job: Job) -> None:
    shown = job.describe()
    repeated: dict[str, Any] = {name: value for name, value in REQUEST.items() if name != "Tags"}
    assert repeated.items() <= shown.items()
    assert "Tags" not in shown
    assert shown["EnableNetworkIsolation"] is False
    assert "TrainingStartTime" not in shown


def test_an_event_has_milliseconds_and_a_description_seconds(job: Job, emitted: list[Change]) -> None:
    assert isinstance(emitted[0].detail["CreationTime"], int)
    assert emitted[0].detail["CreationTime"] == pytest.approx(job.describe()["CreationTime"] * 1000, abs=1)
