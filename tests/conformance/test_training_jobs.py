"""Training jobs: names, descriptions, listings, stops, and the events of their changes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from botocore.exceptions import ParamValidationError

from tests.conformance.backends import REASON, Backend, Fate, MemoryBackend, has_ended, refusal
from tests.memory import models

MISSING = ("ValidationException", 400)
IN_ORDER = ["Starting", "Downloading", "Training", "Uploading"]


def statuses(shown: dict[str, Any]) -> list[str]:
    return [transition["Status"] for transition in shown["SecondaryStatusTransitions"]]


def test_a_name_is_taken_for_ever(backend: Backend) -> None:
    job = backend.start_job(Fate.COMPLETES)
    create = backend.client("sagemaker").create_training_job
    assert refusal(create, **backend.request(TrainingJobName=job)) == ("ResourceInUse", 400)
    backend.end_job(job)
    assert refusal(create, **backend.request(TrainingJobName=job)) == ("ResourceInUse", 400)
    assert refusal(create, **backend.request(TrainingJobName=job.upper())) == ("ResourceInUse", 400)


def test_a_job_that_does_not_exist(backend: Backend) -> None:
    sagemaker, job = backend.client("sagemaker"), backend.name("missing")
    assert refusal(sagemaker.describe_training_job, TrainingJobName=job) == MISSING
    assert refusal(sagemaker.stop_training_job, TrainingJobName=job) == MISSING
    arn = f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{job}"
    assert refusal(sagemaker.list_tags, ResourceArn=arn) == MISSING


@pytest.mark.parametrize(
    "change",
    [
        {"TrainingJobName": "under_score"},
        {"TrainingJobName": "n" * 64},
        {"HyperParameters": {"k": "v" * 2_501}},
        {"Environment": {"1st": "x"}},
        {"Tags": [{"Key": "same", "Value": "1"}, {"Key": "same", "Value": "2"}]},
        {"ResourceConfig": {"InstanceType": "ml.none.large", "InstanceCount": 1, "VolumeSizeInGB": 1}},
        {"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}},
    ],
    ids=str,
)
def test_what_the_model_or_the_documentation_forbids_is_refused(backend: Backend, change: dict[str, Any]) -> None:
    create = backend.client("sagemaker").create_training_job
    assert refusal(create, **backend.request(**change)) == ("ValidationException", 400)


def test_the_client_itself_refuses_what_has_no_shape(backend: Backend) -> None:
    request = backend.request(Unknown=1)
    del request["RoleArn"]
    with pytest.raises(ParamValidationError, match=r"(?s)RoleArn.*Unknown"):
        backend.client("sagemaker").create_training_job(**request)


def test_a_job_that_completes(backend: Backend) -> None:
    job = backend.start_job(Fate.COMPLETES)
    shown = backend.end_job(job)
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Completed", "Completed")
    assert statuses(shown) == [*IN_ORDER, "Completed"]
    assert shown["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{backend.bucket}/output/{job}/output/model.tar.gz"
    assert "FailureReason" not in shown
    assert shown["CreationTime"] <= shown["TrainingStartTime"] <= shown["TrainingEndTime"]
    assert shown["LastModifiedTime"] == shown["TrainingEndTime"]
    assert shown["BillableTimeInSeconds"] == shown["TrainingTimeInSeconds"] >= 0
    assert shown["Environment"] == {"SOME": "value"}
    assert "Tags" not in shown
    check = {name: value for name, value in shown.items() if name != "ResponseMetadata"}
    models.check_answer("sagemaker", "DescribeTrainingJob", check)


def test_a_job_that_fails(backend: Backend) -> None:
    shown = backend.end_job(backend.start_job(Fate.FAILS))
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Failed", "Failed")
    assert shown["FailureReason"] == REASON
    assert statuses(shown) == [*IN_ORDER, "Failed"]


def test_a_job_that_is_stopped(backend: Backend) -> None:
    sagemaker, job = backend.client("sagemaker"), backend.start_job(Fate.TRAINS_ON)
    backend.train(job)
    stopped = sagemaker.stop_training_job(TrainingJobName=job)
    assert stopped["ResponseMetadata"]["HTTPStatusCode"] == 200
    shown = backend.end_job(job)
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert statuses(shown)[:4] == ["Starting", "Downloading", "Training", "Stopping"]
    assert "FailureReason" not in shown
    assert refusal(sagemaker.stop_training_job, TrainingJobName=job) == ("ValidationException", 400)


@pytest.mark.parametrize("fate", [Fate.COMPLETES, Fate.FAILS])
def test_a_job_that_has_ended_cannot_be_stopped(backend: Backend, fate: Fate) -> None:
    job = backend.start_job(fate)
    before = backend.end_job(job)
    stop = backend.client("sagemaker").stop_training_job
    assert refusal(stop, TrainingJobName=job) == ("ValidationException", 400)
    after = backend.client("sagemaker").describe_training_job(TrainingJobName=job)
    assert after["SecondaryStatusTransitions"] == before["SecondaryStatusTransitions"]


@pytest.mark.parametrize("fate", Fate)
def test_every_change_is_an_event(backend: Backend, fate: Fate) -> None:
    job = backend.start_job(fate)
    if fate is Fate.TRAINS_ON:
        backend.train(job)
        backend.client("sagemaker").stop_training_job(TrainingJobName=job)
    shown = backend.end_job(job)
    sent = backend.events(shown["TrainingJobArn"], has_ended)
    assert [event["detail"]["SecondaryStatus"] for event in sent] == statuses(shown)
    assert {(event["source"], event["detail-type"]) for event in sent} == {
        ("aws.sagemaker", "SageMaker Training Job State Change")
    }
    assert len({event["id"] for event in sent}) == len(sent)
    last = sent[-1]
    assert set(last) == {
        *("version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail")
    }
    detail = last["detail"]
    common = {
        *("TrainingJobName", "TrainingJobArn", "TrainingJobStatus", "SecondaryStatus", "SecondaryStatusTransitions"),
        *("AlgorithmSpecification", "OutputDataConfig", "ResourceConfig", "StoppingCondition", "RoleArn"),
        *("CreationTime", "TrainingStartTime", "TrainingEndTime", "LastModifiedTime", "ModelArtifacts", "Tags"),
    }
    assert set(detail) == common | ({"FailureReason"} if fate is Fate.FAILS else set())
    assert detail["Tags"] == [{"Key": "run", "Value": "one"}]
    assert detail["TrainingJobStatus"] == shown["TrainingJobStatus"]
    # Epoch milliseconds.
    for name in ("CreationTime", "LastModifiedTime", "TrainingStartTime"):
        assert abs(detail[name] - milliseconds(shown[name])) <= 1
    last_seen = [entry["Status"] for entry in detail["SecondaryStatusTransitions"]]
    assert last_seen == statuses(shown)
    assert [len(event["detail"]["SecondaryStatusTransitions"]) for event in sent] == list(range(1, len(sent) + 1))
    assert {"Status", "StartTime", "EndTime", "StatusMessage"} == set(detail["SecondaryStatusTransitions"][-1])
    assert "FailureReason" not in sent[0]["detail"]
    assert sent[0]["detail"]["ModelArtifacts"] == {}


def milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def test_tags_are_those_of_the_request(backend: Backend) -> None:
    tags = [{"Key": f"key-{number}", "Value": "v" * number} for number in range(5)]
    job = backend.start_job(Fate.COMPLETES, Tags=tags)
    arn = backend.client("sagemaker").describe_training_job(TrainingJobName=job)["TrainingJobArn"]
    pages = backend.client("sagemaker").get_paginator("list_tags").paginate(ResourceArn=arn)
    assert [tag for page in pages for tag in page["Tags"]] == tags


def test_a_listing_is_by_name_and_status_in_pages(backend: Backend) -> None:
    sagemaker, stem = backend.client("sagemaker"), backend.name("listed")
    ended = [backend.start_job(Fate.COMPLETES, TrainingJobName=f"{stem}-e{number}") for number in range(3)]
    for job in ended:
        backend.end_job(job)
    alive = [backend.start_job(Fate.TRAINS_ON, TrainingJobName=f"{stem}-a{number}") for number in range(3)]
    pages = sagemaker.get_paginator("list_training_jobs")

    def listed(**wanted: Any) -> list[list[str]]:
        answers = pages.paginate(NameContains=stem, PaginationConfig={"PageSize": 2}, **wanted)
        return [[row["TrainingJobName"] for row in answer["TrainingJobSummaries"]] for answer in answers]

    in_order = {"SortBy": "Name", "SortOrder": "Ascending"}
    assert listed(StatusEquals="InProgress", **in_order) == [alive[:2], alive[2:]]
    assert listed(StatusEquals="Completed", **in_order) == [ended[:2], ended[2:]]
    assert listed(StatusEquals="Failed") == [[]]
    assert listed(SortBy="CreationTime", SortOrder="Ascending") == [ended[:2], [ended[2], alive[0]], alive[1:]]
    assert listed(SortBy="CreationTime", SortOrder="Descending")[0] == [alive[2], alive[1]]
    [row] = sagemaker.list_training_jobs(NameContains=ended[0])["TrainingJobSummaries"]
    assert {"TrainingJobName", "TrainingJobArn", "CreationTime", "LastModifiedTime", "TrainingJobStatus"} <= set(row)
    for job in alive:
        sagemaker.stop_training_job(TrainingJobName=job)


def test_a_listing_has_at_most_a_hundred_rows_and_ten_by_default(backend: Backend) -> None:
    sagemaker = backend.client("sagemaker")
    assert refusal(sagemaker.list_training_jobs, MaxResults=101) == ("ValidationException", 400)
    stem = backend.name("many")
    for number in range(11):
        backend.start_job(Fate.COMPLETES, TrainingJobName=f"{stem}-{number}")
    answer = sagemaker.list_training_jobs(NameContains=stem)
    assert len(answer["TrainingJobSummaries"]) == 10
    assert "NextToken" in answer


def test_a_listing_has_the_oldest_first_by_default(backend: Backend) -> None:
    stem = backend.name("ordered")
    names = [backend.start_job(Fate.COMPLETES, TrainingJobName=f"{stem}-{number}") for number in (2, 1, 3)]
    rows = backend.client("sagemaker").list_training_jobs(NameContains=stem)["TrainingJobSummaries"]
    assert [row["TrainingJobName"] for row in rows] == names


def test_a_description_has_what_the_model_requires_from_the_beginning(backend: Backend) -> None:
    """ModelArtifacts among it: that a job names them is no proof of a success."""
    sagemaker, job = backend.client("sagemaker"), backend.start_job(Fate.TRAINS_ON)
    shown = sagemaker.describe_training_job(TrainingJobName=job)
    sagemaker.stop_training_job(TrainingJobName=job)
    assert "BillableTimeInSeconds" not in shown
    models.check_answer("sagemaker", "DescribeTrainingJob", {n: v for n, v in shown.items() if n != "ResponseMetadata"})
    assert shown["ModelArtifacts"]["S3ModelArtifacts"].endswith(f"{job}/output/model.tar.gz")


PREFERENCES = [{"InstanceType": kind, "InstanceCount": 1} for kind in ("ml.g5.2xlarge", "ml.g6.2xlarge")]


def test_a_description_names_the_preference_that_was_taken(backend: Backend) -> None:
    job = backend.start_job(Fate.COMPLETES, ResourceConfig={"InstancePreferences": PREFERENCES, "VolumeSizeInGB": 1})
    resources = backend.end_job(job)["ResourceConfig"]
    assert resources["SelectedInstanceType"] in {item["InstanceType"] for item in PREFERENCES}
    assert resources["InstancePreferences"] == PREFERENCES
    assert "InstanceType" not in resources


def test_the_test_chooses_the_preference_once_there_is_an_instance(memory: MemoryBackend) -> None:
    job = memory.start_job(Fate.COMPLETES, ResourceConfig={"InstancePreferences": PREFERENCES, "VolumeSizeInGB": 1})
    describe = memory.client("sagemaker").describe_training_job
    assert "SelectedInstanceType" not in describe(TrainingJobName=job)["ResourceConfig"]
    memory.cloud.training.train(job, "ml.g6.2xlarge")
    assert describe(TrainingJobName=job)["ResourceConfig"]["SelectedInstanceType"] == "ml.g6.2xlarge"
