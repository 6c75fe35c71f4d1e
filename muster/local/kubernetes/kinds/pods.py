"""Pods: what the server fills in, what may change after they were made, and how long they have to end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from muster.local.kubernetes.objects.resource import Resource, Rules
from muster.local.kubernetes.objects.status_errors import Document, Problem, forbidden_field

DEFAULT_GRACE_SECONDS = 30
_ENDED = ("Succeeded", "Failed")
_PULL_ALWAYS = ("", "latest")


class PodRules(Rules):
    """The rules of pods."""

    def prepare(self, new: Document, old: Document | None) -> None:
        """Defaults of the spec; a new pod is Pending."""
        spec = new.setdefault("spec", {})
        if isinstance(spec, dict):
            default_pod_spec(spec)
        if old is None:
            new["status"] = {"phase": "Pending", "qosClass": _quality(spec)}

    def problems(self, new: Document, old: Document | None) -> Sequence[Problem]:
        """A pod's spec stays as it was made, except for images and a few fields."""
        return [] if old is None else list(_changes(new["spec"], old["spec"]))

    def grace(self, document: Document, asked: int | None) -> int:
        """The grace that was asked for, or the pod's own; a pod that does not run needs none."""
        if not document["spec"].get("nodeName") or document.get("status", {}).get("phase") in _ENDED:
            return 0
        own = document["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
        return int(own if asked is None else asked)


def default_pod_spec(spec: Document) -> None:
    """Fill in what a kube-apiserver fills in."""
    for name, value in (
        ("restartPolicy", "Always"),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
        ("serviceAccountName", "default"),
        ("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS),
        ("securityContext", {}),
        ("enableServiceLinks", True),
    ):
        if spec.get(name) is None:
            spec[name] = value
    spec["serviceAccount"] = spec["serviceAccountName"]
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or []:
            if isinstance(container, dict):
                _default_container(container)


def _default_container(container: Document) -> None:
    _, _, tag = str(container.get("image", "")).rpartition("/")[2].partition(":")
    for name, value in (
        (
            "imagePullPolicy",
            "Always" if tag in _PULL_ALWAYS and "@" not in str(container.get("image")) else "IfNotPresent",
        ),
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
        ("resources", {}),
    ):
        if container.get(name) is None:
            container[name] = value
    resources = container["resources"]
    if isinstance(resources, dict) and isinstance(limits := resources.get("limits"), dict):
        # A limit without a request is the request, too.
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def _quality(spec: Any) -> str:
    containers = spec.get("containers") or [] if isinstance(spec, dict) else []
    limits = [container.get("resources", {}).get("limits") or {} for container in containers]
    requests = [container.get("resources", {}).get("requests") or {} for container in containers]
    if not any(limits) and not any(requests):
        return "BestEffort"
    fixed = all(
        name in limit and request.get(name) == limit[name]
        for limit, request in zip(limits, requests, strict=True)
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if fixed else "Burstable"


def _changes(new: Document, old: Document) -> Iterator[Problem]:
    if _frozen(new) != _frozen(old):
        yield forbidden_field(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
            "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        )


def _frozen(spec: Document) -> Document:
    """A spec without what may change: images, the deadline, tolerations, and the node of a pod that has none yet."""
    frozen = {name: value for name, value in spec.items() if name not in ("activeDeadlineSeconds", "tolerations")}
    for name in ("containers", "initContainers"):
        if name in frozen:
            frozen[name] = [{**container, "image": ""} for container in frozen[name]]
    return frozen


PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    has_status=True,
    rules=PodRules(),
)
