"""Jobs and their pods: what cannot run, what the server fills in, and how long a pod has to end."""

from __future__ import annotations

from collections.abc import Sequence

from muster.options.hyperpod.local.kubernetes.objects.resource import Rules
from muster.options.hyperpod.local.kubernetes.objects.status_errors import Document, Problem

DEFAULT_GRACE_SECONDS = 30
_ENDED = ("Succeeded", "Failed")


class JobRules(Rules):
    """The embedded operator runs one replicaSpec."""

    def problems(self, new: Document) -> Sequence[Problem]:
        """Further replicaSpecs."""
        if len((new.get("spec") or {}).get("replicaSpecs") or ()) <= 1:
            return ()
        return [Problem("spec.replicaSpecs", "FieldValueInvalid", "Too many: the embedded operator runs one")]


class PodRules(Rules):
    """The rules of pods."""

    def prepare(self, new: Document) -> None:
        """Defaults of the spec, as far as something here reads them; a new pod is Pending."""
        spec = new["spec"]
        for name, value in (
            ("restartPolicy", "Always"),
            ("serviceAccountName", "default"),
            ("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS),
        ):
            if spec.get(name) is None:
                spec[name] = value
        for container in spec["containers"]:
            resources = container.setdefault("resources", {})
            if limits := resources.get("limits"):
                # A limit without a request is the request, too.
                resources["requests"] = {**limits, **(resources.get("requests") or {})}
        new["status"] = {"phase": "Pending"}

    def grace(self, document: Document, asked: int | None) -> int:
        """The grace that was asked for, or the pod's own; a pod that does not run needs none."""
        if not document["spec"].get("nodeName") or document["status"].get("phase") in _ENDED:
            return 0
        return int(document["spec"]["terminationGracePeriodSeconds"] if asked is None else asked)
