"""What nodes of an instance type have."""

from __future__ import annotations

from muster.contract.aws.cluster_instances import EFA, accelerator_resource, cluster_instance


def capacity_of(instance_type: str) -> dict[str, str]:
    """`status.capacity` of a node of a type that is known."""
    node = cluster_instance(instance_type)
    if node is None:
        raise KeyError(instance_type)
    found = {"cpu": str(node.vcpu), "memory": f"{node.memory_gib}Gi", "pods": "110", "ephemeral-storage": "500Gi"}
    devices = {accelerator_resource(instance_type): node.accelerators, EFA: node.efa}
    return {**found, **{name: str(count) for name, count in devices.items() if count}}
