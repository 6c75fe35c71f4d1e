"""Training jobs: names, descriptions, listings, stops, and the events of their changes."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ParamValidationError

from tests.conformance.backends import REASON, Backend, Fate, has_ended, refusal
from tests.memory import models

INVALID = ("ValidationException", 400)
TAKEN = ("ResourceInUse", 400)
# The status at the end, and the secondary statuses on the way.
ENDS = {
    Fate.COMPLETES: ("Completed", ["Starting", "Downloading", "Training", "Uploading", "Completed"]),
    Fate.FAILS: ("Failed", ["Starting", "Downloading", "Training", "Uploading", "Failed"]),
    Fate.TRAINS_ON: ("Stopped", ["Starting", "Downloading", "Training", "Stopping"]),
}


def statuses(shown: dict[str, Any]) -> list[str]:
    return [transition["Status"] for transition in shown["SecondaryStatusTransitions"]]


def milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def check(shown: dict[str, Any]) -> None:
    models.check_answer("sagemaker", "DescribeTrainingJob", {n: v for n, v in shown.items() if n != "ResponseMetadata"})


def test_what_is_taken_missing_or_forbidden_is_refused(backend: Backend) -> None:
    sagemaker, missing = backend.client("sagemaker"), backend.name("missing")
    job = backend.start_job(Fate.COMPLETES)
    assert refusal(sagemaker.create_training_job, **backend.request(TrainingJobName=job)) == TAKEN
    backend.end_job(job)
    for name in (job, job.upper()):
        assert refusal(sagemaker.create_training_job, **backend.request(TrainingJobName=name)) == TAKEN
    for call in (sagemaker.describe_training_job, sagemaker.stop_training_job):
        assert refusal(call, TrainingJobName=missing) == INVALID
    arn = f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{missing}"
    assert refusal(sagemaker.list_tags, ResourceArn=arn) == INVALID
    assert refusal(sagemaker.list_training_jobs, MaxResults=101) == INVALID
    changes: list[dict[str, Any]] = [
        {"TrainingJobName": "under_score"},
        {"TrainingJobName": "n" * 64},
        {"HyperParameters": {"k": "v" * 2_501}},
        {"Environment": {"1st": "x"}},
        {"Tags": [{"Key": "same", "Value": "1"}, {"Key": "same", "Value": "2"}]},
        {"ResourceConfig": {"InstanceType": "ml.none.large", "InstanceCount": 1, "VolumeSizeInGB": 1}},
        {"StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60}},
    ]
    for change in changes:
        assert refusal(sagemaker.create_training_job, **backend.request(**change)) == INVALID, change
    # The client itself refuses what has no shape.
    request = backend.request(Unknown=1)
    del request["RoleArn"]
    with pytest.raises(ParamValidationError, match=r"(?s)RoleArn.*Unknown"):
        sagemaker.create_training_job(**request)


@pytest.mark.parametrize("fate", Fate)
def test_the_end_of_a_job_is_described_and_every_change_is_an_event(backend: Backend, fate: Fate) -> None:
    sagemaker, job = backend.client("sagemaker"), backend.start_job(fate)
    if fate is Fate.TRAINS_ON:
        backend.train(job)
        begun = sagemaker.describe_training_job(TrainingJobName=job)
        check(begun)
        assert "BillableTimeInSeconds" not in begun
        # That a job names its artifacts is no proof of a success.
        assert begun["ModelArtifacts"]["S3ModelArtifacts"].endswith(f"{job}/output/model.tar.gz")
        stopped = sagemaker.stop_training_job(TrainingJobName=job)
        assert stopped["ResponseMetadata"]["HTTPStatusCode"] == 200
    shown = backend.end_job(job)
    check(shown)
    status, on_the_way = ENDS[fate]
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == (status, status)
    assert statuses(shown)[: len(on_the_way)] == on_the_way
    assert shown.get("FailureReason") == (REASON if fate is Fate.FAILS else None)
    assert shown["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{backend.bucket}/output/{job}/output/model.tar.gz"
    assert shown["CreationTime"] <= shown["TrainingStartTime"] <= shown["TrainingEndTime"]
    assert shown["LastModifiedTime"] == shown["TrainingEndTime"]
    assert shown["BillableTimeInSeconds"] == shown["TrainingTimeInSeconds"] >= 0
    assert shown["Environment"] == {"SOME": "value"}
    assert "Tags" not in shown
    assert refusal(sagemaker.stop_training_job, TrainingJobName=job) == INVALID
    assert statuses(sagemaker.describe_training_job(TrainingJobName=job)) == statuses(shown)

    sent = backend.events(shown["TrainingJobArn"], has_ended)
    assert [event["detail"]["SecondaryStatus"] for event in sent] == statuses(shown)
    assert {(event["source"], event["detail-type"]) for event in sent} == {
        ("aws.sagemaker", "SageMaker Training Job State Change")
    }
    assert len({event["id"] for event in sent}) == len(sent)
    assert set(sent[-1]) == {
        *("version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail")
    }
    detail = sent[-1]["detail"]
    common = {
        *("TrainingJobName", "TrainingJobArn", "TrainingJobStatus", "SecondaryStatus", "SecondaryStatusTransitions"),
        *("AlgorithmSpecification", "OutputDataConfig", "ResourceConfig", "StoppingCondition", "RoleArn"),
        *("CreationTime", "TrainingStartTime", "TrainingEndTime", "LastModifiedTime", "ModelArtifacts", "Tags"),
    }
    assert set(detail) == common | ({"FailureReason"} if fate is Fate.FAILS else set())
    assert detail["Tags"] == [{"Key": "run", "Value": "one"}]
    assert detail["TrainingJobStatus"] == status
    # Epoch milliseconds.
    for name in ("CreationTime", "LastModifiedTime", "TrainingStartTime"):
        assert abs(detail[name] - milliseconds(shown[name])) <= 1
    assert statuses(detail) == statuses(shown)
    assert [len(event["detail"]["SecondaryStatusTransitions"]) for event in sent] == list(range(1, len(sent) + 1))
    assert {"Status", "StartTime", "EndTime", "StatusMessage"} == set(detail["SecondaryStatusTransitions"][-1])
    assert "FailureReason" not in sent[0]["detail"]
    assert sent[0]["detail"]["ModelArtifacts"] == {}


def test_a_listing_is_by_name_in_pages_of_which_a_status_shows_a_part(backend: Backend) -> None:
    """SageMaker fills a page with the jobs in any status, and then shows those in the status that is asked for."""
    sagemaker, stem = backend.client("sagemaker"), backend.name("listed")
    tags = [{"Key": f"key-{number}", "Value": "v" * number} for number in range(5)]
    # Names that sort in another order.
    ended = [backend.start_job(Fate.COMPLETES, TrainingJobName=f"{stem}-e{number}", Tags=tags) for number in (2, 1, 3)]
    arns = [backend.end_job(job)["TrainingJobArn"] for job in ended]
    alive = [backend.start_job(Fate.TRAINS_ON, TrainingJobName=f"{stem}-a{number}") for number in range(8)]

    def listed(size: int | None = None, **wanted: Any) -> list[list[str]]:
        pages = sagemaker.get_paginator("list_training_jobs")
        answers = pages.paginate(NameContains=stem, PaginationConfig={"PageSize": size} if size else {}, **wanted)
        return [[row["TrainingJobName"] for row in answer["TrainingJobSummaries"]] for answer in answers]

    # Ten rows are a page by default.
    assert listed() == [[*ended, *alive[:7]], alive[7:]]
    assert listed(5, StatusEquals="InProgress") == [alive[:2], alive[2:7], alive[7:]]
    assert listed(2, StatusEquals="Completed") == [ended[:2], ended[2:], [], [], [], []]
    assert listed(StatusEquals="Failed") == [[], []]
    # The oldest come first, unless another order is asked for.
    assert listed(SortOrder="Descending") == [[*reversed(alive), *reversed(ended[1:])], ended[:1]]
    created = sagemaker.describe_training_job(TrainingJobName=alive[5])["CreationTime"]
    assert listed(CreationTimeAfter=created - timedelta(days=1)) == listed()
    assert listed(CreationTimeAfter=created + timedelta(days=1)) == [[]]
    [row] = sagemaker.list_training_jobs(NameContains=ended[0])["TrainingJobSummaries"]
    assert {"TrainingJobName", "TrainingJobArn", "CreationTime", "LastModifiedTime", "TrainingJobStatus"} <= set(row)
    for job in alive:
        sagemaker.stop_training_job(TrainingJobName=job)
    # Tags are those of the request.
    pages = sagemaker.get_paginator("list_tags").paginate(ResourceArn=arns[0])
    assert [tag for page in pages for tag in page["Tags"]] == tags


PREFERENCES = [{"InstanceType": kind, "InstanceCount": 1} for kind in ("ml.g5.2xlarge", "ml.g6.2xlarge")]


def test_a_description_names_the_preference_that_was_taken(backend: Backend) -> None:
    job = backend.start_job(Fate.COMPLETES, ResourceConfig={"InstancePreferences": PREFERENCES, "VolumeSizeInGB": 1})
    resources = backend.end_job(job)["ResourceConfig"]
    assert resources["SelectedInstanceType"] in {item["InstanceType"] for item in PREFERENCES}
    assert resources["InstancePreferences"] == PREFERENCES
    assert "InstanceType" not in resources
