"""The calls of SageMaker about HyperPod clusters that Muster makes or names: describe one, and list them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from muster.contract.names import CLUSTER_LOG_GROUPS
from muster.local.ministack.host import Account
from muster.local.sagemaker.service_errors import Caller, ServiceError
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from muster.options.hyperpod.local.nodes import Nodes

_ID_CHARACTERS = 12
Operation = Callable[[Any, Any], Mapping[str, object]]


def cluster_id(name: str) -> str:
    """The id at the end of a cluster's ARN and of its log group: always the same for a name."""
    return hashlib.sha256(name.encode()).hexdigest()[:_ID_CHARACTERS]


def cluster_arn(account: Account, name: str) -> str:
    """The ARN of a HyperPod cluster."""
    return account.arn("sagemaker", f"cluster/{cluster_id(name)}")


def log_group(name: str) -> str:
    """The log group of a HyperPod cluster."""
    return f"{CLUSTER_LOG_GROUPS}{name}/{cluster_id(name)}"


class ClusterCalls:
    """The operations on the one cluster of a cloud, by their names."""

    def __init__(self, account: Account, settings: ClusterSettings, nodes: Nodes, group: str) -> None:
        self._account, self._settings, self._nodes, self._group = account, settings, nodes, group
        self._arn = cluster_arn(account, settings.name)
        self._created = time.time()
        self.operations: dict[str, Operation] = {"DescribeCluster": self._describe, "ListClusters": self._list}

    @property
    def _summary(self) -> dict[str, object]:
        return {
            "ClusterArn": self._arn,
            "ClusterName": self._settings.name,
            "ClusterStatus": "InService",
            "CreationTime": self._created,
        }

    def _describe(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, object]:
        asked = str(request["ClusterName"])
        is_there = asked in {self._settings.name, self._arn}
        # Rights come first, so that nothing is learnt without them.
        arn = asked if asked.startswith("arn:") else cluster_arn(self._account, asked)
        caller.authorise("sagemaker:DescribeCluster", arn, {})
        if not is_there:
            code, message = "ResourceNotFound", f"Cluster with name {asked} not found in your account."
            raise ServiceError(code, message, 400)
        group = {
            "CurrentCount": len(self._nodes.all()),
            "TargetCount": self._settings.nodes,
            "InstanceGroupName": self._group,
            "InstanceType": self._settings.node_type,
            "Status": "InService",
        }
        return {
            **self._summary,
            "InstanceGroups": [group],
            "Orchestrator": {
                "Eks": {"ClusterArn": self._account.arn("eks", f"cluster/{self._settings.eks_cluster}")},
            },
            "NodeRecovery": "Automatic",
            "NodeProvisioningMode": "Continuous",
        }

    def _list(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, object]:
        caller.authorise("sagemaker:ListClusters", "*", {})
        is_asked_for = request.get("NameContains", "").lower() in self._settings.name.lower()
        return {"ClusterSummaries": [self._summary] if is_asked_for else []}
