"""A job's statuses in time, and what DescribeTrainingJob says of it: billing, warm pool, rules, MLflow."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from muster.contract.aws.job_status import JobStatus
from muster.local.sagemaker.service_errors import ServiceError
from muster.local.sagemaker.training_job import NO_CAPACITY, Change, Job, Secondary
from tests.support.local_samples import REQUEST

ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/muster-run-r0-a1"
KEPT = {**REQUEST, "EnableManagedSpotTraining": False}
KEPT["ResourceConfig"] = {**REQUEST["ResourceConfig"], "KeepAlivePeriodInSeconds": 600}
Wait = Callable[[float], None]


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Wait:
    """Lets time pass for the service."""
    now = [1_800_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])

    def later(seconds: float) -> None:
        now[0] += seconds

    return later


def new(request: dict[str, Any], emitted: list[Change] | None = None) -> Job:
    return Job(request, ARN, (emitted if emitted is not None else []).append)  # type: ignore[arg-type]


def ended(request: dict[str, Any], status: JobStatus, reason: str | None = None) -> Job:
    job = new(request)
    job.advance(Secondary.DOWNLOADING)
    job.end(status, Secondary(status.value), reason)
    return job


def pool(job: Job) -> dict[str, Any]:
    return dict(job.describe()["WarmPoolStatus"])  # type: ignore[call-overload]


def test_a_spot_job_is_not_billed_while_it_has_no_instance(wait: Wait) -> None:
    job = new(REQUEST)
    wait(50)
    for secondary, seconds in (
        (Secondary.DOWNLOADING, 100),
        (Secondary.TRAINING, 100),
        (Secondary.INTERRUPTED, 1_000),
        (Secondary.RESTARTING, 1_000),
        (Secondary.DOWNLOADING, 100),
        (Secondary.TRAINING, 100),
    ):
        job.advance(secondary)
        wait(seconds)
    job.end(JobStatus.COMPLETED, Secondary.COMPLETED)
    shown = job.describe()
    assert (shown["TrainingTimeInSeconds"], shown["BillableTimeInSeconds"]) == (2_400, 120)


def test_an_on_demand_job_is_billed_for_all_of_its_training_time(wait: Wait) -> None:
    job = new({**REQUEST, "EnableManagedSpotTraining": False})
    job.advance(Secondary.DOWNLOADING)
    wait(90)
    job.end(JobStatus.FAILED, Secondary.FAILED, "AlgorithmError: , exit code: 1")
    shown = job.describe()
    assert (shown["TrainingTimeInSeconds"], shown["BillableTimeInSeconds"]) == (90, 90)


def test_a_warm_pool_is_in_use_then_available_then_terminated(wait: Wait) -> None:
    job = new(KEPT)
    job.advance(Secondary.DOWNLOADING)
    assert pool(job) == {"Status": "InUse"}
    job.end(JobStatus.COMPLETED, Secondary.COMPLETED)
    wait(599)
    assert pool(job) == {"Status": "Available", "ResourceRetainedBillableTimeInSeconds": 599}
    wait(2)
    assert pool(job) == {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 600}
    assert job.summary()["WarmPoolStatus"] == pool(job)


def test_a_warm_pool_moves_to_a_job_with_the_same_role_resources_and_network(wait: Wait) -> None:
    job = ended(KEPT, JobStatus.COMPLETED)
    wait(60)
    larger = {**KEPT, "ResourceConfig": {**KEPT["ResourceConfig"], "VolumeSizeInGB": 31}}
    for other in (larger, {**KEPT, "RoleArn": "arn:aws:iam::123456789012:role/x"}, {**KEPT, "VpcConfig": {}}):
        assert not job.take_pool(other)  # type: ignore[arg-type]
    again = {**KEPT, "TrainingJobName": "muster-run-r0-a2", "HyperParameters": {}}
    assert job.take_pool(again)  # type: ignore[arg-type]
    wait(60)
    expected = {"Status": "Reused", "ResourceRetainedBillableTimeInSeconds": 60, "ReusedByJob": "muster-run-r0-a2"}
    assert pool(job) == expected
    assert not job.take_pool(again)  # type: ignore[arg-type]


def test_an_update_to_zero_ends_a_warm_pool_and_one_that_is_gone_cannot_be_updated(wait: Wait) -> None:
    job = ended(KEPT, JobStatus.STOPPED)
    wait(10)
    job.keep_pool(1_200)
    wait(800)
    assert pool(job)["Status"] == "Available"
    job.keep_pool(0)
    wait(800)
    assert pool(job) == {"Status": "Terminated", "ResourceRetainedBillableTimeInSeconds": 810}
    with pytest.raises(ServiceError, match="is Terminated"):
        job.keep_pool(60)
    with pytest.raises(ServiceError, match="no warm pool"):
        ended(REQUEST, JobStatus.COMPLETED).keep_pool(0)
    # A failure keeps the cluster unless it may be damaged.
    for reason, status in (("AlgorithmError: , exit code: 1", "Available"), ("InternalServerError: x", "Terminated")):
        assert pool(ended(KEPT, JobStatus.FAILED, reason))["Status"] == status, reason


def test_a_rule_is_in_progress_until_the_end_and_says_that_it_was_not_evaluated() -> None:
    rules = [{"RuleConfigurationName": name, "RuleEvaluatorImage": "i"} for name in ("LossNotDecreasing", "Overfit")]
    job = new({**REQUEST, "DebugRuleConfigurations": rules, "ProfilerRuleConfigurations": rules[:1]})
    before: Any = job.describe()
    assert [rule["RuleEvaluationStatus"] for rule in before["DebugRuleEvaluationStatuses"]] == ["InProgress"] * 2
    job.rules.conclude(lambda rule: "at step 100" if rule == "Overfit" else None)
    shown: Any = job.describe()
    assert [(rule["RuleEvaluationStatus"], rule["StatusDetails"]) for rule in shown["DebugRuleEvaluationStatuses"]] == [
        ("Error", "The embedded cloud does not evaluate rules."),
        ("IssuesFound", "at step 100"),
    ]
    assert len(shown["ProfilerRuleEvaluationStatuses"]) == 1
    assert len(shown["DebugRuleEvaluationStatuses"][0]["RuleEvaluationJobArn"].rpartition("/")[2]) <= 63


def test_a_message_changes_within_a_status_and_is_an_event_of_its_own() -> None:
    emitted: list[Change] = []
    job = new(REQUEST, emitted)
    job.say(NO_CAPACITY)
    transitions: Any = emitted[-1].detail["SecondaryStatusTransitions"]
    assert [(one["Status"], one["StatusMessage"]) for one in transitions] == [("Starting", NO_CAPACITY)]


def test_an_experiment_of_mlflow_is_one_for_all_jobs_that_name_it_and_a_run_is_the_job_s_own() -> None:
    config = {"MlflowResourceArn": "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/a"}
    config["MlflowExperimentName"] = "digits"
    jobs = [Job({**REQUEST, "MlflowConfig": config}, f"{ARN}{number}", lambda _: None) for number in (1, 2)]  # type: ignore[typeddict-item]
    for job in jobs:
        assert "MlflowDetails" not in job.describe()
        job.advance(Secondary.DOWNLOADING)
    one, two = (job.describe()["MlflowDetails"] for job in jobs)
    assert one["MlflowExperimentId"] == two["MlflowExperimentId"]  # type: ignore[index]
    assert one["MlflowRunId"] != two["MlflowRunId"]  # type: ignore[index]


@pytest.fixture
def emitted() -> list[Change]:
    return []


@pytest.fixture
def job(emitted: list[Change]) -> Job:
    return Job(REQUEST, ARN, emitted.append)


def test_every_status_is_emitted_once_with_the_times_so_far(job: Job, emitted: list[Change]) -> None:
    for secondary in (Secondary.DOWNLOADING, Secondary.TRAINING, Secondary.UPLOADING):
        job.advance(secondary)
    job.end(JobStatus.COMPLETED, Secondary.COMPLETED)
    assert [change.secondary for change in emitted] == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
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
    assert [change.secondary for change in emitted] == ["Starting", "Stopping", "Uploading", "Stopped"]
    assert job.status is JobStatus.STOPPED


def test_stopping_twice_is_emitted_once_and_an_end_is_final(job: Job, emitted: list[Change]) -> None:
    assert job.request_stop()
    assert job.request_stop()
    job.end(JobStatus.STOPPED, Secondary.STOPPED, "r" * 2000)
    assert not job.request_stop()
    assert job.describe()["FailureReason"] == "r" * 1024
    assert [change.secondary for change in emitted] == ["Starting", "Stopping", "Stopped"]
