"""What a pod asks for, and which node takes it."""

from fractions import Fraction
from typing import Any

import pytest

from muster.options.hyperpod.local import node_choice
from muster.options.hyperpod.local.node import HOSTNAME, Health, Node, allocatable
from muster.options.hyperpod.local.quantities import quantity, requests_of


def node(name: str = "a", node_type: str = "ml.m5.xlarge", **changes: Any) -> Node:
    return Node(f"i-{name}", node_type, "workers", "us-east-1", **changes)


def pod(cpu: str = "1", **spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **spec}


def placed(spec: dict[str, Any], *nodes: Node, pods: tuple[dict[str, Any], ...] = ()) -> node_choice.Placement:
    return node_choice.place(spec, node_choice.rooms(list(nodes), list(pods)))


def test_the_node_with_the_fewest_pods_is_taken() -> None:
    there = {"spec": {**pod("100m"), "nodeName": "hyperpod-i-a"}, "status": {"phase": "Running"}}
    assert placed(pod(), node("a"), node("b"), pods=(there,)).node == "hyperpod-i-b"
    done = {**there, "status": {"phase": "Succeeded"}}
    assert placed(pod(), node("a"), node("b"), pods=(done,)).node == "hyperpod-i-a"


def test_all_of_an_instance_cannot_be_asked_for() -> None:
    """A part is reserved for the node's own daemons."""
    assert allocatable(node().type)["cpu"] < 4
    found = placed(pod("4"), node())
    assert found.node is None
    assert found.message == "0/1 nodes are available: 1 Insufficient cpu."


def test_a_node_that_cannot_take_the_pod_says_why() -> None:
    for wrong, reason in (
        (node(is_ready=False), "not ready"),
        (node(health=Health.PENDING_REBOOT), "untolerated taint"),
        (node(node_type="ml.p5.48xlarge"), "node affinity/selector"),
    ):
        found = placed(pod(nodeSelector={"node.kubernetes.io/instance-type": "ml.m5.xlarge"}), wrong)
        assert found.node is None, reason
        assert reason in found.message


def test_nothing_lets_a_pod_onto_a_faulty_node() -> None:
    faulty = node(health=Health.PENDING_REPLACEMENT)
    assert placed(pod(tolerations=[{"operator": "Exists"}]), faulty).node is None


def test_node_affinity_excludes_instances() -> None:
    rule = {"key": HOSTNAME, "operator": "NotIn", "values": ["hyperpod-i-a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert placed(pod(affinity=affinity), node("a"), node("b")).node == "hyperpod-i-b"


def test_how_many_more_pods_there_is_room_for() -> None:
    rooms = node_choice.rooms([node("a"), node("b")], [])
    assert node_choice.room_for(pod("3"), rooms, 5) == 2
    assert node_choice.room_for(pod("3"), rooms, 1) == 1


def test_a_quantity_is_a_number() -> None:
    numbers: dict[object, Fraction] = {
        "500m": Fraction(1, 2),
        "1.5": Fraction(3, 2),
        "1Gi": Fraction(2**30),
        "1k": Fraction(1000),
        "2e3": Fraction(2000),
        "1E": Fraction(10**18),
        8: Fraction(8),
    }
    assert {text: quantity(text) for text in numbers} == numbers
    for text in ("", "1GB", "one", "1 Gi", "--1"):
        with pytest.raises(ValueError, match="is no quantity"):
            quantity(text)
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    assert requests_of({"containers": [{"resources": resources}, {}]}) == {"cpu": 1, "memory": 2**30, "pods": 1}
