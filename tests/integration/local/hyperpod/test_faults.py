"""The faults of jobs and nodes: each happens once, is counted, and the cluster does what AWS's does."""

from typing import Any

from muster.local.faults import DeletedJob, FailedHealthCheck, Fault, LostNode, OperatorDown, Preemption
from muster.options.hyperpod.local.node import instance_of
from tests.support.hyperpod.cluster import PodCluster
from tests.support.waiting import wait_until


def placed(cluster: PodCluster, fault: Fault) -> Any:
    """Add a fault; how often it has fired."""
    identifier = cluster.faults.add(fault).id
    return lambda: next(report.fired for report in cluster.faults.report() if report.id == identifier)


def health_events(cluster: PodCluster) -> list[dict[str, Any]]:
    return [dict(detail) for kind, detail in cluster.sent if kind == "SageMaker HyperPod Cluster Node Health Event"]


def restarted(cluster: PodCluster, name: str) -> None:
    wait_until("a restart", lambda: cluster.status(name)["restartCount"] == 1 and cluster.condition(name, "Running"))


def test_a_node_that_is_lost_takes_its_pods_without_notice_and_is_replaced(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "60", replicas=2, jobMaxRetryCount=1)
    cluster.wait(name, "Running")
    lost = cluster.pod(name)["spec"]["nodeName"]
    fired = placed(cluster, LostNode(job=name, after_seconds=0.2))
    restarted(cluster, name)
    assert fired() == 1
    assert "The fault of reason NodeFault was remediated" in cluster.wait(name, "Running")["message"]
    assert "signal" not in cluster.log(name)
    wait_until("the new node", lambda: lost not in (nodes := cluster.cluster.nodes.all()) and len(nodes) == 3)
    found = [event for event in health_events(cluster) if event["InstanceId"] == instance_of(lost)]
    assert [event["HealthSummary"]["RepairAction"] for event in found] == ["Replace"]
    cluster.remove(name)


def test_a_node_whose_deep_health_check_fails_is_drained_and_started_again(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "60")
    cluster.wait(name, "Running")
    node = cluster.pod(name)["spec"]["nodeName"]
    fired = placed(cluster, FailedHealthCheck(job=name, reboot=True))
    restarted(cluster, name)
    assert fired() == 1
    assert cluster.pod(name)["spec"]["nodeName"] != node

    wait_until("the node", lambda: cluster.cluster.nodes.all()[node].is_usable)
    found = [event for event in health_events(cluster) if event["InstanceId"] == instance_of(node)]
    assert [event["HealthSummary"]["HealthStatus"] for event in found] == ["Unhealthy", "Healthy"]
    assert found[0]["HealthSummary"]["RepairAction"] == "Reboot"
    cluster.remove(name)


def test_a_preempted_job_is_suspended_and_resumed(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "60", priority="training-priority")
    cluster.wait(name, "Running")
    first = cluster.pod(name)["metadata"]["uid"]
    fired = placed(cluster, Preemption(job=name, seconds=2))
    cluster.wait(name, "Suspended")
    wait_until("the end of the pod", lambda: first not in {pod["metadata"]["uid"] for pod in cluster.pods(name)})
    cluster.wait(name, "Running")
    assert fired() == 1
    assert cluster.status(name)["restartCount"] == 0
    assert cluster.condition(name, "Suspended") is None
    cluster.remove(name)


def test_a_job_that_a_person_deletes_leaves_nothing(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "60")
    fired = placed(cluster, DeletedJob(job=name, after_seconds=0.2))
    wait_until("the deletion", lambda: cluster.job(name) == {} and not cluster.pods(name))
    assert fired() == 1


def test_nothing_is_reconciled_while_the_operator_is_down(cluster: PodCluster) -> None:
    name = cluster.create("steps.py", "0.5")
    cluster.wait(name, "Running")
    fired = placed(cluster, OperatorDown(job=name, seconds=4))
    wait_until("the fault", lambda: fired() == 1)
    other = cluster.create("steps.py", "0.1")
    wait_until("the end of the worker", lambda: "COMPLETED" in cluster.log(name))
    assert cluster.condition(name, "Completed") is None
    assert "conditions" not in cluster.status(other)
    cluster.wait(name, "Completed")
    cluster.wait(other, "Completed")
