"""SageMaker's operations on HyperPod clusters: what the cluster says of itself, and its nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from muster.local.hyperpod import node_documents
from muster.local.hyperpod.embedded_cluster import EmbeddedCluster
from muster.local.kubernetes.kinds.resources import NODES
from muster.local.ministack.host import Account
from muster.local.sagemaker.service_errors import ServiceError, invalid
from muster.local.sagemaker.training_service import Caller

Answer = Mapping[str, object]
Operation = Callable[[Any, Caller], Answer]
_NOT_FOUND = "ResourceNotFound"
_STATUS = {
    node_documents.SCHEDULABLE: "Running",
    node_documents.PENDING_REPLACEMENT: "Failure",
    node_documents.PENDING_REBOOT: "Pending",
}


class ClusterCalls:
    """The operations on the one cluster of this cloud."""

    def __init__(self, account: Account, cluster: EmbeddedCluster, arn: str, eks_arn: str) -> None:
        self._account = account
        self._cluster = cluster
        self._arn = arn
        self._eks_arn = eks_arn
        self._created = round(time.time(), 3)

    @property
    def operations(self) -> dict[str, Operation]:
        """The operations by their names."""
        return {
            "DescribeCluster": self._describe,
            "ListClusters": self._list,
            "ListClusterNodes": self._list_nodes,
            "DescribeClusterNode": self._describe_node,
            "UpdateCluster": self._update,
            "BatchRebootClusterNodes": lambda request, caller: self._repair(request, caller, reboot=True),
            "BatchReplaceClusterNodes": lambda request, caller: self._repair(request, caller, reboot=False),
        }

    def document(self) -> dict[str, object]:
        """What DescribeCluster answers."""
        settings, count = self._cluster.settings, self._cluster.nodes.count()
        group = {
            "InstanceGroupName": self._cluster.events.group,
            "InstanceType": settings.node_type,
            "CurrentCount": count,
            "TargetCount": count,
            "Status": "InService",
            "OnStartDeepHealthChecks": ["InstanceStress", "InstanceConnectivity"],
            "ExecutionRole": f"arn:{self._account.partition}:iam::{self._account.account_id}:role/hyperpod-nodes",
        }
        return {
            "ClusterArn": self._arn,
            "ClusterName": settings.name,
            "ClusterStatus": "InService",
            "CreationTime": self._created,
            "InstanceGroups": [group],
            "Orchestrator": {"Eks": {"ClusterArn": self._eks_arn}},
            "NodeRecovery": "Automatic",
            "NodeProvisioningMode": "Continuous",
        }

    # --- operations ----------------------------------------------------------------------------

    def _describe(self, request: Mapping[str, Any], caller: Caller) -> Answer:
        self._check("DescribeCluster", request, caller)
        return self.document()

    def _list(self, request: Mapping[str, Any], caller: Caller) -> Answer:
        caller.authorise("sagemaker:ListClusters", "*", {})
        name = self._cluster.settings.name
        summary = {
            "ClusterArn": self._arn,
            "ClusterName": name,
            "CreationTime": self._created,
            "ClusterStatus": "InService",
        }
        return {"ClusterSummaries": [summary] if request.get("NameContains", "").lower() in name.lower() else []}

    def _list_nodes(self, request: Mapping[str, Any], caller: Caller) -> Answer:
        self._check("ListClusterNodes", request, caller)
        nodes = self._cluster.store.list(NODES).items
        return {"ClusterNodeSummaries": [self._summary(node) for node in nodes]}

    def _describe_node(self, request: Mapping[str, Any], caller: Caller) -> Answer:
        self._check("DescribeClusterNode", request, caller)
        return {"NodeDetails": self._summary(self._node(request.get("NodeId", "")))}

    def _update(self, request: Mapping[str, Any], caller: Caller) -> Answer:
        """Of what can be updated the embedded cloud has the number of nodes alone."""
        self._check("UpdateCluster", request, caller)
        groups: Sequence[Mapping[str, Any]] = request.get("InstanceGroups") or ()
        own, further = self._cluster.events.group, set(request) - {"ClusterName", "InstanceGroups"}
        if further or len(groups) != 1 or groups[0]["InstanceGroupName"] != own:
            message = f"The embedded cloud updates the InstanceCount of the instance group {own}, and nothing else."
            raise invalid(message)
        self._cluster.nodes.scale_later(int(groups[0]["InstanceCount"]))
        return {"ClusterArn": self._arn}

    def _repair(self, request: Mapping[str, Any], caller: Caller, *, reboot: bool) -> Answer:
        self._check("BatchRebootClusterNodes" if reboot else "BatchReplaceClusterNodes", request, caller)
        done, failed = [], []
        for instance in request.get("NodeIds") or ():
            if self._cluster.store.find(NODES, node_documents.name_of(instance)) is None:
                failed.append({"NodeId": instance, "ErrorCode": "NodeIdNotFound", "Message": "The node was not found."})
            else:
                self._cluster.nodes.repair(node_documents.name_of(instance), reboot=reboot)
                done.append(instance)
        return {"Successful": done, **({"Failed": failed} if failed else {})}

    # --- what they share -----------------------------------------------------------------------

    def _check(self, operation: str, request: Mapping[str, Any], caller: Caller) -> None:
        """Refuse who may not, and a cluster that does not exist.

        Raises:
            ServiceError: with AWS's code.
        """
        asked = request["ClusterName"]
        known = asked in {self._cluster.settings.name, self._arn}
        arn = self._arn if known else self._account.arn("sagemaker", f"cluster/{asked.rpartition('/')[2]}")
        caller.authorise(f"sagemaker:{operation}", arn, {})
        if not known:
            message = f"Cluster with name {asked} not found"
            raise ServiceError(_NOT_FOUND, message)

    def _node(self, instance: str) -> Mapping[str, Any]:
        node = self._cluster.store.find(NODES, node_documents.name_of(instance))
        if node is None:
            message = f"Instance with id {instance} not found"
            raise ServiceError(_NOT_FOUND, message)
        return node

    def _summary(self, node: Mapping[str, Any]) -> dict[str, object]:
        metadata = node["metadata"]
        created = datetime.fromisoformat(metadata["creationTimestamp"]).timestamp()
        return {
            "InstanceGroupName": self._cluster.events.group,
            "InstanceId": node_documents.instance_of(metadata["name"]),
            "InstanceType": metadata["labels"][node_documents.INSTANCE_TYPE],
            "LaunchTime": created,
            "InstanceStatus": {"Status": _STATUS.get(node_documents.health(node), "Pending"), "Message": ""},
        }
