"""The spec: what a user writes, as YAML, as JSON or as the input of the execution."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, JsonValue, field_validator, model_validator

from muster.contract import names
from muster.contract.document import Document
from muster.contract.errors import Problem
from muster.contract.failures import FailureClass

# Step Functions: the input of an execution and of a task has at most 262,144 bytes; the rest is for the names that
# the workflow puts beside the spec.
SPEC_BYTES_MAX = 260_000
DEPTH_MAX = 64  # of nesting: far below where a JSON parser gives up
RESERVED_ENVIRONMENT = 8  # of CreateTrainingJob's 100 entries; ours begin with MUSTER_
RESERVED_TAGS = 6  # of CreateTrainingJob's 50
MAX_RUNTIME_SECONDS = 2_419_200  # CreateTrainingJob: MaxRuntimeInSeconds, 28 days, all retries together

# CreateTrainingJob: Environment has keys of [a-zA-Z_]\w*, keys and values of at most 512 characters.
EnvironmentKey = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=512)]
EnvironmentValue = Annotated[str, Field(max_length=512)]
# CreateTrainingJob: Tags have keys of 1-128 and values of at most 256 characters.
TagKey = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$")]
TagValue = Annotated[str, Field(max_length=256, pattern=r"^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$")]
# CreateTrainingJob: an item of ContainerEntrypoint or ContainerArguments has 1-256 characters on one line.
Argument = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\r\n]*$")]


class OnReplicaFailure(StrEnum):
    """What the loss of a replica (failed and out of budget) means for the run."""

    TERMINATE = "terminate"
    CONTINUE = "continue"


class Budget(Document):
    """How often attempts that ended in one class are replaced, and after what wait."""

    max_reruns: int = Field(ge=0, le=names.ATTEMPT_MAX - 1, description="reruns for this class, per replica")
    delay_seconds: int = Field(default=0, ge=0, le=86_400, description="wait before the first of them")
    max_delay_seconds: int = Field(default=3_600, ge=0, le=86_400, description="each further wait doubles, up to this")


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


class Spec(Document):
    """One run: what every replica executes, on what, and what its failures mean."""

    name: str | None = Field(
        default=None,
        max_length=names.RUN_MAX,
        pattern=r"^[a-zA-Z0-9](-?[a-zA-Z0-9])*$",
        description="the run's name",
    )
    replicas: int = Field(ge=1, le=names.REPLICAS_MAX, description="how many replicas train together")
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=255,
        pattern=r"^\S+$",
        description="container image; default the stack's",
    )
    trainer: str | None = Field(
        default=None,
        max_length=256,
        pattern=r"^[a-zA-Z_]\w*(\.[a-zA-Z_]\w*)*:[a-zA-Z_]\w*$",
        description="the function that trains, as `package.module:function`",
    )
    kwargs: dict[str, JsonValue] = Field(default_factory=dict, description="the trainer's keyword arguments")
    entrypoint: list[Argument] | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="the container's own program, instead of a trainer",
    )
    arguments: list[Argument] = Field(default_factory=list, max_length=100, description="the entrypoint's arguments")
    instance_type: str = Field(
        default="ml.m5.xlarge", pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$", description="SageMaker instance type"
    )
    volume_gb: int = Field(default=30, ge=1, le=65_536, description="storage volume of each instance, GiB")
    max_runtime_seconds: int = Field(
        default=86_400, ge=1, le=MAX_RUNTIME_SECONDS, description="limit of one attempt, restarts included"
    )
    spot: bool = Field(default=False, description="managed spot training")
    max_wait_seconds: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RUNTIME_SECONDS,
        description="limit of runtime and waiting for spot together",
    )
    environment: dict[EnvironmentKey, EnvironmentValue] = Field(
        default_factory=dict,
        max_length=100 - RESERVED_ENVIRONMENT,
        description="environment of the container",
    )
    tags: dict[TagKey, TagValue] = Field(
        default_factory=dict, max_length=50 - RESERVED_TAGS, description="tags of every training job"
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

    @field_validator("reruns", mode="before")
    @classmethod
    def _class_names(cls, value: Any) -> Any:
        # A strict model takes no text for an enum; the keys of a document are always text.
        if not isinstance(value, dict):
            return value
        known = {item.value: item for item in FailureClass}
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
        if self.max_wait_seconds is not None and not self.spot:
            yield Problem("max_wait_seconds", "a wait without spot", "set spot: true or leave it out")
        if self.max_wait_seconds is not None and self.max_wait_seconds < self.max_runtime_seconds:
            remedy = f"at least max_runtime_seconds ({self.max_runtime_seconds}): it includes the runtime"
            yield Problem("max_wait_seconds", str(self.max_wait_seconds), remedy)
        for failure_class, budget in self.reruns.items():
            if budget.max_delay_seconds < budget.delay_seconds:
                remedy = f"at least delay_seconds ({budget.delay_seconds})"
                yield Problem(f"reruns.{failure_class}.max_delay_seconds", str(budget.max_delay_seconds), remedy)
        for key in self.environment:
            if key.startswith("MUSTER_"):
                yield Problem(f"environment.{key}", "a reserved name", "choose one that does not begin with MUSTER_")
        for key in self.tags:
            if key.casefold().startswith(("muster:", "aws:")):
                yield Problem(f"tags.{key}", "a reserved key", "choose one that begins with neither aws: nor muster:")

    def _program_problems(self) -> Iterator[Problem]:
        if self.trainer is None and self.entrypoint is None:
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
            yield Problem("min_replicas", str(least), f"at most replicas ({self.replicas})")
        elif least is not None and least < self.replicas and self.on_replica_failure is OnReplicaFailure.TERMINATE:
            found = f"{least} of {self.replicas} while on_replica_failure is terminate"
            yield Problem("min_replicas", found, "set on_replica_failure: continue, or leave min_replicas out")
        members = self.rendezvous.min_participants
        if members is not None and members > self.replicas:
            yield Problem("rendezvous.min_participants", str(members), f"at most replicas ({self.replicas})")

    def resolved(self) -> Spec:
        """The spec with every default written out, so that a later version's defaults change nothing in it."""
        rendezvous = self.rendezvous.model_copy(update={"min_participants": self.min_participants})
        return self.model_copy(
            update={
                "reruns": {failure_class: self.budget(failure_class) for failure_class in FailureClass},
                "min_replicas": self.quorum,
                "max_wait_seconds": (self.max_wait_seconds or self.max_runtime_seconds) if self.spot else None,
                "rendezvous": rendezvous,
            }
        )

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


class DisagreementError(ValueError):
    """Carries problems between fields through pydantic, which reports one error per validator."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        super().__init__("fields disagree")
