"""ResourceConfig: the instance of a replica, and what to take where there is none of its type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from muster.contract.document import Document
from muster.contract.errors import Problem
from muster.contract.training.section import Section
from muster.contract.training.values import InstanceType, KmsKeyId, Says, TrainingPlanArn

DEFAULT_INSTANCE_TYPE = "ml.m5.xlarge"
KEEP_ALIVE_MAX_SECONDS = 3_600  # ResourceConfig, documentation of warm pools (the model has 21,600)
FALLBACKS_MAX = 10
# EC2, "SSD instance store volumes": families of the training types whose disks are the instance's own.
_INSTANCE_STORE = frozenset(
    {"c5d", "g4dn", "g5", "g6", "g6e", "gr6", "m5d", "m6id", "p3dn", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200"}
    | {"r5d", "trn1", "trn1n", "trn2"}
)


def has_own_disks(instance_type: str) -> bool:
    """Whether SageMaker refuses a key for the volume: the type's hardware encrypts disks of its own."""
    return instance_type.split(".")[1] in _INSTANCE_STORE


InstanceCount = Annotated[
    int,
    Field(ge=1, le=1),
    Says(remedy="a replica is one instance, and replicas share no network: raise `replicas` instead"),
]


class InstancePreference(Section):
    """One of the types among which SageMaker chooses by capacity."""

    instance_type: InstanceType = Field(description="SageMaker instance type")
    training_plan_arns: Annotated[list[TrainingPlanArn] | None, Field(min_length=1, max_length=1)] = Field(
        default=None, description="the training plan that reserves this type"
    )


class ResourceFields(Document):
    """The instance and its disk."""

    instance_type: InstanceType | None = Field(
        default=None, description=f"SageMaker instance type; default {DEFAULT_INSTANCE_TYPE}"
    )
    fallback_instance_types: list[InstanceType] = Field(
        default_factory=list,
        max_length=FALLBACKS_MAX,
        description="taken in turn by the next attempt after one that found no capacity or no quota",
    )
    instance_preferences: Annotated[list[InstancePreference] | None, Field(min_length=1, max_length=5)] = Field(
        default=None, description="types among which SageMaker itself chooses by capacity; needs quota for each"
    )
    instance_count: InstanceCount = Field(default=1, description="instances of one replica: always 1")
    volume_gb: int = Field(
        default=30, ge=1, le=65_536, description="storage volume of each instance, GiB (VolumeSizeInGB)"
    )
    volume_kms_key_id: KmsKeyId | None = Field(
        default=None, description="key of the volume; left out on types whose disks are their own"
    )
    keep_alive_period_in_seconds: Annotated[
        int | None, Field(ge=0, le=KEEP_ALIVE_MAX_SECONDS), Says(remedy="its quota, warm pools per type, starts at 0")
    ] = Field(default=None, description="how long the instance is kept warm for the next attempt, billed")
    training_plan_arn: TrainingPlanArn | None = Field(
        default=None, description="the training plan that reserves the instances"
    )

    @property
    def instance_types(self) -> tuple[str, ...]:
        """Every type on which a replica may come to run, the first choice first."""
        if self.instance_preferences is not None:
            return tuple(preference.instance_type for preference in self.instance_preferences)
        return (self.instance_type or DEFAULT_INSTANCE_TYPE, *self.fallback_instance_types)

    @property
    def alternatives(self) -> int:
        """How many types Muster tries in turn; among preferences SageMaker chooses by itself."""
        return 1 if self.instance_preferences is not None else len(self.instance_types)

    def resource_problems(self, *, spot: bool) -> Iterator[Problem]:
        """How the fields of the instance disagree."""
        for field, types in (
            ("fallback_instance_types", self.instance_types if self.instance_preferences is None else ()),
            ("instance_preferences", self.instance_types if self.instance_preferences is not None else ()),
        ):
            for name, count in Counter(types).items():
                if count > 1:
                    yield Problem(
                        field,
                        f"{name} {count} times",
                        "leave it out once it is there",
                        "each type once, instance_type included",
                    )
        if self.instance_preferences is not None:
            yield from self._preference_problems(spot=spot)
        if self.keep_alive_period_in_seconds and spot:
            yield Problem(
                "keep_alive_period_in_seconds",
                "spot: true",
                "leave one of the two out",
                "warm pools hold on-demand instances only",
            )
        own_disks = [name for name in self.instance_types if has_own_disks(name)]
        # Among preferences SageMaker chooses by itself; of Muster's own choices, some may do without the key.
        refused = bool(own_disks) and (self.instance_preferences is not None or len(own_disks) == self.alternatives)
        if self.volume_kms_key_id is not None and refused:
            allowed = "no key where the disks are the instance's own: its hardware encrypts them"
            yield Problem("volume_kms_key_id", f"instance type {own_disks[0]}", "leave it out", allowed)

    def _preference_problems(self, *, spot: bool) -> Iterator[Problem]:
        """ResourceConfig: with what InstancePreferences is mutually exclusive."""
        others = {
            "instance_type": self.instance_type is not None,
            "fallback_instance_types": bool(self.fallback_instance_types),
            "training_plan_arn": self.training_plan_arn is not None and self._preferred_plans,
            "spot": spot,
        }
        for other, present in others.items():
            if present:
                yield Problem(
                    "instance_preferences", f"{other} as well", "leave one of the two out", f"not together with {other}"
                )

    @property
    def _preferred_plans(self) -> bool:
        return any(preference.training_plan_arns for preference in self.instance_preferences or ())

    def type_after(self, shortages: int) -> str | None:
        """The type asked for after `shortages` attempts that found no capacity or no quota; None: SageMaker chooses."""
        if self.instance_preferences is not None:
            return None
        return self.instance_types[shortages % len(self.instance_types)]

    def resource_request(self, shortages: int) -> dict[str, Any]:
        """ResourceConfig after `shortages` attempts that found no capacity or no quota."""
        instance_type = self.type_after(shortages)
        if instance_type is None:
            preferences = [preference.request() for preference in self.instance_preferences or ()]
            chosen: dict[str, Any] = {"InstancePreferences": preferences}
            own_disks = False
        else:
            chosen, own_disks = {"InstanceType": instance_type}, has_own_disks(instance_type)
        members = {
            **chosen,
            "InstanceCount": self.instance_count,
            "VolumeSizeInGB": self.volume_gb,
            "VolumeKmsKeyId": None if own_disks else self.volume_kms_key_id,
            "KeepAlivePeriodInSeconds": self.keep_alive_period_in_seconds,
            "TrainingPlanArn": self.training_plan_arn,
        }
        return {name: value for name, value in members.items() if value is not None}
