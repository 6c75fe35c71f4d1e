"""The calls of SageMaker about HyperPod clusters: describe and list clusters and their nodes.

Everything that they answer follows from the settings of a cluster and from its nodes as they are now.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from muster.local.hyperpod.cluster_settings import ClusterSettings
from muster.local.hyperpod.node_documents import (
    INSTANCE_TYPE,
    PENDING_REBOOT,
    PENDING_REPLACEMENT,
    health,
    instance_of,
    is_ready,
)
from muster.local.hyperpod.nodes import Nodes
from muster.local.kubernetes.kinds.resources import NODES
from muster.local.kubernetes.objects.status_errors import Document
from muster.local.kubernetes.objects.store import ObjectStore
from muster.local.ministack.host import Account
from muster.local.sagemaker.service_errors import ServiceError, invalid

_GROUP = "sagemaker.amazonaws.com/instance-group-name"
_PAGE = 10  # ListClusters, ListClusterNodes: MaxResults
_ID_CHARACTERS = 12
_BUSY = {PENDING_REPLACEMENT: "ShuttingDown", PENDING_REBOOT: "SystemUpdating"}


class Caller(Protocol):
    """Who makes a call."""

    @property
    def authorise(self) -> Callable[[str, str, Mapping[str, object]], None]:
        """Checks (action, resource ARN, condition keys); raises ServiceError."""


def cluster_id(name: str) -> str:
    """The id at the end of a cluster's ARN and of its log group: always the same for a name."""
    return hashlib.sha256(name.encode()).hexdigest()[:_ID_CHARACTERS]


def cluster_arn(account: Account, name: str) -> str:
    """The ARN of a HyperPod cluster."""
    return account.arn("sagemaker", f"cluster/{cluster_id(name)}")


def log_group(name: str) -> str:
    """The log group of a HyperPod cluster."""
    return f"/aws/sagemaker/Clusters/{name}/{cluster_id(name)}"


@dataclass(frozen=True)
class ListedCluster:
    """A HyperPod cluster, with the objects of its EKS cluster."""

    settings: ClusterSettings
    store: ObjectStore
    nodes: Nodes
    created: float = field(default_factory=time.time)


class ClusterCalls:
    """The operations, by their names."""

    def __init__(self, account: Account, clusters: Sequence[ListedCluster]) -> None:
        self._account = account
        self._clusters = {cluster.settings.name: cluster for cluster in clusters}
        self.operations: dict[str, Callable[[Any, Any], Mapping[str, object]]] = {
            "DescribeCluster": self._describe,
            "ListClusters": self._list,
            "DescribeClusterNode": self._describe_node,
            "ListClusterNodes": self._list_nodes,
        }

    def _describe(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, object]:
        cluster = self._authorised(request, caller, "sagemaker:DescribeCluster")
        settings, nodes = cluster.settings, _nodes(cluster)
        role = f"arn:{self._account.partition}:iam::{self._account.account_id}:role/{settings.name}-nodes"
        groups = [
            {
                "CurrentCount": sum(_label(node, _GROUP) == group for node in nodes),
                "TargetCount": cluster.nodes.target,
                "InstanceGroupName": group,
                "InstanceType": settings.node_type,
                "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-embedded/lifecycle", "OnCreate": "on_create.sh"},
                "ExecutionRole": role,
                "ThreadsPerCore": 1,
                "Status": "InService",
            }
            for group in sorted({_label(node, _GROUP) for node in nodes})
        ]
        return {
            "ClusterArn": cluster_arn(self._account, settings.name),
            "ClusterName": settings.name,
            "ClusterStatus": "InService",
            "CreationTime": cluster.created,
            "InstanceGroups": groups,
            "Orchestrator": {
                "Eks": {"ClusterArn": self._account.arn("eks", f"cluster/{settings.eks_cluster}")},
            },
            "NodeRecovery": "Automatic",
            "NodeProvisioningMode": "Continuous",
        }

    def _list(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, object]:
        caller.authorise("sagemaker:ListClusters", "*", {})
        rows: list[dict[str, Any]] = [
            {
                "ClusterArn": cluster_arn(self._account, cluster.settings.name),
                "ClusterName": cluster.settings.name,
                "CreationTime": cluster.created,
                "ClusterStatus": "InService",
            }
            for cluster in self._clusters.values()
            if request.get("NameContains", "").lower() in cluster.settings.name.lower()
        ]
        key = "ClusterName" if request.get("SortBy") == "NAME" else "CreationTime"
        rows.sort(key=lambda row: row[key], reverse=request.get("SortOrder") == "Descending")
        return _page("ClusterSummaries", rows, request)

    def _describe_node(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, object]:
        cluster = self._authorised(request, caller, "sagemaker:DescribeClusterNode")
        wanted = request.get("NodeId") or request.get("NodeLogicalId")
        for node in _nodes(cluster):
            if instance_of(node["metadata"]["name"]) == wanted:
                row = _row(node)
                row["ThreadsPerCore"] = 1
                row["Placement"] = {
                    "AvailabilityZone": _label(node, "topology.kubernetes.io/zone"),
                }
                return {"NodeDetails": row}
        code = "ResourceNotFound"
        message = f"Node with id {wanted} was not found in cluster {cluster.settings.name}."
        raise ServiceError(code, message, 400)

    def _list_nodes(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, object]:
        cluster = self._authorised(request, caller, "sagemaker:ListClusterNodes")
        contained = request.get("InstanceGroupNameContains", "")
        rows = [row for row in map(_row, _nodes(cluster)) if contained in row["InstanceGroupName"]]
        key = "InstanceId" if request.get("SortBy") == "NAME" else "LaunchTime"
        rows.sort(key=lambda row: row[key], reverse=request.get("SortOrder") == "Descending")
        return _page("ClusterNodeSummaries", rows, request)

    def _authorised(self, request: Mapping[str, Any], caller: Caller, action: str) -> ListedCluster:
        """The cluster of a request: rights come first, so that nothing is learnt without them."""
        name = str(request["ClusterName"])
        found = next(
            (
                cluster
                for cluster in self._clusters.values()
                if name in (cluster.settings.name, cluster_arn(self._account, cluster.settings.name))
            ),
            None,
        )
        arn = name if name.startswith("arn:") else cluster_arn(self._account, name)
        caller.authorise(action, arn, {})
        if found is None:
            code = "ResourceNotFound"
            message = f"Cluster with name {name} not found in your account."
            raise ServiceError(code, message, 400)
        return found


def _nodes(cluster: ListedCluster) -> list[Document]:
    return cluster.store.list(NODES).items


def _label(node: Document, name: str) -> str:
    return str((node["metadata"].get("labels") or {}).get(name, ""))


def _row(node: Document) -> dict[str, Any]:
    status = _BUSY.get(health(node)) or ("Running" if is_ready(node) else "Failure")
    message = "" if status == "Running" else health(node)
    launched = datetime.fromisoformat(node["metadata"]["creationTimestamp"]).timestamp()
    return {
        "InstanceGroupName": _label(node, _GROUP),
        "InstanceId": instance_of(node["metadata"]["name"]),
        "InstanceType": _label(node, INSTANCE_TYPE),
        "LaunchTime": launched,
        "InstanceStatus": {"Status": status, **({"Message": message} if message else {})},
    }


def _page(name: str, rows: list[dict[str, Any]], request: Mapping[str, Any]) -> dict[str, object]:
    start = _position(request.get("NextToken"))
    end = start + int(request.get("MaxResults", _PAGE))
    answer: dict[str, object] = {name: rows[start:end]}
    if end < len(rows):
        answer["NextToken"] = base64.b64encode(json.dumps({"position": end}).encode()).decode()
    return answer


def _position(token: str | None) -> int:
    if not token:
        return 0
    try:
        return int(json.loads(base64.b64decode(token, validate=True))["position"])
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        message = "The token is not from an answer of this call."
        raise invalid(message) from error
