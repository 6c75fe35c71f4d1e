"""The defaults of a stack, for fields that a spec leaves out."""

from __future__ import annotations

from pydantic import Field

from muster.contract.document import StoredDocument
from muster.contract.errors import Problem, StatedProblem
from muster.contract.spec.backend_rules import rules_for
from muster.contract.spec.rank_spec import uses_training_jobs
from muster.contract.spec.replica_access import ReplicaAccess
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.training.clusters import Cluster
from muster.contract.training.network_access import VpcConfig
from muster.contract.training.values import Image, InstanceType, KmsKeyId, TagKey, TagValue


class StackDefaults(StoredDocument):
    """The defaults of a deployment, and what its replicas may reach.

    A value of the spec comes first; only tags are merged with the stack's.
    """

    image: Image | None = None
    instance_type: InstanceType | None = None
    vpc_config: VpcConfig | None = None
    kms_key_id: KmsKeyId | None = None
    tags: dict[TagKey, TagValue] = Field(default_factory=dict)
    access: ReplicaAccess | None = Field(default=None, description="none: not known")
    clusters: tuple[Cluster, ...] | None = Field(default=None, description="the HyperPod clusters; none: it has none")

    def problems(self, spec: Spec, replica_role: str, *, deployed: bool = True) -> list[Problem]:
        """What a job needs and neither the spec nor the stack has; `replica_role` is the stack's.

        `deployed`: these are the defaults of a stack; otherwise its clusters are not known.
        """
        problems: list[Problem] = []
        if self.access is not None:
            problems += [*self.access.role_problems(spec, replica_role), *self.access.secret_problems(spec)]
        for rules in rules_for(spec) if deployed else ():
            problems += rules.place_problems(spec, self.clusters or ())
        if spec.image or self.image or spec.algorithm_name:
            return problems
        statement = "the spec sets none and the stack has no default"
        remedy = "set image, or set replicas.image in muster.toml and deploy the stack"
        return [StatedProblem("image", statement, remedy), *problems]

    def complete(self, spec: Spec) -> Spec:
        """The spec with the defaults written out.

        Raises:
            SpecError: a default does not fit the spec (a fallback that is the default type, too many tags).
        """
        update = {
            "image": self._image(spec),
            "instance_type": self._instance_type(spec),
            "vpc_config": spec.vpc_config or (self.vpc_config if uses_training_jobs(spec) else None),
            "tags": {**self.tags, **spec.tags},
        }
        completed = spec.model_copy(update={name: value for name, value in update.items() if value})
        if self.kms_key_id is not None and uses_training_jobs(spec):
            completed = _encrypted(completed, self.kms_key_id)
        for rules in rules_for(spec) if self.clusters else ():
            completed = rules.placed(completed, self.clusters or ())
        # model_copy validates nothing, so the merged document is read as if the user had written it.
        return completed if completed == spec else parse_spec(completed.model_dump(mode="json", exclude_unset=True))

    def _image(self, spec: Spec) -> str | None:
        return spec.image or (self.image if spec.algorithm_name is None else None)

    def _instance_type(self, spec: Spec) -> str | None:
        return spec.instance_type or (self.instance_type if spec.instance_preferences is None else None)


def _encrypted(spec: Spec, key: str) -> Spec:
    """The spec with `key` for its volumes, where SageMaker takes a key, and for its results."""
    volume = spec.volume_kms_key_id or (None if spec.refuses_volume_key else key)
    output = spec.output_data_config
    return spec.model_copy(
        update={
            **({"volume_kms_key_id": volume} if volume else {}),
            "output_data_config": output.model_copy(update={"kms_key_id": output.kms_key_id or key}),
        }
    )
