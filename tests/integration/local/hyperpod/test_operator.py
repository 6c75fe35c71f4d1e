"""The embedded operator: pods, agents, restarts, ends."""

import json

from muster.options.hyperpod.local.kubernetes.served_resources import PODS
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
    for rank in (0, 1):
        first = next(line for line in cluster.log(name, rank).splitlines() if '"RANK"' in line)
        known = json.loads(first.removeprefix("[default0]:"))
        assert (known["RANK"], known["WORLD_SIZE"], known["restarts"]) == (str(rank), "2", 0)
        assert known["MASTER_ADDR"] == cluster.pod(name)["status"]["podIP"]
    assert cluster.pod(name)["metadata"]["ownerReferences"][0]["name"] == name
    wait_until("the end of the agents", lambda: cluster.pod(name)["status"]["phase"] == "Succeeded")


def test_a_worker_that_crashes_is_started_again_in_its_pod(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "0.3", "3", "0", jobMaxRetryCount=1)
    again = wait_until(
        "the remedy", lambda: found if (found := cluster.condition(name, "Running") or {}).get("message") else None
    )
    assert "The fault of reason WorkerCrash was remediated in" in again["message"]
    cluster.wait(name, "Completed")
    assert cluster.status(name)["restartCount"] == 1


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


def test_a_spare_takes_the_rank_of_a_pod_that_is_lost(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "60", replicas=1, spares=1)
    cluster.wait(name, "Running")
    wait_until("the spare", lambda: len([p for p in cluster.pods(name) if p["status"]["phase"] == "Running"]) == 2)
    cluster.store.delete(PODS, f"{name}-pod-0", NAMESPACE)
    wait_until("a restart", lambda: cluster.status(name)["restartCount"] == 1)
    cluster.wait(name, "Running")
    address = cluster.pod(name, 1)["status"]["podIP"]
    wait_until("the new rank 0", lambda: f'"MASTER_ADDR": "{address}"' in cluster.log(name, 1))
    wait_until("a new spare", lambda: len(cluster.pods(name)) == 2)
    cluster.remove(name)


def test_rules_about_the_log_find_a_job_that_hangs_or_is_slow_and_a_deadline_one_that_is_active_too_long(
    cluster: PodCluster,
) -> None:
    hangs = {"name": "steps", "logPattern": "epoch .*", "expectedStartCutOffInSeconds": 1}
    slow = {"name": "rate", "logPattern": r"step (\d+)", "metricThreshold": 3, "operator": "gt"}
    reasons = {
        cluster.create("steps.py", "60", jobMaxRetryCount=0, logMonitoringConfiguration=[hangs]): "LogHang_steps",
        cluster.create("steps.py", "60", jobMaxRetryCount=0, logMonitoringConfiguration=[slow]): "LogSlow_rate",
        cluster.create("steps.py", "60", activeDeadlineSeconds=2): "DeadlineExceeded",
    }
    ends = {name: cluster.wait(name, "Failed") for name in reasons}
    assert {name: end["reason"] for name, end in ends.items()} == reasons
    assert "step 4" in next(end["message"] for end in ends.values() if end["reason"] == "LogSlow_rate")


def test_an_image_that_cannot_be_pulled_waits_for_the_startup_deadline(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "1", container={"image": "elsewhere/image:1"}, startupDeadlineSeconds=3)
    wait_until("the back-off", lambda: "ImagePullBackOff" in json.dumps(cluster.pods(name)))
    failed = cluster.wait(name, "Failed")
    assert failed["reason"] == "StartupDeadlineExceeded"
    assert "ImagePullBackOff" in failed["message"]


def test_an_ended_job_and_its_pods_are_deleted_by_their_policies(cluster: PodCluster) -> None:
    # The default is to delete a job when it has ended.
    gone = [cluster.create("steps.py", "0.1", ttlSecondsAfterFinished=seconds) for seconds in (0, None)]
    kept = cluster.create("steps.py", "0.1", cleanPodPolicy="All")
    wait_until("the end of the jobs", lambda: [cluster.job(name) for name in gone] == [{}, {}])
    cluster.wait(kept, "Completed")
    wait_until("the end of the pods", lambda: not cluster.pods(kept))
    assert cluster.job(kept)
