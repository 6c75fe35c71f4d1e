"""Kueue in the embedded cluster: quotas, priorities, preemption, waiting."""

from tests.support.hyperpod.cluster import PodCluster
from tests.support.waiting import wait_until


def test_a_job_of_a_queue_waits_until_the_quota_has_room_for_all_its_pods(cluster: PodCluster) -> None:
    first = cluster.create("steps.py", "60", replicas=2, priority="training-priority")
    cluster.wait(first, "Running")
    second = cluster.create("steps.py", "0.2", replicas=2, priority="training-priority")
    waits = cluster.wait(second, "Suspended")
    assert waits["reason"] == "Suspended"
    wait_until("spec.suspend", lambda: cluster.job(second)["spec"]["runPolicy"].get("suspend"))
    assert cluster.pods(second) == []
    cluster.remove(first)
    cluster.wait(second, "Completed")


def test_a_lower_priority_gives_way_and_comes_back(cluster: PodCluster) -> None:
    low = cluster.create("steps.py", "1.0", replicas=3, priority="experiments-priority")
    cluster.wait(low, "Running")
    high = cluster.create("steps.py", "0.3", replicas=2, priority="training-priority")
    cluster.wait(low, "Suspended")
    cluster.wait(high, "Completed")
    cluster.wait(low, "Completed")
    assert cluster.status(low)["restartCount"] == 0


def test_a_queue_or_a_priority_class_that_does_not_exist_holds_its_jobs(cluster: PodCluster) -> None:
    for wrong in ({"queue": "other", "priority": "training-priority"}, {"priority": "none-priority"}):
        name = cluster.create("steps.py", "0.1", **wrong)
        cluster.wait(name, "Suspended")
        assert cluster.pods(name) == []
        cluster.remove(name)
