"""What wakes react about jobs on clusters: HyperPod's own events. Anything in them may be malformed or forged."""

from __future__ import annotations

from collections.abc import Mapping

from muster.contract.answer_values import mapping_of

NODE_HEALTH, CLUSTER_EVENT = "SageMaker HyperPod Cluster Node Health Event", "SageMaker HyperPod Cluster Event"
CLUSTER_EVENTS = (NODE_HEALTH, CLUSTER_EVENT, "SageMaker HyperPod Cluster State Change")
"""The types of HyperPod's events that may be about the nodes of a job."""
_NAME_MAX = 63


def is_of_cluster(event: Mapping[str, object]) -> bool:
    """Whether an event of EventBridge is one of HyperPod about a cluster."""
    return event.get("source") == "aws.sagemaker" and event.get("detail-type") in CLUSTER_EVENTS


def cluster_of(event: Mapping[str, object]) -> str | None:
    """The name of the HyperPod cluster that such an event is about."""
    detail = mapping_of(event.get("detail"))
    inner = mapping_of(detail.get("EventDetails"))
    for part in (detail, inner, mapping_of(inner.get("EventMetadata"))):
        name = part.get("ClusterName")
        if isinstance(name, str) and 0 < len(name) <= _NAME_MAX:
            return name
    return None
