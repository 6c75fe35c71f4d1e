"""What a pod asks of its node: accelerators, EFA interfaces, CPU and memory.

As AWS's own clients do, a pod with all accelerators of its node asks for all that the node has for pods, and one with a
part of them for the same part. So Kueue counts an instance as one, and no other pod of a job lands on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import JsonValue

from muster.contract.aws.cluster_instances import EFA, ClusterInstance, accelerator_resource, cluster_instance
from muster.contract.errors import Problem, StatedProblem
from muster.contract.hyperpod.cluster_fields import HyperPod


def pod_resources(asked: HyperPod, instance_type: str, *, several: bool) -> dict[str, JsonValue]:
    """The `resources` of the container; `several`: the job may have more than one pod, which talk to each other.

    Kubernetes takes no other limit than the request for accelerators and EFA. Memory has the same limit, so that the
    node's other pods are not the ones that pay for it; CPU has none.
    """
    instance = cluster_instance(instance_type)
    share = _share(asked, instance)
    devices: dict[str, JsonValue] = {}
    accelerators = asked.accelerators if asked.accelerators is not None else instance and instance.accelerators
    if accelerators:
        devices[accelerator_resource(instance_type)] = accelerators
    efa = asked.efa if asked.efa is not None else math.floor(instance.efa * share) if instance and several else 0
    if efa:
        devices[EFA] = efa
    requests, limits = dict(devices), dict(devices)
    vcpu = asked.vcpu if asked.vcpu is not None else instance and instance.free_vcpu * share
    if vcpu:
        requests["cpu"] = f"{max(1, math.floor(vcpu * 1_000))}m"
    memory = asked.memory_gib if asked.memory_gib is not None else instance and instance.free_memory_gib * share
    if memory:
        requests["memory"] = limits["memory"] = f"{max(1, math.floor(memory * 1_024))}Mi"
    return {name: values for name, values in (("requests", requests), ("limits", limits)) if values}


def resource_problems(asked: HyperPod, instance_types: tuple[str, ...]) -> Iterator[Problem]:
    """What no node of these types has."""
    for name in instance_types:
        instance = cluster_instance(name)
        if instance is None:
            if asked.accelerators is None:
                statement = f"missing, and what a node of type {name} has is not known to this version of Muster"
                yield StatedProblem("hyperpod.accelerators", statement, "write how many each pod needs; 0 for none")
            continue
        most = {
            "accelerators": (asked.accelerators, instance.accelerators),
            "efa": (asked.efa, instance.efa),
            "vcpu": (asked.vcpu, instance.free_vcpu),
            "memory_gib": (asked.memory_gib, instance.free_memory_gib),
        }
        for field, (wanted, there) in most.items():
            if wanted is not None and wanted > there:
                allowed = f"{name} has {math.floor(there * 10) / 10:g} for pods"
                yield Problem(f"hyperpod.{field}", f"{wanted:g}", "lower it, or choose another instance_type", allowed)


def _share(asked: HyperPod, instance: ClusterInstance | None) -> float:
    """The part of its node that a pod has."""
    if instance is None or not instance.accelerators or asked.accelerators is None:
        return 1.0
    return min(1.0, asked.accelerators / instance.accelerators) or 1.0
