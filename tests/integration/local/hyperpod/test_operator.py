"""The embedded operator: pods, agents, restarts, ends."""

from __future__ import annotations

import json

from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.kinds.resources import JOBS
from tests.support.hyperpod.cluster import NAMESPACE, PodCluster
from tests.support.waiting import wait_until


def test_a_job_runs_to_its_end_with_a_rank_for_each_pod(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "0.3", replicas=2)
    cluster.wait(name, "Completed")
    status = cluster.status(name)
    assert [(item["type"], item["status"]) for item in status["conditions"]] == [
        ("Created", "True"),
        ("PodsRunning", "False"),
        ("Running", "False"),
        ("Completed", "True"),
    ]
    assert status["restartCount"] == 0
    assert status["startTime"] <= status["completionTime"]
    assert [pod["name"] for pod in status["jobPods"]] == [f"{name}-pod-0", f"{name}-pod-1"]
    for rank in (0, 1):
        first = next(line for line in cluster.log(name, rank).splitlines() if '"RANK"' in line)
        known = json.loads(first.removeprefix("[default0]:"))
        assert (known["RANK"], known["WORLD_SIZE"], known["restarts"]) == (str(rank), "2", 0)
        assert known["MASTER_ADDR"] == status["masterAddr"] == cluster.pod(name)["status"]["podIP"]
    assert cluster.pod(name)["metadata"]["ownerReferences"][0]["name"] == name
    wait_until("the end of the agents", lambda: cluster.pod(name)["status"]["phase"] == "Succeeded")
    assert ("Created", "Created by HyperPod Training Operator controller") in cluster.events(name)


def test_a_worker_that_crashes_is_started_again_in_its_pod(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "0.3", "3", "0", jobMaxRetryCount=1)
    running = cluster.wait(name, "Completed")
    assert running["type"] == "Completed"
    status = cluster.status(name)
    assert status["restartCount"] == 1
    assert status["restartStatus"] == {"currentEvalPeriod": 0, "fullJobRestartCount": 0, "restartCount": 1}
    faulty = status["latestFaultyPodInstanceList"]
    assert (faulty["restartType"], faulty["faultyPodList"], faulty["faultyRankList"]) == (
        "PLR",
        [f"{name}-pod-0"],
        ["0"],
    )
    assert any("The fault of reason WorkerCrash was remediated in" in message for _, message in cluster.events(name))


def test_a_job_without_retries_left_has_failed_with_the_fault_of_its_worker(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "0.1", "3", jobMaxRetryCount=1)
    failed = cluster.wait(name, "Failed")
    assert failed["reason"] == "WorkerCrash"
    assert "exited with code -768" in failed["message"]
    assert failed["message"].endswith("(after 1 restarts; jobMaxRetryCount 1)")
    assert cluster.condition(name, "Running") is None
    assert cluster.condition(name, "Restarting") is None


def test_a_container_that_ends_by_itself_is_replaced(cluster: PodCluster) -> None:
    name = cluster.create(container={"command": ["sh", "-c", "exit 7"]}, jobMaxRetryCount=1)
    failed = cluster.wait(name, "Failed")
    assert failed["reason"] == "PodFailed"
    assert "exit code: 7" in failed["message"]
    assert cluster.status(name)["restartCount"] == 1


def test_after_enough_restarts_all_pods_are_replaced(cluster: PodCluster) -> None:
    policy = {"evalPeriodSeconds": 1000, "numRestartBeforeFullJobRestart": 1, "maxFullJobRestarts": 1}
    name = cluster.create("steps.py", "0.2", "3", restartPolicy=policy)
    first = cluster.wait(name, "Running") and cluster.pod(name)["metadata"]["uid"]
    failed = cluster.wait(name, "Failed")
    assert failed["message"].endswith("(after 3 restarts; maxFullJobRestarts 1)")
    assert cluster.pod(name)["metadata"]["uid"] != first
    assert cluster.status(name)["restartStatus"]["fullJobRestartCount"] == 1


def test_a_spare_takes_the_rank_of_a_pod_that_is_lost(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "60", replicas=1, spares=1)
    cluster.wait(name, "Running")
    wait_until("the spare", lambda: len([p for p in cluster.pods(name) if p["status"]["phase"] == "Running"]) == 2)
    cluster.store.delete(PODS, f"{name}-pod-0", NAMESPACE)
    wait_until("a restart", lambda: cluster.status(name)["restartCount"] == 1)
    cluster.wait(name, "Running")
    assert cluster.status(name)["masterAddr"] == cluster.pod(name, 1)["status"]["podIP"]
    wait_until("a new spare", lambda: len(cluster.pods(name)) == 2)
    cluster.remove(name)


def test_a_rule_about_the_log_finds_a_job_that_hangs(cluster: PodCluster) -> None:
    rule = {"name": "steps", "logPattern": "epoch .*", "expectedStartCutOffInSeconds": 1}
    name = cluster.create("steps.py", "60", jobMaxRetryCount=0, logMonitoringConfiguration=[rule])
    failed = cluster.wait(name, "Failed")
    assert failed["reason"] == "LogHang_steps"


def test_a_rule_about_a_metric_finds_a_slow_job(cluster: PodCluster) -> None:
    rule = {"name": "rate", "logPattern": r"step (\d+)", "metricThreshold": 3, "operator": "gt"}
    name = cluster.create("steps.py", "60", jobMaxRetryCount=0, logMonitoringConfiguration=[rule])
    failed = cluster.wait(name, "Failed")
    assert failed["reason"] == "LogSlow_rate"
    assert "step 4" in failed["message"]


def test_a_job_that_is_active_too_long_has_failed(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "60", activeDeadlineSeconds=2)
    assert cluster.wait(name, "Failed")["reason"] == "DeadlineExceeded"


def test_an_image_that_cannot_be_pulled_waits_for_the_startup_deadline(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "1", container={"image": "elsewhere/image:1"}, startupDeadlineSeconds=3)
    wait_until("the back-off", lambda: "ImagePullBackOff" in json.dumps(cluster.pods(name)))
    failed = cluster.wait(name, "Failed")
    assert failed["reason"] == "StartupDeadlineExceeded"
    assert "ImagePullBackOff" in failed["message"]


def test_a_suspended_job_has_no_pods_and_starts_when_it_is_resumed(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "0.2", suspend=True)
    assert cluster.wait(name, "Suspended")["reason"] == "Suspended"
    assert cluster.pods(name) == []
    cluster.store.patch(JOBS, name, {"spec": {"runPolicy": {"suspend": False}}}, NAMESPACE)
    cluster.wait(name, "Completed")
    assert cluster.condition(name, "Suspended") is None


def test_a_job_that_is_deleted_ends_its_processes_with_a_signal(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "60")
    cluster.wait(name, "Running")
    wait_until("a step", lambda: "step 1" in cluster.log(name))
    log, uid = cluster.cluster.log_of(NAMESPACE, f"{name}-pod-0", "worker", previous=False), cluster.pod(name)
    assert log is not None
    said = log.path.open()
    cluster.remove(name)
    assert cluster.job(name) == {}
    wait_until("the end of the pod", lambda: not cluster.pods(name))
    assert "signal SIGTERM" in said.read()
    assert uid["metadata"]["uid"] not in cluster.cluster.kubelet.running()


def test_an_ended_job_and_its_pods_are_deleted_by_their_policies(cluster: PodCluster) -> None:
    gone = cluster.create("steps.py", "0.1", ttlSecondsAfterFinished=0)
    wait_until("the end of the job", lambda: cluster.job(gone) == {})
    kept = cluster.create("steps.py", "0.1", cleanPodPolicy="All")
    cluster.wait(kept, "Completed")
    wait_until("the end of the pods", lambda: not cluster.pods(kept))
    assert cluster.job(kept)


def test_the_default_of_a_job_is_to_be_deleted_when_it_has_ended(cluster: PodCluster) -> None:
    """ttlSecondsAfterFinished is 0 where a job does not say otherwise."""
    name = cluster.create("steps.py", "0.1", ttlSecondsAfterFinished=None)
    wait_until("the end of the job", lambda: cluster.job(name) == {})
