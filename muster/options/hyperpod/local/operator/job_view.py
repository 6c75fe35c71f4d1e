"""What a HyperPodPyTorchJob asks for. Pure; over the document, which stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from muster.options.hyperpod.local.operator.restarts import RestartPolicy

FOREVER = -1


@dataclass(frozen=True)
class ObjectView:
    """What jobs and pods have in common."""

    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.document["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.document["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        """Its uid."""
        return str(self.document["metadata"]["uid"])

    @property
    def status(self) -> Mapping[str, Any]:
        """Its status."""
        status: Mapping[str, Any] = self.document.get("status") or {}
        return status

    @property
    def deleting(self) -> bool:
        """Whether it is being deleted."""
        return bool(self.document["metadata"].get("deletionTimestamp"))


class JobView(ObjectView):
    """A job's document with its defaults. One replicaSpec: the embedded operator refuses several."""

    @cached_property
    def _replica(self) -> Mapping[str, Any]:
        specs = self.document["spec"].get("replicaSpecs") or [{}]
        first: Mapping[str, Any] = specs[0]
        return first

    @cached_property
    def policy(self) -> Mapping[str, Any]:
        """runPolicy."""
        policy: Mapping[str, Any] = self.document["spec"].get("runPolicy") or {}
        return policy

    @cached_property
    def elastic(self) -> Mapping[str, Any] | None:
        """elasticPolicy."""
        policy: Mapping[str, Any] | None = self.document["spec"].get("elasticPolicy")
        return policy

    @property
    def replica_name(self) -> str:
        """The name of the replicaSpec, which is in the names of pods."""
        return str(self._replica.get("name", "pods"))

    @property
    def replicas(self) -> int:
        """The pods with which it starts."""
        return int(self._replica.get("replicas") or 0)

    @property
    def spares(self) -> int:
        """The pods that wait."""
        return int(self._replica.get("spares") or 0)

    @property
    def template(self) -> dict[str, Any]:
        """The pod template."""
        return dict(self._replica.get("template") or {})

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        """The spec of its pods."""
        return self.template.get("spec") or {}

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The numbers of pods with which it may train, rising: one unless it is elastic."""
        policy = self.elastic
        if not policy:
            return (self.replicas,)
        if policy.get("replicaDiscreteValues"):
            found = sorted({int(value) for value in policy["replicaDiscreteValues"]})
        else:
            least = int(policy.get("minReplicas") or self.replicas or 1)
            most = int(policy.get("maxReplicas") or self._replica.get("maxReplicas") or self.replicas)
            found = list(range(least, most + 1, int(policy.get("replicaIncrementStep") or 1)))
        return tuple(found) or (self.replicas,)

    @property
    def keep_seconds(self) -> int:
        """ttlSecondsAfterFinished; the default is 0, and -1 is for ever."""
        return int(self.policy.get("ttlSecondsAfterFinished") or 0)

    @cached_property
    def restart_policy(self) -> RestartPolicy:
        """jobMaxRetryCount and restartPolicy."""
        policy = self.policy.get("restartPolicy") or {}
        return RestartPolicy(
            max_retries=self.policy.get("jobMaxRetryCount"),
            period_seconds=policy.get("evalPeriodSeconds"),
            before_full=policy.get("numRestartBeforeFullJobRestart"),
            max_full=policy.get("maxFullJobRestarts"),
            avoid=int(policy.get("maxNumRepeatOffendersToAvoid") or 0),
            snooze_seconds=int(policy.get("scaleUpSnoozeTimeInSeconds") or 0),
        )

    def condition(self, kind: str) -> Mapping[str, Any] | None:
        """A condition that is True."""
        return next(
            (item for item in self.status.get("conditions") or () if item["type"] == kind and item["status"] == "True"),
            None,
        )

    @property
    def has_ended(self) -> bool:
        """Whether it is Completed or Failed."""
        return self.condition("Completed") is not None or self.condition("Failed") is not None
