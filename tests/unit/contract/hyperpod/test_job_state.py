"""What the document of a job on a cluster means: a table."""

from __future__ import annotations

from typing import Any

import pytest

from muster.contract.aws.failure_classes import FailureClass, JobEnd, classify_end, explained
from muster.contract.aws.job_status import JobStatus
from muster.contract.hyperpod.job_state import job_state
from muster.contract.hyperpod.notices import EndNotice
from muster.contract.timestamps import Timestamp

INFRASTRUCTURE = FailureClass.INFRASTRUCTURE
AT = "2026-01-01T00:00:10Z"
SEEN = "2026-01-01T00:00:10.000Z"


def condition(kind: str, reason: str = "", message: str = "", *, holds: bool = True) -> dict[str, str]:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason,
        "message": message,
        "lastTransitionTime": AT,
    }


def job(*conditions: dict[str, str], suspend: bool = False, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "muster-one-r0-a1"},
        "spec": {"runPolicy": {"suspend": suspend}, "replicaSpecs": [{"name": "pod", "replicas": 2}]},
        "status": {"conditions": list(conditions), **status},
    }


def failed(reason: str, message: str = "", **status: Any) -> dict[str, Any]:
    return job(condition("Failed", reason, message), condition("Running", holds=False), **status)


def notice(code: int, reason: str = "") -> EndNotice:
    at = Timestamp(SEEN)
    return EndNotice(exit_code=code, reason=reason, started_at=at, ended_at=at)


def pod(*, code: int | None = None, reason: str = "", waiting: str = "") -> dict[str, Any]:
    ended = {"terminated": {"exitCode": code, "reason": reason}} if code is not None else {}
    waits = {"waiting": {"reason": waiting, "message": "no such image"}} if waiting else {}
    return {"status": {"containerStatuses": [{"state": {**ended, **waits}}]}}


@pytest.mark.parametrize(
    ("document", "status", "secondary"),
    [
        ({}, "InProgress", "Pending"),
        (job(), "InProgress", "Pending"),
        (job(condition("Created")), "InProgress", "Pending"),
        (job(condition("Created"), condition("PodsRunning")), "InProgress", "Pending"),
        (job(condition("Created"), condition("PodsRunning"), condition("Running")), "InProgress", "Training"),
        (job(suspend=True), "InProgress", "WaitingForQuota"),
        (job(condition("Suspended", "Suspended")), "InProgress", "WaitingForQuota"),
        (job(condition("Running"), suspend=True), "InProgress", "WaitingForQuota"),
        (job(condition("Suspended", holds=False), condition("Running")), "InProgress", "Training"),
        (job(condition("Restarting", "NodeFault"), restartCount=1), "InProgress", "Restarting"),
        (job(condition("Completed")), "Completed", "Completed"),
        (job(condition("Succeeded")), "Completed", "Completed"),
        (job(condition("Running"), condition("Completed")), "Completed", "Completed"),
        (job(condition("Completed", holds=False), condition("Running")), "InProgress", "Training"),
    ],
)
def test_a_job_that_has_not_failed(document: dict[str, Any], status: str, secondary: str) -> None:
    state = job_state(document)
    assert (state.status, state.secondary) == (status, secondary)


CAUSES = [
    ("NodeFault", "Found unhealthy node", "NodeFault", FailureClass.INFRASTRUCTURE),
    ("NodeLost", "", "NodeFault", FailureClass.INFRASTRUCTURE),
    ("FaultDeadlineExceeded", "no node for an hour", "NodeFault", FailureClass.INFRASTRUCTURE),
    ("DeepHealthCheckFailed", "", "HealthCheck", FailureClass.INFRASTRUCTURE),
    ("WorkloadPreempted", "", "Preempted", FailureClass.CAPACITY),
    ("PodEvicted", "disk pressure", "Evicted", FailureClass.INFRASTRUCTURE),
    ("ImagePullBackOff", "", "ImageError", FailureClass.INVALID_REQUEST),
    ("ErrImagePull", "", "ImageError", FailureClass.INVALID_REQUEST),
    ("StartupDeadlineExceeded", "no pod runs", "StartupDeadlineExceeded", FailureClass.CAPACITY),
    ("StartupDeadlineExceeded", "ImagePullBackOff of image:1", "ImageError", FailureClass.INVALID_REQUEST),
    ("LogHang_steps", "", "Hang", FailureClass.INFRASTRUCTURE),
    ("LogSlow_steps", "", "Hang", FailureClass.INFRASTRUCTURE),
    ("LogFault_nodefault", "", "Hang", FailureClass.INFRASTRUCTURE),
    ("DeadlineExceeded", "", "DeadlineExceeded", FailureClass.TIMEOUT),
    ("WorkerCrash", "Local Rank 0 exited with code -768 due to: boom", "Failed", FailureClass.USER_CODE),
    ("WorkerUnhealthy", "", "Failed", FailureClass.USER_CODE),
    ("Anything", "", "Failed", FailureClass.USER_CODE),
    ("", "", "Failed", FailureClass.USER_CODE),
]


@pytest.mark.parametrize(("reason", "message", "secondary", "failure_class"), CAUSES)
def test_a_job_that_has_failed(reason: str, message: str, secondary: str, failure_class: FailureClass) -> None:
    state = job_state(failed(reason, message, restartCount=3, completionTime="2026-01-01T00:01:00Z"))
    assert (state.status, state.secondary, state.restarts) == (JobStatus.FAILED, secondary, 3)
    assert state.changed_at == "2026-01-01T00:01:00.000Z"
    assert classify_end(JobEnd(state.status, state.secondary, state.reason)) is failure_class


@pytest.mark.parametrize(
    ("document", "pods", "said", "reason", "failure_class"),
    [
        # The agent shows the code n of a worker as -256 n, and a signal s as -s.
        (failed("WorkerCrash", "exited with code -768"), [], None, "exit code: 3", FailureClass.USER_CODE),
        (failed("WorkerCrash", "exited with code -9"), [], None, "exit code: 137", FailureClass.USER_CODE),
        (failed("WorkerCrash", "exited with code -17664"), [], None, "exit code: 69", FailureClass.INFRASTRUCTURE),
        (failed("PodFailed", "exit code 75"), [], None, "exit code: 75", FailureClass.INFRASTRUCTURE),
        (failed("PodFailed"), [pod(code=64)], None, "exit code: 64", FailureClass.INVALID_REQUEST),
        (failed("PodFailed"), [pod(code=0), pod(code=3)], None, "exit code: 3", FailureClass.USER_CODE),
        (failed("PodFailed"), [pod(code=137, reason="OOMKilled")], None, "[killed] OOMKilled", FailureClass.USER_CODE),
        (failed("PodFailed", "OOMKilled"), [], None, "exit code: 137", FailureClass.USER_CODE),
        (failed("WorkerCrash"), [], notice(69, "[rendezvous] no quorum"), "exit code: 69", FailureClass.INFRASTRUCTURE),
        (
            failed("WorkerCrash"),
            [],
            notice(1, "ValueError: no"),
            "ValueError: no, exit code: 1",
            FailureClass.USER_CODE,
        ),
        (failed("WorkerCrash", "boom"), [], notice(0, "all well"), "WorkerCrash: boom", FailureClass.USER_CODE),
        # A pod that was asked to stop, because another one of its job had failed, does not know why.
        (
            failed("WorkerCrash", "exited with code -768"),
            [pod(code=143), pod(code=3)],
            notice(143, "[saved] The pod was asked to stop"),
            "exit code: 3",
            FailureClass.USER_CODE,
        ),
        (failed("PodFailed"), [pod(code=143), pod(code=3)], None, "exit code: 3", FailureClass.USER_CODE),
        (failed("PodFailed"), [pod(code=143)], notice(143, "[saved] asked"), "[saved] asked", INFRASTRUCTURE),
        (failed("PodFailed"), [pod(code=143)], None, "exit code: 143", INFRASTRUCTURE),
        # What the cluster knows counts above what a pod says.
        (failed("NodeFault", "lost"), [], notice(1, "mine"), "NodeFault: lost", FailureClass.INFRASTRUCTURE),
        (
            failed("StartupDeadlineExceeded"),
            [pod(waiting="ErrImagePull")],
            None,
            "Startup",
            FailureClass.INVALID_REQUEST,
        ),
    ],
)
def test_why_it_has_failed(
    document: dict[str, Any], pods: list[Any], said: EndNotice | None, reason: str, failure_class: FailureClass
) -> None:
    state = job_state(document, pods, said)
    end = JobEnd(state.status, state.secondary, state.reason)
    assert reason in state.reason
    assert len(explained(end)) <= 1_024
    assert classify_end(end) is failure_class


def test_a_killed_process_is_explained_as_on_sagemaker() -> None:
    state = job_state(failed("PodFailed"), [pod(code=137, reason="OOMKilled")])
    assert "most likely out of memory" in explained(JobEnd(state.status, state.secondary, state.reason))


def test_a_deleted_job_is_stopping_until_it_is_gone_but_an_end_stays_one() -> None:
    running, ended = job(condition("Running")), job(condition("Completed"))
    for document in (running, ended):
        document["metadata"]["deletionTimestamp"] = AT
    assert job_state(running).status is JobStatus.STOPPING
    assert job_state(ended).status is JobStatus.COMPLETED


@pytest.mark.parametrize(
    ("deleted_at", "status"),
    [
        ("2026-01-01T00:00:09Z", JobStatus.STOPPING),
        (AT, JobStatus.STOPPING),
        ("2026-01-01T00:00:11Z", JobStatus.FAILED),
    ],
)
def test_what_fails_because_it_is_deleted_has_not_failed(deleted_at: str, status: JobStatus) -> None:
    document = failed("WorkerCrash", "exited with code -15")
    document["metadata"]["deletionTimestamp"] = deleted_at
    assert job_state(document).status is status


def test_the_instances_are_those_that_the_operator_scales_to() -> None:
    assert job_state(job()).instances == 2
    assert job_state(job(elasticScalingStatus={"targetReplicas": {"pod": 3}})).instances == 3
    assert job_state({}).instances is None


def test_a_pod_that_cannot_pull_its_image_shows_while_the_job_waits() -> None:
    state = job_state(job(condition("Created")), [pod(waiting="ImagePullBackOff")])
    assert (state.secondary, state.message) == ("Pending", "ImagePullBackOff: no such image")


@pytest.mark.parametrize(
    "damage",
    [
        {"status": None, "spec": [], "metadata": "x"},
        {"status": {"conditions": {"type": "Failed"}, "restartCount": "many", "startTime": 5}},
        {"status": {"conditions": [None, 5, {"type": 7, "status": "True"}, {"status": "True"}], "restartCount": -1}},
        {"status": {"conditions": [condition("Failed", "x" * 5_000, "y" * 5_000)], "startTime": "never"}},
        {"status": {"elasticScalingStatus": {"targetReplicas": {"pod": True}}}},
    ],
)
def test_a_document_of_another_form_is_read_as_far_as_it_goes(damage: dict[str, Any]) -> None:
    state = job_state(damage, [None, 5, {"status": {"containerStatuses": [{"state": 5}]}}])
    assert state.restarts == 0
    assert len(state.reason) <= 1_024
    assert state.started_at is None
