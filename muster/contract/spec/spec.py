"""The spec: what a user writes, as YAML, as JSON or as the input of the execution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, field_validator, model_validator

from muster.contract import names
from muster.contract.aws.failures import FailureClass
from muster.contract.document import Document
from muster.contract.errors import Problem
from muster.contract.run.workflow_history import HISTORY_MAX, RERUN_EVENTS_MAX, rerun_events
from muster.contract.spec.run_limits import LimitFields
from muster.contract.training.access import AccessFields
from muster.contract.training.algorithm_specification import AlgorithmFields
from muster.contract.training.channels import CHANNELS_MAX, channel_problems
from muster.contract.training.data_and_output import StorageFields
from muster.contract.training.observation import ObservationFields
from muster.contract.training.overrides import Override, Overrides, override_of, rank_problems
from muster.contract.training.resources import DEFAULT_INSTANCE_TYPE, ResourceFields, has_own_disks
from muster.contract.training.source_channels import SourceFields
from muster.contract.training.stopping_condition import TimeFields
from muster.contract.training.values import Argument, EnvironmentKey, EnvironmentValue, Says, TagKey, TagValue

# Step Functions: the input of an execution and of a task has at most 262,144 bytes; the rest is for the names that
# the workflow puts beside the spec.
SPEC_BYTES_MAX = 260_000
DEPTH_MAX = 64  # of nesting: far below where a JSON parser gives up
RESERVED_ENVIRONMENT = 8  # of CreateTrainingJob's 100 entries; ours begin with MUSTER_
RESERVED_TAGS = 6  # of CreateTrainingJob's 50
ENVIRONMENT_MAX = 100 - RESERVED_ENVIRONMENT


JITTER = 0.25  # of a wait, at most, is added to it


class OnReplicaFailure(StrEnum):
    """What the loss of a replica (failed and out of budget) means for the run."""

    TERMINATE = "terminate"
    CONTINUE = "continue"


class Budget(Document):
    """How often attempts that ended in one class are replaced, and after what wait."""

    max_reruns: int = Field(ge=0, le=names.ATTEMPT_MAX - 1, description="reruns for this class, per replica")
    delay_seconds: int = Field(default=0, ge=0, le=86_400, description="wait before the first of them")
    max_delay_seconds: int = Field(default=3_600, ge=0, le=86_400, description="each further wait doubles, up to this")

    def longest_delays(self) -> Iterator[float]:
        """The wait before each rerun in seconds, with all the jitter that it may get."""
        for spent in range(self.max_reruns):
            yield (1 + JITTER) * self.delay(spent)

    def delay(self, spent: int) -> int:
        """Seconds to wait before the rerun after `spent` earlier ones: doubling, bounded."""
        if self.delay_seconds == 0:
            return 0
        # 2**17 * 1 s is past the largest bound; beyond it the exponent only costs time.
        return int(min(self.max_delay_seconds, self.delay_seconds * 2 ** min(spent, 17)))


# Every class that can be rerun; what Muster itself has stopped is not.
DEFAULT_BUDGETS: dict[FailureClass, Budget] = {
    FailureClass.CAPACITY: Budget(max_reruns=20, delay_seconds=60, max_delay_seconds=1_800),
    FailureClass.QUOTA: Budget(max_reruns=20, delay_seconds=120, max_delay_seconds=1_800),
    FailureClass.THROTTLE: Budget(max_reruns=20, delay_seconds=5, max_delay_seconds=300),
    FailureClass.SPOT: Budget(max_reruns=20, delay_seconds=60, max_delay_seconds=1_800),
    FailureClass.INFRASTRUCTURE: Budget(max_reruns=5),
    FailureClass.USER_CODE: Budget(max_reruns=0),
    FailureClass.TIMEOUT: Budget(max_reruns=0),
    FailureClass.STOPPED_BY_USER: Budget(max_reruns=0),
    FailureClass.INVALID_REQUEST: Budget(max_reruns=0),
    FailureClass.UNKNOWN: Budget(max_reruns=1, delay_seconds=60),
}


class Rendezvous(Document):
    """How patient the replicas are with each other."""

    min_participants: int | None = Field(
        default=None,
        ge=1,
        le=names.REPLICAS_MAX,
        description="contributions that make a round; default min_replicas",
    )
    grace_seconds: float = Field(
        default=30.0,
        ge=0,
        le=86_400,
        description="how long the others are waited for once there are enough, at most: it adapts to the rounds seen",
    )
    timeout_seconds: float = Field(
        default=3_600.0,
        gt=0,
        le=604_800,
        description="how long a replica waits for a round before it gives up",
    )
    snapshot_rounds: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="every how many rounds the global state is stored and the rounds before it deleted",
    )


RerunCause = Literal[
    "failed",
    "capacity",
    "quota",
    "throttle",
    "spot",
    "infrastructure",
    "user-code",
    "timeout",
    "stopped-by-user",
    "invalid-request",
    "unknown",
]


class Rerun(Document):
    """After which failed runs another one goes on from the last committed round, and how often."""

    on: list[RerunCause] = Field(
        min_length=1, description="what a lost replica may have ended with; `failed`: whatever it was"
    )
    max: int = Field(ge=1, le=names.RERUNS_MAX, description="runs after the first, at most")


class Spec(
    LimitFields,
    AlgorithmFields,
    SourceFields,
    StorageFields,
    ResourceFields,
    TimeFields,
    AccessFields,
    ObservationFields,
):
    """One run: what every replica executes, on what, and what its failures mean.

    What concerns a training job stands in the parts that it is made of; here stands what makes a run of them.
    """

    name: Annotated[
        str | None,
        Field(max_length=names.RUN_MAX, pattern=r"^[a-zA-Z0-9](-?[a-zA-Z0-9])*$"),
        Says("letters, digits and single hyphens between them"),
    ] = Field(default=None, description="the run's name")
    replicas: int = Field(ge=1, le=names.REPLICAS_MAX, description="how many replicas train together")
    trainer: Annotated[
        str | None,
        Field(max_length=256, pattern=r"^[a-zA-Z_]\w*(\.[a-zA-Z_]\w*)*:[a-zA-Z_]\w*$"),
        Says("write package.module:function"),
    ] = Field(default=None, description="the function that trains, as `package.module:function`")
    kwargs: dict[str, JsonValue] = Field(default_factory=dict, description="the trainer's keyword arguments")
    entrypoint: list[Argument] | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="the container's own program, instead of a trainer (ContainerEntrypoint)",
    )
    arguments: list[Argument] = Field(
        default_factory=list, max_length=100, description="the entrypoint's arguments (ContainerArguments)"
    )
    environment: dict[EnvironmentKey, EnvironmentValue] = Field(
        default_factory=dict, max_length=ENVIRONMENT_MAX, description="environment of the container"
    )
    tags: dict[TagKey, TagValue] = Field(
        default_factory=dict, max_length=50 - RESERVED_TAGS, description="tags of every training job"
    )
    overrides: Overrides = Field(
        default_factory=dict, description="what some ranks have differently, by ranks like `0-3` or `0,2,8-11`"
    )
    reruns: dict[FailureClass, Budget] = Field(
        default_factory=dict, description="budget per failure class; classes left out keep their default"
    )
    on_replica_failure: OnReplicaFailure = Field(
        default=OnReplicaFailure.TERMINATE, description="what the loss of a replica means for the run"
    )
    min_replicas: int | None = Field(
        default=None,
        ge=1,
        le=names.REPLICAS_MAX,
        description="with `continue`: how many must be able to succeed; default all",
    )
    rendezvous: Rendezvous = Field(default_factory=Rendezvous, description="how patient replicas are")
    rerun: Rerun | None = Field(default=None, description="whether a failed run is followed by another one")
    resume_from: Annotated[
        str | None,
        Field(max_length=names.RUN_MAX, pattern=r"^[a-zA-Z0-9](-?[a-zA-Z0-9])*$"),
        Says("a run's name"),
    ] = Field(default=None, description="a run that has ended: go on from its last committed round")

    @field_validator("reruns", mode="before")
    @classmethod
    def _class_names(cls, value: Any) -> Any:
        # A strict model takes no text for an enum; the keys of a document are always text.
        if not isinstance(value, dict):
            return value
        known = {item.value: item for item in DEFAULT_BUDGETS}
        return {known.get(key, key) if isinstance(key, str) else key: budget for key, budget in value.items()}

    @field_validator("on_replica_failure", mode="before")
    @classmethod
    def _policy_name(cls, value: Any) -> Any:
        known = {item.value: item for item in OnReplicaFailure}
        return known.get(value, value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _members_agree(self) -> Spec:
        problems = list(self._disagreements())
        if problems:
            raise DisagreementError(problems)
        return self

    def _disagreements(self) -> Iterator[Problem]:
        yield from self._program_problems()
        yield from self._membership_problems()
        parts = (self, *map(self._overridden, self.overrides.values()))
        yield from self.limit_problems(self.replicas, (name for part in parts for name in part.instance_types))
        yield from self.algorithm_problems()
        yield from self.source_problems(
            self.input_data_config, self.entrypoint, algorithm=self.algorithm_name is not None
        )
        yield from self.storage_problems(trainer=self.trainer is not None)
        yield from self.resource_problems(spot=self.spot)
        yield from self.time_problems(spot=self._has_spot)
        access = self.training_image_config
        yield from self.access_problems(
            private_registry=access is not None and access.training_repository_access_mode == "Vpc"
        )
        yield from self.observation_problems()
        yield from self._channel_problems(self, "input_data_config")
        for failure_class, budget in self.reruns.items():
            if budget.max_delay_seconds < budget.delay_seconds:
                allowed = f"at least delay_seconds ({budget.delay_seconds})"
                field = f"reruns.{failure_class}.max_delay_seconds"
                yield Problem(field, str(budget.max_delay_seconds), "raise it", allowed)
        yield from self._history_problems()
        yield from _reserved_names(self.environment, "environment")
        for key in self.tags:
            if key.casefold().startswith(("muster:", "aws:")):
                remedy = "choose one that begins with neither aws: nor muster:"
                yield Problem(f"tags.{key}", "a reserved key", remedy)
        yield from self._override_problems()

    def _history_problems(self) -> Iterator[Problem]:
        """Every rerun, and every piece of its wait, takes history of the replica's workflow."""
        budgets = [self.budget(failure_class) for failure_class in DEFAULT_BUDGETS]
        events = sum(rerun_events(delay) for budget in budgets for delay in budget.longest_delays())
        if events > RERUN_EVENTS_MAX:
            found = f"waits and reruns that take {events:,} history events if all are used up"
            allowed = f"at most {RERUN_EVENTS_MAX:,} of the {HISTORY_MAX:,} that a workflow may have"
            yield Problem("reruns", found, "lower max_reruns or max_delay_seconds", allowed)

    def _program_problems(self) -> Iterator[Problem]:
        if self.trainer is None and self.entrypoint is None and self.algorithm_name is None:
            remedy = "name the function to call, as package.module:function"
            yield Problem("trainer", "neither trainer nor entrypoint", remedy)
        if self.trainer is not None and self.entrypoint is not None:
            yield Problem("entrypoint", "a trainer as well", "keep one of the two")
        if self.entrypoint is None and self.arguments:
            yield Problem("arguments", "arguments without an entrypoint", "give a trainer its values in kwargs")
        if self.trainer is None and self.kwargs:
            yield Problem("kwargs", "kwargs without a trainer", "give an entrypoint its values in arguments")

    def _membership_problems(self) -> Iterator[Problem]:
        least = self.min_replicas
        if least is not None and least > self.replicas:
            yield Problem("min_replicas", str(least), "lower it", f"at most replicas ({self.replicas})")
        elif least is not None and least < self.replicas and self.on_replica_failure is OnReplicaFailure.TERMINATE:
            found = f"{least} of {self.replicas} while on_replica_failure is terminate"
            yield Problem("min_replicas", found, "set on_replica_failure: continue, or leave min_replicas out")
        members = self.rendezvous.min_participants
        if members is not None and members > self.replicas:
            allowed = f"at most replicas ({self.replicas})"
            yield Problem("rendezvous.min_participants", str(members), "lower it", allowed)

    def _override_problems(self) -> Iterator[Problem]:
        yield from rank_problems(self.overrides, self.replicas)
        for ranks, override in self.overrides.items():
            field = f"overrides.{ranks}"
            yield from _reserved_names(override.environment, f"{field}.environment")
            if override.fallback_instance_types is not None and override.instance_type is None:
                remedy = "name the type that they stand in for"
                yield Problem(f"{field}.fallback_instance_types", "no instance_type", remedy, "only with instance_type")
            merged = self._overridden(override)
            entries = len(merged.environment)
            if entries > ENVIRONMENT_MAX:
                allowed = f"at most {ENVIRONMENT_MAX} entries, the run's own included"
                yield Problem(
                    f"{field}.environment", f"{entries} entries", f"remove {entries - ENVIRONMENT_MAX}", allowed
                )
            channels = len(merged.input_data_config)
            if channels > CHANNELS_MAX:
                allowed = f"at most {CHANNELS_MAX} channels, the run's own included"
                yield Problem(
                    f"{field}.input_data_config", f"{channels} channels", f"remove {channels - CHANNELS_MAX}", allowed
                )
            if override.places:
                for problem in merged.resource_problems(spot=merged.spot):
                    yield Problem(f"{field}.{problem.field}", problem.found, problem.remedy, problem.allowed)
            yield from self._channel_problems(override, f"{field}.input_data_config")

    def _channel_problems(self, part: Spec | Override, field: str) -> Iterator[Problem]:
        vpc = self.vpc_config is not None or part.vpc_config is not None
        return channel_problems(part.input_data_config, self.training_input_mode, field, vpc=vpc)

    def of_rank(self, rank: int) -> Spec:
        """The spec as it holds for one rank: the run's, with the rank's override in it."""
        override = override_of(rank, self.overrides)
        return self if override is None else self._overridden(override)

    def _overridden(self, override: Override) -> Spec:
        update: dict[str, Any] = {
            "environment": {**self.environment, **override.environment},
            "input_data_config": override.channels(self.input_data_config),
            "overrides": {},
            "spot": self.spot if override.spot is None else override.spot,
            "training_plan_arn": override.training_plan_arn or self.training_plan_arn,
            "vpc_config": override.vpc_config or self.vpc_config,
        }
        if override.instance_type is not None:
            update |= {
                "instance_type": override.instance_type,
                "fallback_instance_types": override.fallback_instance_types or [],
                "instance_preferences": None,
            }
            # The run's key is for those of its replicas that have a volume.
            if all(map(has_own_disks, [override.instance_type, *update["fallback_instance_types"]])):
                update["volume_kms_key_id"] = None
        return self.model_copy(update=update)

    def resolved(self) -> Spec:
        """The spec with every default written out, so that a later version's defaults change nothing in it."""
        rendezvous = self.rendezvous.model_copy(update={"min_participants": self.min_participants})
        instance_type = self.instance_type or (None if self.instance_preferences else DEFAULT_INSTANCE_TYPE)
        return self.model_copy(
            update={
                "reruns": {failure_class: self.budget(failure_class) for failure_class in DEFAULT_BUDGETS},
                "min_replicas": self.quorum,
                "instance_type": instance_type,
                "max_wait_seconds": (self.max_wait_seconds or self.max_runtime_seconds) if self._has_spot else None,
                "rendezvous": rendezvous,
            }
        )

    @property
    def _has_spot(self) -> bool:
        """Whether some rank is on spot."""
        return self.spot or any(override.spot for override in self.overrides.values())

    @property
    def quorum(self) -> int:
        """How many replicas must be able to succeed for the run to go on."""
        return self.min_replicas if self.min_replicas is not None else self.replicas

    @property
    def min_participants(self) -> int:
        """How many contributions make a round."""
        return self.rendezvous.min_participants or self.quorum

    def budget(self, failure_class: FailureClass) -> Budget:
        """The budget for a class: the spec's, else the default."""
        return self.reruns.get(failure_class, DEFAULT_BUDGETS[failure_class])


def _reserved_names(environment: Iterable[str], field: str) -> Iterator[Problem]:
    for key in environment:
        if key.startswith("MUSTER_"):
            yield Problem(f"{field}.{key}", "a reserved name", "choose one that does not begin with MUSTER_")


class DisagreementError(ValueError):
    """Carries problems between fields through pydantic, which reports one error per validator."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("fields disagree")
