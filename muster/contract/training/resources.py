"""ResourceConfig: the instances of a replica, its processes, and the types to try when the first choice is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, PlainValidator
from pydantic_core import PydanticCustomError

from muster.contract.aws.instance_types import has_own_disks
from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.values import InstanceType, KmsKeyId, RequestPart, Section, TrainingPlanArn, Wording

DEFAULT_INSTANCE_TYPE = "ml.m5.xlarge"
KEEP_ALIVE_MAX_SECONDS = 3_600  # ResourceConfig, documentation of warm pools (the model has 21,600)
FALLBACKS_MAX = 10
INSTANCES_MAX = 256  # of one replica; a limit of Muster's. SageMaker's is the account's quota for the type
PROCESSES_MAX = 256  # on one instance
AUTO = "auto"

InstanceCount = Annotated[int, Field(ge=1, le=INSTANCES_MAX)]


def _processes(found: object) -> object:
    if found == AUTO or (isinstance(found, int) and not isinstance(found, bool) and 1 <= found <= PROCESSES_MAX):
        return found
    # One error for the value, not one for each kind of value; `Wording` says what is allowed.
    kind, words = "string_pattern_mismatch", "neither auto nor a number of processes"
    raise PydanticCustomError(kind, words)


Processes = Annotated[
    Literal["auto"] | int,
    PlainValidator(_processes),
    Wording(f"{AUTO}, or a whole number from 1 to {PROCESSES_MAX}", f"write {AUTO} for one process per GPU"),
]


class InstancePreference(Section):
    """One of the types from which SageMaker chooses by capacity."""

    instance_type: InstanceType = Field(description="SageMaker instance type")
    training_plan_arns: Annotated[list[TrainingPlanArn] | None, Field(min_length=1, max_length=1)] = Field(
        default=None, description="the training plan that reserves this type"
    )


class ResourceFields(Document):
    """The instances of a replica, their disks, and the processes on them."""

    instance_type: InstanceType | None = Field(
        default=None, description=f"SageMaker instance type; default {DEFAULT_INSTANCE_TYPE}"
    )
    fallback_instance_types: list[InstanceType] = Field(
        default_factory=list,
        max_length=FALLBACKS_MAX,
        description="types to try in this order, one after each attempt that found no capacity or no quota",
    )
    instance_preferences: Annotated[list[InstancePreference] | None, Field(min_length=1, max_length=5)] = Field(
        default=None, description="types from which SageMaker chooses by capacity; needs quota for each"
    )
    instance_count: InstanceCount = Field(
        default=1, description="instances of each replica, in one training job with a network between them"
    )
    processes: Processes | None = Field(
        default=None,
        description="processes of a trainer on each instance; default `auto`: one per GPU, and one on an instance "
        "without GPUs",
    )
    volume_gb: int = Field(
        default=30, ge=1, le=65_536, description="storage volume of each instance, GiB (VolumeSizeInGB)"
    )
    volume_kms_key_id: KmsKeyId | None = Field(
        default=None, description="key of the volume; not used on types with local disks"
    )
    keep_alive_period_in_seconds: Annotated[
        int | None,
        Field(ge=0, le=KEEP_ALIVE_MAX_SECONDS),
        Wording(remedy="lower it; the quota for warm pools of a type is 0 until you raise it"),
    ] = Field(default=None, description="how long the instance stays warm for the next attempt, which is billed")
    training_plan_arn: TrainingPlanArn | None = Field(
        default=None, description="the training plan that reserves the instances"
    )

    @property
    def instance_types(self) -> tuple[str, ...]:
        """Every type on which a replica may run, the first choice first."""
        if self.instance_preferences is not None:
            return tuple(preference.instance_type for preference in self.instance_preferences)
        return (self.instance_type or DEFAULT_INSTANCE_TYPE, *self.fallback_instance_types)

    @property
    def alternatives(self) -> int:
        """How many types Muster tries one after the other; 1 where SageMaker chooses among preferences."""
        return 1 if self.instance_preferences is not None else len(self.instance_types)

    @property
    def refuses_volume_key(self) -> bool:
        """Whether SageMaker may refuse a key for the volume. Muster leaves it out for a type that takes none."""
        # SageMaker may choose any preference, so all of them must take the key.
        own_disks = map(has_own_disks, self.instance_types)
        return any(own_disks) if self.instance_preferences is not None else all(own_disks)

    def process_problems(self, *, trainer: bool) -> Iterator[Problem]:
        """Problems between the fields of the processes and the rest of the spec."""
        if self.processes is not None and not trainer:
            remedy = "leave it out: an entrypoint starts its processes itself, on every instance"
            yield StatedProblem("processes", "set without trainer", remedy)

    def resource_problems(self, *, spot: bool) -> Iterator[Problem]:
        """Problems between the fields of the instance."""
        for field, types in (
            ("fallback_instance_types", self.instance_types if self.instance_preferences is None else ()),
            ("instance_preferences", self.instance_types if self.instance_preferences is not None else ()),
        ):
            for name, count in Counter(types).items():
                if count > 1:
                    yield Problem(
                        field,
                        f"{name} {count} times",
                        "remove the repetition",
                        "types must be unique, instance_type included",
                    )
        if self.instance_preferences is not None:
            yield from self._preference_problems(spot=spot)
        if self.keep_alive_period_in_seconds and spot:
            yield StatedProblem(
                "keep_alive_period_in_seconds",
                "set together with spot: true",
                "leave one of the two out",
                "warm pools are available only for on-demand instances",
            )
        if self.volume_kms_key_id is not None and self.refuses_volume_key:
            allowed = "the instance's hardware encrypts these disks, and SageMaker accepts no key for them"
            statement = f"set for {next(filter(has_own_disks, self.instance_types))}, which has local disks"
            yield StatedProblem("volume_kms_key_id", statement, "leave it out", allowed)

    def _preference_problems(self, *, spot: bool) -> Iterator[Problem]:
        """ResourceConfig: the members that InstancePreferences excludes."""
        others = {
            "instance_type": self.instance_type is not None,
            "fallback_instance_types": bool(self.fallback_instance_types),
            "training_plan_arn": self.training_plan_arn is not None and self._preferred_plans,
            "spot": spot,
        }
        for other, present in others.items():
            if present:
                yield StatedProblem("instance_preferences", f"set together with {other}", "leave one of the two out")

    @property
    def _preferred_plans(self) -> bool:
        return any(preference.training_plan_arns for preference in self.instance_preferences or ())

    def type_after(self, shortages: int) -> str | None:
        """The type to request after `shortages` attempts without capacity or quota; None: SageMaker chooses."""
        if self.instance_preferences is not None:
            return None
        return self.instance_types[shortages % len(self.instance_types)]

    def resource_request(self, shortages: int) -> RequestPart:
        """ResourceConfig after `shortages` attempts that found no capacity or no quota."""
        instance_type = self.type_after(shortages)
        if instance_type is None:
            preferences = [preference.request() for preference in self.instance_preferences or ()]
            chosen: RequestPart = {"InstancePreferences": preferences}
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
