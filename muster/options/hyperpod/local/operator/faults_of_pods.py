"""Which of a job's pods are at fault, and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from muster.options.hyperpod.local.node import Node
from muster.options.hyperpod.local.operator.pod_view import PodView

NODE_FAULT, POD_FAILED, POD_EVICTED = "NodeFault", "PodFailed", "PodEvicted"
LOST_AGENT = "AgentUnreachable"


@dataclass(frozen=True)
class Fault:
    """A fault of a job: its reason and message, and the pods at fault."""

    reason: str
    message: str
    pods: tuple[PodView, ...] = ()

    @property
    def replaces_pods(self) -> bool:
        """Whether the pods at fault must be replaced; otherwise their processes start again in them."""
        return self.reason in {NODE_FAULT, POD_FAILED, POD_EVICTED, LOST_AGENT}


def fault_of(
    pods: Sequence[PodView], nodes: Mapping[str, Node], finished: Collection[str], missing: Sequence[str]
) -> Fault | None:
    """The fault of a job's pods: an unhealthy node counts first.

    Args:
        pods: the pods that train, or should.
        nodes: the cluster's nodes by name.
        finished: the uids of pods whose agents have completed.
        missing: the names of pods that are gone.
    """
    usable = {name for name, node in nodes.items() if node.is_usable}
    bad = [pod for pod in pods if pod.node and pod.node not in usable]
    if bad:
        return Fault(NODE_FAULT, f"Found unhealthy node {bad[0].node}", tuple(bad))
    failed = [pod for pod in pods if pod.phase == "Failed"]
    if failed:
        return Fault(POD_FAILED, f"Pod {failed[0].name} failed: {failed[0].end_words}", tuple(failed))
    done = [pod for pod in pods if pod.phase == "Succeeded" and pod.uid not in finished]
    if done:
        return Fault(POD_FAILED, f"Pod {done[0].name} ended before its training: {done[0].end_words}", tuple(done))
    evicted = [pod for pod in pods if pod.deleting]
    if evicted or missing:
        name = evicted[0].name if evicted else missing[0]
        return Fault(POD_EVICTED, f"Pod {name} was deleted", tuple(evicted))
    return None
