"""Which node takes a pod: what kube-scheduler's filters say, as far as training jobs use them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from muster.options.hyperpod.local.node import Node, allocatable
from muster.options.hyperpod.local.quantities import lacking, requests_of

Document = Mapping[str, Any]
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass
class NodeRoom:
    """A node, and what is free on it."""

    node: Node
    free: dict[str, Fraction]
    pods: int = 0

    def take(self, wanted: Mapping[str, Fraction]) -> None:
        """A pod comes."""
        self.pods += 1
        for name, amount in wanted.items():
            self.free[name] = self.free.get(name, Fraction(0)) - amount


@dataclass(frozen=True)
class Placement:
    """Where a pod goes, or why it goes nowhere."""

    node: str | None
    reasons: Mapping[str, int] = field(default_factory=dict)
    """How many nodes each reason has excluded."""

    @property
    def message(self) -> str:
        """As in the pod's condition PodScheduled."""
        nodes = sum(self.reasons.values())
        parts = ", ".join(f"{count} {reason}" for reason, count in sorted(self.reasons.items()))
        return f"0/{nodes} nodes are available: {parts}."


def rooms(nodes: Iterable[Node], pods: Sequence[Document]) -> list[NodeRoom]:
    """What is free on each node."""
    found = [NodeRoom(node, allocatable(node.type)) for node in nodes]
    by_name = {room.node.name: room for room in found}
    for pod in pods:
        room = by_name.get(pod["spec"].get("nodeName", ""))
        if room is not None and pod.get("status", {}).get("phase") not in _ENDED:
            room.take(requests_of(pod["spec"]))
    return found


def place(pod_spec: Document, nodes: Sequence[NodeRoom]) -> Placement:
    """The node for a pod: of those that can take it the one with the fewest pods."""
    wanted = requests_of(pod_spec)
    reasons: dict[str, int] = {}
    possible = []
    for room in nodes:
        reason = _against(pod_spec, wanted, room)
        if reason is None:
            possible.append(room)
        else:
            reasons[reason] = reasons.get(reason, 0) + 1
    if not possible:
        return Placement(None, reasons)
    return Placement(min(possible, key=lambda room: (room.pods, room.node.name)).node.name)


def room_for(pod_spec: Document, nodes: Sequence[NodeRoom], most: int) -> int:
    """How many more pods like this the nodes can take, up to `most`."""
    left = [NodeRoom(room.node, dict(room.free), room.pods) for room in nodes]
    by_name = {room.node.name: room for room in left}
    wanted = requests_of(pod_spec)
    for count in range(most):
        found = place(pod_spec, left)
        if found.node is None:
            return count
        by_name[found.node].take(wanted)
    return most


def _against(pod_spec: Document, wanted: Mapping[str, Fraction], room: NodeRoom) -> str | None:
    """Why a node cannot take a pod, in kube-scheduler's words; None if it can."""
    if not room.node.is_ready:
        return "node(s) were not ready"
    if not room.node.is_usable:
        # No pod gets there whatever it tolerates: the operator would take it for one on a faulty node.
        return f"node(s) had untolerated taint {{sagemaker.amazonaws.com/node-health-status: {room.node.health}}}"
    labels = room.node.labels
    selector = pod_spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()) or not _affine(pod_spec, labels):
        return "node(s) didn't match Pod's node affinity/selector"
    missing = lacking(wanted, room.free)
    return f"Insufficient {missing[0]}" if missing else None


def _affine(pod_spec: Document, labels: Mapping[str, str]) -> bool:
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(
        all(_matches(rule, labels) for rule in term.get("matchExpressions") or ())
        for term in required.get("nodeSelectorTerms") or ()
    )


def _matches(rule: Document, labels: Mapping[str, str]) -> bool:
    value = labels.get(rule["key"])
    values: Sequence[str] = rule.get("values") or ()
    operator = rule["operator"]
    if operator in {"Exists", "DoesNotExist"}:
        return (value is not None) is (operator == "Exists")
    if operator in {"In", "NotIn"}:
        return (value in values) is (operator == "In")
    if value is None or not value.lstrip("-").isdigit():
        return False
    return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
