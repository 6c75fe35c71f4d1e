"""Kueue in the embedded cluster: quotas, priorities, preemption, waiting."""

from typing import Any

from muster.local.kubernetes.kinds.resources import WORKLOADS
from tests.support.hyperpod.cluster import NAMESPACE, PodCluster
from tests.support.waiting import wait_until


def workload(cluster: PodCluster, job: str) -> dict[str, Any]:
    found = cluster.store.list(WORKLOADS, NAMESPACE).items
    return next((item for item in found if item["metadata"]["ownerReferences"][0]["name"] == job), {})


def reasons(cluster: PodCluster, job: str) -> dict[str, str]:
    return {
        item["type"]: item.get("reason", "")
        for item in workload(cluster, job)["status"]["conditions"]
        if item["status"] == "True"
    }


def test_a_job_of_a_queue_waits_until_the_quota_has_room_for_all_its_pods(cluster: PodCluster) -> None:
    first = cluster.create("steps.py", "60", replicas=2, priority="training-priority")
    cluster.wait(first, "Running")
    second = cluster.create("steps.py", "0.2", replicas=2, priority="training-priority")
    waits = cluster.wait(second, "Suspended")
    assert waits["reason"] == "Suspended"
    wait_until("spec.suspend", lambda: cluster.job(second)["spec"]["runPolicy"].get("suspend"))

    def said() -> str:
        conditions = workload(cluster, second).get("status", {}).get("conditions") or ()
        return next((item["message"] for item in conditions if item["type"] == "QuotaReserved"), "")

    assert "insufficient unused quota for cpu" in wait_until("the reason", said)
    cluster.remove(first)
    cluster.wait(second, "Completed")
    wait_until("the end of the workload", lambda: reasons(cluster, second).get("Finished") == "JobFinished")
    assert any(reason == "JobInitiallySuspended" for reason, _ in cluster.events(second))


def test_a_lower_priority_gives_way_and_comes_back(cluster: PodCluster) -> None:
    low = cluster.create("steps.py", "1.0", replicas=3, priority="experiments-priority")
    cluster.wait(low, "Running")
    high = cluster.create("steps.py", "0.3", replicas=2, priority="training-priority")
    cluster.wait(low, "Suspended")
    assert reasons(cluster, low)["Evicted"] == "Preempted"
    cluster.wait(high, "Completed")
    cluster.wait(low, "Completed")
    assert cluster.status(low)["restartCount"] == 0


def test_a_queue_or_a_priority_class_that_does_not_exist_holds_its_jobs(cluster: PodCluster) -> None:
    for wrong, why in (
        ({"queue": "other", "priority": "training-priority"}, "LocalQueue other doesn't exist"),
        ({"priority": "none-priority"}, '"none-priority" not found'),
    ):
        name = cluster.create("steps.py", "0.1", **wrong)
        wait_until(why, lambda name=name, why=why: why in str(workload(cluster, name)))
        cluster.wait(name, "Suspended")
        assert cluster.pods(name) == []
        cluster.remove(name)
