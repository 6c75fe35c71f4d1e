"""What the operator sees of a pod, and the pods that it makes. Pure."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from muster.options.hyperpod.contract.object_identity import API_VERSION, KIND
from muster.options.hyperpod.local.node import HOSTNAME, name_of
from muster.options.hyperpod.local.operator.job_view import JobView, ObjectView

JOB_LABEL = "HPJob"


class PodView(ObjectView):
    """A pod of a job."""

    @property
    def index(self) -> int:
        """Its number, at the end of its name."""
        return int(self.name.rpartition("-")[2])

    @property
    def node(self) -> str:
        """Its node; empty while it has none."""
        return str(self.document["spec"].get("nodeName") or "")

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded, Failed."""
        return str(self.status.get("phase", "Pending"))

    @property
    def address(self) -> str:
        """Its address; empty before it runs."""
        return str(self.status.get("podIP") or "")

    @property
    def runs(self) -> bool:
        """Whether its container runs."""
        return self.phase == "Running" and not self.deleting

    @property
    def end_words(self) -> str:
        """How its container has ended."""
        for container in self.status.get("containerStatuses") or ():
            end = container["state"].get("terminated")
            if end is not None:
                said = f": {end['message']}" if end.get("message") else ""
                return f"{end['reason']}{said}, exit code: {end['exitCode']}"
        return f"{self.status.get('reason', 'Unknown')}: {self.status.get('message', '')}".rstrip(": ")


def new_pod(view: JobView, index: int, avoid: Sequence[str]) -> dict[str, Any]:
    """The pod of a number. `avoid`: instances on which it must not run."""
    template = copy.deepcopy(view.template)
    metadata = template.get("metadata") or {}
    spec = template.get("spec") or {}
    # A container that ends is the operator's to judge; the kubelet must not start it again.
    spec.setdefault("restartPolicy", "Never")
    if avoid:
        _keep_away(spec, avoid)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{view.name}-{view.replica_name}-{index}",
            "namespace": view.namespace,
            "labels": {**(metadata.get("labels") or {}), JOB_LABEL: view.name},
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": view.name,
                    "uid": view.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def _keep_away(spec: dict[str, Any], avoid: Sequence[str]) -> None:
    rule = {"key": HOSTNAME, "operator": "NotIn", "values": [name_of(instance) for instance in avoid]}
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]})
    for term in required["nodeSelectorTerms"]:
        term.setdefault("matchExpressions", []).append(rule)
