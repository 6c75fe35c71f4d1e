"""The events of a HyperPod cluster on the bus, as AWS's reference of them shows: source aws.sagemaker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from muster.options.hyperpod.contract.wake_events import CLUSTER_EVENT, NODE_HEALTH

SOURCE = "aws.sagemaker"

Put = Callable[[str, str, Mapping[str, object], str], None]
"""(source, detail type, detail, resource): Host.put_event."""


@dataclass(frozen=True)
class ClusterEvents:
    """Publishes the events of one cluster."""

    put: Put
    name: str
    arn: str
    group: str

    @property
    def region(self) -> str:
        """Where it is."""
        return self.arn.split(":")[3]

    def node_health(self, instance: str, *, healthy: bool, why: str, repair: str, recommendation: str) -> None:
        """The health of a node has changed."""
        self._put(
            NODE_HEALTH,
            {
                "ClusterName": self.name,
                "ClusterArn": self.arn,
                "InstanceId": instance,
                "Tags": {},
                "HealthSummary": {
                    "HealthStatus": "Healthy" if healthy else "Unhealthy",
                    "HealthStatusReason": why,
                    "RepairAction": repair,
                    "Recommendation": recommendation,
                },
            },
        )

    def instance(self, instance: str, description: str) -> None:
        """Something was done with an instance (clusters with NodeProvisioningMode Continuous)."""
        self._put(
            CLUSTER_EVENT,
            {
                "EventDetails": {
                    "EventId": str(uuid.uuid4()),
                    "ClusterArn": self.arn,
                    "ClusterName": self.name,
                    "InstanceGroupName": self.group,
                    "InstanceId": instance,
                    "ResourceType": "Instance",
                    "EventTime": round(time.time() * 1000),
                    "EventLevel": "Info",
                    "Description": description,
                    "EventDetails": {"EventMetadata": {"Instance": {}}},
                }
            },
        )

    def _put(self, kind: str, detail: Mapping[str, object]) -> None:
        self.put(SOURCE, kind, detail, self.arn)
