"""What a spec says of pods in the words of Kubernetes: it goes into the job as it is, as far as it is allowed.

The functions create jobs with rights that the starter of a run need not have. So nothing is allowed that gives a pod
rights on its node, or that changes what Muster relies on in a pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.cluster_fields import HyperPod
from muster.options.hyperpod.contract.job_schema import member_problems

POD_MEMBERS = (
    *("affinity", "imagePullSecrets", "priorityClassName", "runtimeClassName", "schedulerName", "securityContext"),
    *("tolerations", "topologySpreadConstraints"),
)
CONTAINER_MEMBERS = ("envFrom", "imagePullPolicy", "securityContext")
VOLUME_SOURCES = ("configMap", "emptyDir", "ephemeral", "secret")
_NODE_RIGHTS = (
    *("privileged", "allowPrivilegeEscalation", "procMount", "seLinuxOptions", "appArmorProfile", "sysctls"),
    "windowsOptions",
)
_CAPABILITIES = frozenset({"IPC_LOCK"})  # for RDMA


def fragment_problems(asked: HyperPod, where: str) -> Iterator[Problem]:
    """What a pod may not have, and what the schema of HyperPodPyTorchJob refuses."""
    yield from _member_problems(asked.pod, "Spec", POD_MEMBERS, f"{where}.pod")
    yield from _member_problems(asked.container, "Containers", CONTAINER_MEMBERS, f"{where}.container")
    for index, volume in enumerate(asked.volumes):
        yield from _member_problems(volume.source or {}, "Volumes", VOLUME_SOURCES, f"{where}.volumes.{index}.source")
    for field, members in (("pod", asked.pod), ("container", asked.container)):
        context = members.get("securityContext")
        for name in _node_rights(context) if isinstance(context, dict) else ():
            statement = "it gives the pod rights on its node"
            yield StatedProblem(f"{where}.{field}.securityContext.{name}", statement, "leave it out")


def _member_problems(
    members: Mapping[str, JsonValue], definition: str, allowed: tuple[str, ...], where: str
) -> Iterator[Problem]:
    for name, value in members.items():
        if name not in allowed:
            listed = ", ".join(allowed)
            yield Problem(f"{where}.{name}", "not allowed here", "leave it out", listed)
            continue
        for problem in member_problems(definition, name, value, f"{where}.{name}"):
            yield StatedProblem(problem.path, problem.statement, "write it as Kubernetes does")


def _node_rights(context: Mapping[str, JsonValue]) -> Iterator[str]:
    yield from (name for name in _NODE_RIGHTS if context.get(name))
    capabilities, seccomp = context.get("capabilities"), context.get("seccompProfile")
    added = capabilities.get("add") if isinstance(capabilities, dict) else None
    if isinstance(added, list) and not _CAPABILITIES.issuperset(map(str, added)):
        yield "capabilities.add"
    if isinstance(seccomp, dict) and seccomp.get("type") != "RuntimeDefault":
        yield "seccompProfile"
