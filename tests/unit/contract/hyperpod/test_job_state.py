"""What the document of a job on a cluster means, and what looks at it add to its attempt."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass, JobEnd, classify_end, explained
from muster.contract.aws.job_status import JobStatus
from muster.contract.run.attempt import Attempt
from muster.contract.run.cluster_job import ClusterJob
from muster.contract.run.notices import EndNotice
from muster.contract.timestamps import Timestamp
from muster.options.hyperpod.contract.job_history import HISTORY_MAX, with_state
from muster.options.hyperpod.contract.job_state import JobState, all_run, job_state

INFRASTRUCTURE = FailureClass.INFRASTRUCTURE
AT = "2026-01-01T00:00:10Z"
SEEN = "2026-01-01T00:00:10.000Z"


def condition(kind: str, reason: str = "", message: str = "", *, holds: bool = True) -> dict[str, str]:
    words = {"reason": reason, "message": message}
    return {"type": kind, "status": "True" if holds else "False", **words, "lastTransitionTime": AT}


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


RUNNING, PODS, CREATED = condition("Running"), condition("PodsRunning"), condition("Created")
NOT_FAILED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "InProgress", "Pending"),
    (job(), "InProgress", "Pending"),
    (job(CREATED, PODS), "InProgress", "Pending"),
    (job(CREATED, PODS, RUNNING), "InProgress", "Training"),
    (job(condition("Suspended", "Suspended")), "InProgress", "WaitingForQuota"),
    (job(RUNNING, suspend=True), "InProgress", "WaitingForQuota"),
    (job(condition("Suspended", holds=False), RUNNING), "InProgress", "Training"),
    (job(condition("Restarting", "NodeFault"), restartCount=1), "InProgress", "Restarting"),
    (job(condition("Completed")), "Completed", "Completed"),
    (job(RUNNING, condition("Completed")), "Completed", "Completed"),
    (job(condition("Completed", holds=False), RUNNING), "InProgress", "Training"),
]


def test_a_job_that_has_not_failed() -> None:
    for document, status, secondary in NOT_FAILED:
        state = job_state(document)
        assert (state.status, state.secondary) == (status, secondary), document


USER_CODE, INVALID = FailureClass.USER_CODE, FailureClass.INVALID_REQUEST
CAUSES = [
    ("NodeFault", "Found unhealthy node", "NodeFault", INFRASTRUCTURE),
    ("FaultDeadlineExceeded", "no node for an hour", "NodeFault", INFRASTRUCTURE),
    ("DeepHealthCheckFailed", "", "HealthCheck", INFRASTRUCTURE),
    ("WorkloadPreempted", "", "Preempted", FailureClass.CAPACITY),
    ("PodEvicted", "disk pressure", "Evicted", INFRASTRUCTURE),
    ("ImagePullBackOff", "", "ImageError", INVALID),
    ("StartupDeadlineExceeded", "no pod runs", "StartupDeadlineExceeded", FailureClass.CAPACITY),
    ("StartupDeadlineExceeded", "ImagePullBackOff of image:1", "ImageError", INVALID),
    ("LogHang_steps", "", "Hang", INFRASTRUCTURE),
    ("LogFault_nodefault", "", "Hang", INFRASTRUCTURE),
    ("DeadlineExceeded", "", "DeadlineExceeded", FailureClass.TIMEOUT),
    ("WorkerCrash", "Local Rank 0 exited with code -768 due to: boom", "Failed", USER_CODE),
    ("Anything", "", "Failed", USER_CODE),
]


def test_a_job_that_has_failed() -> None:
    for reason, message, secondary, failure_class in CAUSES:
        state = job_state(failed(reason, message, restartCount=3, completionTime="2026-01-01T00:01:00Z"))
        assert (state.status, state.secondary, state.restarts) == (JobStatus.FAILED, secondary, 3), reason
        assert state.changed_at == "2026-01-01T00:01:00.000Z"
        assert classify_end(JobEnd(state.status, state.secondary, state.reason)) is failure_class, reason


CRASHED, POD_FAILED = failed("WorkerCrash"), failed("PodFailed")
CODE_3 = failed("WorkerCrash", "exited with code -768")
ASKED = notice(143, "[saved] The pod was asked to stop")
# The job, its pods, what a pod said, what the reason must have, and the class.
REASONS: list[tuple[dict[str, Any], list[Any], EndNotice | None, str, FailureClass]] = [
    # The agent shows the code n of a worker as -256 n, and a signal s as -s.
    (CODE_3, [], None, "exit code: 3", USER_CODE),
    (failed("WorkerCrash", "exited with code -9"), [], None, "exit code: 137", USER_CODE),
    (failed("WorkerCrash", "exited with code -17664"), [], None, "exit code: 69", INFRASTRUCTURE),
    (failed("PodFailed", "exit code 75"), [], None, "exit code: 75", INFRASTRUCTURE),
    (POD_FAILED, [pod(code=64)], None, "exit code: 64", INVALID),
    (POD_FAILED, [pod(code=0), pod(code=3)], None, "exit code: 3", USER_CODE),
    (POD_FAILED, [pod(code=137, reason="OOMKilled")], None, "[killed] OOMKilled", USER_CODE),
    (failed("PodFailed", "OOMKilled"), [], None, "exit code: 137", USER_CODE),
    (CRASHED, [], notice(69, "[rendezvous] no quorum"), "exit code: 69", INFRASTRUCTURE),
    (CRASHED, [], notice(1, "ValueError: no"), "ValueError: no, exit code: 1", USER_CODE),
    (failed("WorkerCrash", "boom"), [], notice(0, "all well"), "WorkerCrash: boom", USER_CODE),
    # A pod that was asked to stop, because another one of its job had failed, does not know why.
    (CODE_3, [pod(code=143), pod(code=3)], ASKED, "exit code: 3", USER_CODE),
    (POD_FAILED, [pod(code=143), pod(code=3)], None, "exit code: 3", USER_CODE),
    (POD_FAILED, [pod(code=143)], ASKED, "[saved] The pod was asked", INFRASTRUCTURE),
    (POD_FAILED, [pod(code=143)], None, "exit code: 143", INFRASTRUCTURE),
    # What the cluster knows counts above what a pod says.
    (failed("NodeFault", "lost"), [], notice(1, "mine"), "NodeFault: lost", INFRASTRUCTURE),
    (failed("StartupDeadlineExceeded"), [pod(waiting="ErrImagePull")], None, "Startup", INVALID),
]


def test_why_it_has_failed() -> None:
    for document, pods, said, reason, failure_class in REASONS:
        state = job_state(document, pods, said)
        end = JobEnd(state.status, state.secondary, state.reason)
        assert reason in state.reason
        assert len(explained(end)) <= 1_024
        assert classify_end(end) is failure_class, reason
        assert ("out of memory" in explained(end)) == any(sign in reason for sign in ("137", "[killed]")), reason


def test_a_deleted_job_is_stopping_until_it_is_gone_but_an_end_stays_one() -> None:
    running, ended = job(condition("Running")), job(condition("Completed"))
    for document in (running, ended):
        document["metadata"]["deletionTimestamp"] = AT
    assert job_state(running).status is JobStatus.STOPPING
    assert job_state(ended).status is JobStatus.COMPLETED


def test_what_fails_because_it_is_deleted_has_not_failed() -> None:
    document = failed("WorkerCrash", "exited with code -15")
    for second, status in (("09", JobStatus.STOPPING), ("10", JobStatus.STOPPING), ("11", JobStatus.FAILED)):
        document["metadata"]["deletionTimestamp"] = f"2026-01-01T00:00:{second}Z"
        assert job_state(document).status is status, second


def test_pods_run_only_where_all_are_there_and_ready_and_none_has_ended_or_is_deleted() -> None:
    runs: dict[str, Any] = {"metadata": {}, "status": {"containerStatuses": [{"state": {"running": {}}}]}}
    ended = {"status": {"containerStatuses": [{"state": {"running": {}}}, {"state": {"terminated": {}}}]}}
    lost = {"status": {**runs["status"], "conditions": [{"type": "Ready", "status": "False"}]}}
    for pods, instances, wanted in (
        ([runs, runs], 2, True),
        ([runs, runs, runs], 2, True),
        ([runs], 2, False),
        ([], None, False),
        ([runs, ended], 2, False),
        ([runs, lost], 2, False),
        ([runs, {**runs, "metadata": {"deletionTimestamp": AT}}], 2, False),
        ([runs, {"status": {"phase": "Pending"}}], 2, False),
        ([None, "x"], 1, False),
    ):
        assert all_run(pods, instances) is wanted, (pods, instances)


def test_the_instances_are_those_that_the_operator_scales_to() -> None:
    assert job_state(job()).instances == 2
    assert job_state(job(elasticScalingStatus={"targetReplicas": {"pod": 3}})).instances == 3
    assert job_state({}).instances is None
    # A pod that cannot pull its image shows while the job waits.
    waiting = job_state(job(CREATED), [pod(waiting="ImagePullBackOff")])
    assert (waiting.secondary, waiting.message) == ("Pending", "ImagePullBackOff: no such image")


def test_a_document_of_another_form_is_read_as_far_as_it_goes() -> None:
    for damage in (
        {"status": None, "spec": [], "metadata": "x"},
        {"status": {"conditions": {"type": "Failed"}, "restartCount": "many", "startTime": 5}},
        {"status": {"conditions": [None, 5, {"type": 7, "status": "True"}, {"status": "True"}], "restartCount": -1}},
        {"status": {"conditions": [condition("Failed", "x" * 5_000, "y" * 5_000)], "startTime": "never"}},
        {"status": {"elasticScalingStatus": {"targetReplicas": {"pod": True}}}},
    ):
        state = job_state(damage, [None, 5, {"status": {"containerStatuses": [{"state": 5}]}}])
        assert (state.restarts, state.started_at) == (0, None), damage
        assert len(state.reason) <= 1_024


# --- what looks at a job add to its attempt -------------------------------------------------------

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> Timestamp:
    return timestamps.text(START + timedelta(seconds=seconds))


def looked(*states: JobState) -> Attempt:
    attempt = Attempt(attempt=1, job="muster-one-r0-a1", cluster=ClusterJob(cluster="hyper", namespace="team-a"))
    for number, state in enumerate(states):
        attempt = with_state(attempt, state, at(10 * number))
    return attempt


def state(secondary: str, status: JobStatus = JobStatus.IN_PROGRESS, **fields: Any) -> JobState:
    return JobState(status, secondary, **fields)


def steps(attempt: Attempt) -> list[str]:
    return [step.secondary for step in attempt.history]


def test_a_life_with_a_wait_a_preemption_and_an_end() -> None:
    waits, trains = state("WaitingForQuota"), state("Training", instances=1)
    preempted = state("WaitingForQuota", message="Preempted")
    attempt = looked(waits, waits, trains, trains, preempted, trains, state("Completed", JobStatus.COMPLETED))
    assert steps(attempt) == ["WaitingForQuota", "Training", "WaitingForQuota", "Training", "Completed"]
    assert attempt.history[2].message == "Preempted"


def test_a_restart_of_the_operator_is_one_incarnation_however_often_it_is_seen() -> None:
    once = looked(state("Training"), state("Restarting", restarts=1, message="lost"), state("Training", restarts=1))
    assert steps(once) == ["Training", "Restarting", "Training"]
    unseen = looked(state("Training"), state("Training", restarts=2), state("Training", restarts=2))
    assert steps(unseen) == ["Training", "Restarting", "Training"]
    assert "2 times" in unseen.history[1].message
    assert [one.cluster and one.cluster.restarts for one in (once, unseen)] == [1, 2]


def test_elastic_scaling_shows_the_number_of_instances() -> None:
    attempt = looked(state("Training", instances=1), state("Training", instances=2), state("Training", instances=2))
    assert [step.instances for step in attempt.history] == [1, 2]
    assert attempt.history[1].message == "scaled from 1 to 2 instances"
    assert attempt.cluster is not None
    assert attempt.cluster.instances == 2


def test_an_end_without_a_look_before_it_has_its_start() -> None:
    attempt = looked(state("Completed", JobStatus.COMPLETED, started_at=at(-100), changed_at=at(-5), instances=2))
    assert [(step.secondary, step.at) for step in attempt.history] == [("Training", at(-100)), ("Completed", at(-5))]


def test_times_never_go_back_and_the_record_stays_small() -> None:
    training_job = Attempt(attempt=1, job="muster-one-r0-a1")
    assert with_state(training_job, state("Training"), at(0)) is training_job
    many = [state(("Training", "Restarting")[number % 2], changed_at=at(-number)) for number in range(500)]
    attempt = looked(*many)
    assert len(attempt.history) == HISTORY_MAX
    assert all(before.at <= after.at for before, after in pairwise(attempt.history))
