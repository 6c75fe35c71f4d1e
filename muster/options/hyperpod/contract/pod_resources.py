"""What a pod asks of its node: accelerators, EFA interfaces, CPU and memory.

As AWS's own clients do, a pod with all accelerators of its node asks for all that the node has for pods, and one with a
part of them for the same part. So Kueue counts an instance as one, and no other pod of a job lands on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import JsonValue

from muster.contract.aws.instance_types import EFA, NVIDIA, ClusterInstance, accelerator_resource, cluster_instance
from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.cluster_fields import HyperPod

_SLICES = 7
"""Of a GPU, which MIG divides."""


def pod_resources(asked: HyperPod, instance_type: str, *, several: bool) -> dict[str, JsonValue]:
    """The `resources` of the container; `several`: the job may have more than one pod, which talk to each other.

    Kubernetes takes no other limit than the request for accelerators and EFA. Memory has the same limit, so that the
    node's other pods are not the ones that pay for it, and CPU has none, unless the spec says otherwise.
    """
    instance = cluster_instance(instance_type)
    share = _share(asked, instance)
    devices: dict[str, JsonValue] = {}
    accelerators = asked.accelerators if asked.accelerators is not None else instance and instance.accelerators
    if asked.partition is not None:
        devices[f"nvidia.com/{asked.partition}"] = asked.accelerators or 1
    elif accelerators:
        devices[accelerator_resource(instance_type)] = accelerators
    efa = asked.efa if asked.efa is not None else math.floor(instance.efa * share) if instance and several else 0
    if efa:
        devices[EFA] = efa
    requests, limits = dict(devices), dict(devices)
    vcpu = asked.vcpu or (instance and _whole(instance.free_vcpu * share, asked.vcpu_limit))
    if vcpu:
        requests["cpu"] = f"{max(1, math.floor(vcpu * 1_000))}m"
    if asked.vcpu_limit:
        limits["cpu"] = f"{max(1, math.floor(asked.vcpu_limit * 1_000))}m"
    memory = asked.memory_gib or (instance and _whole(instance.free_memory_gib * share, asked.memory_limit_gib))
    if memory:
        requests["memory"] = limits["memory"] = f"{max(1, math.floor(memory * 1_024))}Mi"
    if asked.memory_limit_gib:
        limits["memory"] = f"{max(1, math.floor(asked.memory_limit_gib * 1_024))}Mi"
    return {name: values for name, values in (("requests", requests), ("limits", limits)) if values}


def resource_problems(asked: HyperPod, instance_types: tuple[str, ...], where: str) -> Iterator[Problem]:
    """What no node of these types has; `where` is the section of the spec."""
    for name in instance_types:
        instance = cluster_instance(name)
        if instance is None:
            if asked.accelerators is None:
                statement = f"missing, and what a node of type {name} has is not known to this version of Muster"
                yield StatedProblem(f"{where}.accelerators", statement, "write how many each pod needs; 0 for none")
            continue
        if asked.partition is not None and (not instance.accelerators or accelerator_resource(name) != NVIDIA):
            allowed = f"{name} has no GPU that can be divided"
            yield Problem(f"{where}.partition", repr(asked.partition), "leave it out", allowed)
        for field, request in (("vcpu_limit", asked.vcpu), ("memory_limit_gib", asked.memory_gib)):
            limit = getattr(asked, field)
            if limit is not None and request is not None and limit < request:
                yield Problem(f"{where}.{field}", f"{limit:g}", "raise it", f"at least what is asked for, {request:g}")
        most = {
            "accelerators": (asked.accelerators, instance.accelerators * (_SLICES if asked.partition else 1)),
            "efa": (asked.efa, instance.efa),
            "vcpu": (asked.vcpu, instance.free_vcpu),
            "memory_gib": (asked.memory_gib, instance.free_memory_gib),
        }
        for field, (wanted, there) in most.items():
            if wanted is not None and wanted > there:
                allowed = f"{name} has {there} for pods"
                yield Problem(f"{where}.{field}", f"{wanted:g}", "lower it, or choose another instance_type", allowed)


def _whole(share: float, limit: float | None) -> float:
    """A part of a node in whole processors or GiB, as AWS's own clients round it; no more than the limit."""
    return min(max(1, math.floor(share)), math.inf if limit is None else limit)


def _share(asked: HyperPod, instance: ClusterInstance | None) -> float:
    """The part of its node that a pod has."""
    if instance is None or not instance.accelerators:
        return 1.0
    if asked.partition is not None:
        slices = (asked.accelerators or 1) * int(asked.partition.removeprefix("mig-")[0])
        return min(1.0, slices / (instance.accelerators * _SLICES))
    if asked.accelerators is None:
        return 1.0
    return min(1.0, asked.accelerators / instance.accelerators) or 1.0
