"""What is recorded of an attempt's job on a cluster: its place, its instances, and how often it was restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from muster.contract.backend import Backend
from muster.contract.document import StoredPart
from muster.contract.training.cluster_fields import HyperPod

if TYPE_CHECKING:
    from muster.contract.spec.spec import Spec


class ClusterJob(StoredPart):
    """An attempt's job on a cluster. What the control plane has seen of it last."""

    cluster: str = Field(description="the HyperPod cluster; empty while only the stack knows it")
    namespace: str = Field(default="", description="the namespace; empty until a job has been launched")
    queue: str | None = Field(default=None, description="Kueue's local queue")
    priority: str | None = Field(default=None, description="its priority class in Kueue")
    instances: int | None = Field(
        default=None, ge=0, description="how many train now, or trained last; none while that is not known"
    )
    least: int | None = Field(default=None, ge=1, description="of an elastic replica: its fewest instances")
    most: int | None = Field(default=None, ge=1, description="of an elastic replica: its most instances")
    spares: int = Field(default=0, ge=0, description="pods that wait to replace one that is lost")
    restarts: int = Field(default=0, ge=0, description="how often the operator has started its pods again")

    @classmethod
    def of(cls, spec: Spec) -> ClusterJob | None:
        """The job of a rank whose planned spec is `spec`, before anything is seen of it; None for a training job."""
        if spec.backend is not Backend.HYPERPOD:
            return None
        asked = spec.hyperpod or HyperPod()
        elastic = asked.elastic
        return cls(
            cluster=asked.cluster or "",
            namespace=asked.namespace or "",
            queue=asked.queue,
            priority=asked.priority,
            least=elastic.min_instances if elastic else None,
            most=elastic.max_instances if elastic else None,
            spares=asked.spares,
        )

    @property
    def is_elastic(self) -> bool:
        """Whether the operator may change its instances."""
        return self.least is not None
