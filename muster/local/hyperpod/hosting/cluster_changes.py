"""SageMaker's operations that change a HyperPod cluster: its number of nodes, and their repair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from muster.local.hyperpod import node_documents
from muster.local.hyperpod.cluster_calls import Caller
from muster.local.hyperpod.embedded_cluster import EmbeddedCluster
from muster.local.kubernetes.kinds.resources import NODES
from muster.local.sagemaker.service_errors import ServiceError, invalid

Operation = Callable[[Any, Any], Mapping[str, object]]


class ClusterChanges:
    """The operations on one cluster, by their names."""

    def __init__(self, cluster: EmbeddedCluster, arn: str) -> None:
        self._cluster = cluster
        self._arn = arn
        self.operations: dict[str, Operation] = {
            "UpdateCluster": self._update,
            "BatchRebootClusterNodes": lambda request, caller: self._repair(request, caller, reboot=True),
            "BatchReplaceClusterNodes": lambda request, caller: self._repair(request, caller, reboot=False),
        }

    def _update(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, object]:
        """Of what can be updated the embedded cloud has the number of nodes alone."""
        self._check("UpdateCluster", request, caller)
        groups: Sequence[Mapping[str, Any]] = request.get("InstanceGroups") or ()
        own, further = self._cluster.events.group, set(request) - {"ClusterName", "InstanceGroups"}
        if further or len(groups) != 1 or groups[0]["InstanceGroupName"] != own:
            message = f"The embedded cloud updates the InstanceCount of the instance group {own}, and nothing else."
            raise invalid(message)
        self._cluster.nodes.scale_later(int(groups[0]["InstanceCount"]))
        return {"ClusterArn": self._arn}

    def _repair(self, request: Mapping[str, Any], caller: Caller, *, reboot: bool) -> Mapping[str, object]:
        self._check("BatchRebootClusterNodes" if reboot else "BatchReplaceClusterNodes", request, caller)
        done, failed = [], []
        for instance in request.get("NodeIds") or ():
            if self._cluster.store.find(NODES, node_documents.name_of(instance)) is None:
                failed.append({"NodeId": instance, "ErrorCode": "NodeIdNotFound", "Message": "The node was not found."})
            else:
                self._cluster.nodes.repair(node_documents.name_of(instance), reboot=reboot)
                done.append(instance)
        return {"Successful": done, **({"Failed": failed} if failed else {})}

    def _check(self, operation: str, request: Mapping[str, Any], caller: Caller) -> None:
        """Refuse who may not, and a cluster that does not exist.

        Raises:
            ServiceError: with AWS's code.
        """
        asked = request["ClusterName"]
        known = asked in {self._cluster.settings.name, self._arn}
        caller.authorise(f"sagemaker:{operation}", self._arn if known else asked, {})
        if not known:
            code, message = "ResourceNotFound", f"Cluster with name {asked} not found in your account."
            raise ServiceError(code, message)
