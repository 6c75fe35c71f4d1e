"""The fields of a spec, with the limits of each and what follows from them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue, ValidationInfo, field_validator

from muster.contract import names
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.backend import Backend
from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.contract.spec.elastic import Elastic
from muster.contract.spec.hook import HOOKED, Hook, hooked_kwargs, hooked_program
from muster.contract.spec.metric_sinks import MetricSinks
from muster.contract.spec.places import Places
from muster.contract.spec.policies import ContinuationPolicy, OnEarlyFinish, OnReplicaFailure, Rendezvous
from muster.contract.spec.recipe_reference import RecipeReference
from muster.contract.spec.retry_budget import DEFAULT_BUDGETS, Budget
from muster.contract.spec.run_limits import LimitFields
from muster.contract.spec.watch_rules import Watch
from muster.contract.training.algorithm_specification import AlgorithmFields
from muster.contract.training.cluster_fields import HyperPod
from muster.contract.training.data_and_output import StorageFields
from muster.contract.training.model_source import ModelFields, ModelPackageFields
from muster.contract.training.network_access import AccessFields
from muster.contract.training.observation import ObservationFields
from muster.contract.training.overrides import Overrides
from muster.contract.training.resources import ResourceFields
from muster.contract.training.source_channels import SourceFields
from muster.contract.training.stopping_condition import TimeFields
from muster.contract.training.values import LINE, Argument, EnvironmentKey, EnvironmentValue, TagKey, TagValue, Wording

RESERVED_TAGS = 6  # of CreateTrainingJob's 50
RESERVED_ENVIRONMENT = 8  # of its 100 entries; Muster's begin with MUSTER_
ENVIRONMENT_MAX = 100 - RESERVED_ENVIRONMENT
PLACED_ENVIRONMENT_MAX = ENVIRONMENT_MAX - 1
"""Jobs of a run with places have one variable more of Muster's."""
_SWEPT_MAX = 50

STORED = {"stored": True}
"""The validation context of a spec that a plan holds: it was accepted, perhaps by another version of Muster.

Rules between fields that came later do not apply to it, and failure classes that this version does not know are left
out. So the limits of a single field may only be widened; whatever is to be refused from now on is a rule in
consistency.py.
"""

_SweptName = Annotated[
    str, Field(min_length=1, max_length=512, pattern=LINE), Wording("a name or a path such as kwargs.learning_rate")
]


class SpecFields(
    LimitFields,
    AlgorithmFields,
    SourceFields,
    StorageFields,
    ResourceFields,
    TimeFields,
    AccessFields,
    ObservationFields,
    ModelPackageFields,
    ModelFields,
):
    """What a spec says, each field right by itself: the rules in consistency.py say what fits together.

    The base classes hold the fields of a training job (`muster/contract/training`); the fields here are those of a run.
    """

    name: Annotated[
        str | None,
        Field(max_length=names.RUN_MAX, pattern=r"^[a-zA-Z0-9](-?[a-zA-Z0-9])*$"),
        Wording("letters, digits and single hyphens between them"),
    ] = Field(default=None, description="the run's name")
    replicas: int = Field(
        ge=1,
        le=names.REPLICAS_MAX,
        description="how many replicas train together, or `{min: 2, start: 8, max: 32}`: a number that changes while "
        "they train",
    )
    elastic: Elastic | None = Field(
        default=None, description="how replicas come and go; its `min` and `start` may stand in `replicas`"
    )
    places: Places | None = Field(
        default=None,
        description="the regions and accounts in which replicas run: fixed shares such as `{oregon: 4, tokyo: 4}`, or "
        "a ladder of what is tried one after the other; none: the stack's own region",
    )
    trainer: Annotated[
        str | None,
        Field(max_length=256, pattern=r"^[a-zA-Z_]\w*(\.[a-zA-Z_]\w*)*:[a-zA-Z_]\w*$"),
        Wording("package.module:function"),
    ] = Field(default=None, description="the function that trains, as `package.module:function`")
    backend: Backend = Field(
        default=Backend.TRAINING_JOB,
        strict=False,
        description="where replicas run: `training-job`, or `hyperpod`, a cluster of the stack's settings",
    )
    hyperpod: HyperPod | None = Field(default=None, description="the jobs of replicas whose backend is `hyperpod`")
    kwargs: dict[str, JsonValue] = Field(
        default_factory=dict, description="the trainer's keyword arguments; with `hook` the algorithm's settings"
    )
    recipe: RecipeReference | None = Field(
        default=None,
        description="a SageMaker recipe: the path or URI of a file, or a mapping of where it is and what replaces its "
        "values. `muster launch` resolves it, fills in the fields that are left out, and keeps its name and digest",
    )
    entrypoint: list[Argument] | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="the container's program, instead of a trainer (ContainerEntrypoint)",
    )
    arguments: list[Argument] = Field(
        default_factory=list, max_length=100, description="the entrypoint's arguments (ContainerArguments)"
    )
    hook: Hook | None = Field(
        default=None,
        description="the library whose Trainer gets Muster's callback in the entrypoint, an unmodified Python program",
    )
    environment: dict[EnvironmentKey, EnvironmentValue] = Field(
        default_factory=dict,
        max_length=ENVIRONMENT_MAX,
        description="environment of the container. For a secret write where it is, which the container reads when it "
        "starts: `secretsmanager:NAME`, `secretsmanager:NAME#key` or `ssm:/path/name`",
    )
    tags: dict[TagKey, TagValue] = Field(
        default_factory=dict, max_length=50 - RESERVED_TAGS, description="tags of every training job"
    )
    overrides: Overrides = Field(
        default_factory=dict, description="different values for some ranks, by ranks such as `0-3` or `0,2,8-11`"
    )
    sweep: Annotated[dict[_SweptName, list[JsonValue]], Field(max_length=_SWEPT_MAX)] = Field(
        default_factory=dict,
        description="values by rank, such as `kwargs.learning_rate: [0.1, 0.2]`; names without `kwargs.`, "
        "`hyper_parameters.` or `environment.` are values of the recipe. The replicas of a sweep train apart",
    )
    reruns: dict[FailureClass, Budget] = Field(
        default_factory=dict, description="retry budget per failure class; classes left out keep their default"
    )
    on_replica_failure: OnReplicaFailure = Field(
        default=OnReplicaFailure.TERMINATE,
        strict=False,
        description="what the loss of a replica means for the run; with `sweep` the default is `continue`",
    )
    min_replicas: int | None = Field(
        default=None,
        ge=1,
        le=names.REPLICAS_MAX,
        description="with `continue`: how many replicas must be able to succeed; default all, with `sweep` one",
    )
    on_early_finish: OnEarlyFinish = Field(
        default=OnEarlyFinish.CONTINUE,
        strict=False,
        description="what follows when a trainer returns while other replicas train on: `continue`: they go on "
        "without it; `stop`: they end after their next round",
    )
    rendezvous: Rendezvous = Field(default_factory=Rendezvous, description="how long replicas wait for each other")
    checkpoints: CheckpointTiers | None = Field(
        default=None, description="how often replicas save their inner state between two rounds; none: never"
    )
    watch: Watch = Field(default_factory=Watch, description="rules that watch the training, and what follows")
    metrics: MetricSinks = Field(
        default_factory=MetricSinks, description="where metrics go beside the log, the status and the page"
    )
    continuation_policy: ContinuationPolicy | None = Field(
        default=None, alias="continue", description="whether a failed run gets a continuation"
    )
    resume_from: Annotated[
        str | None,
        Field(max_length=names.RUN_MAX, pattern=r"^[a-zA-Z0-9](-?[a-zA-Z0-9])*$"),
        Wording("a run's name"),
    ] = Field(default=None, description="a run that has ended, which this run continues from its last committed round")

    @field_validator("reruns", mode="before")
    @classmethod
    def _class_names(cls, value: object, info: ValidationInfo) -> object:
        # A strict model takes no text for an enum; the keys of a document are always text.
        if not isinstance(value, dict):
            return value
        known = {item.value: item for item in DEFAULT_BUDGETS}
        if info.context == STORED:
            return {known[key]: budget for key, budget in value.items() if key in known}
        return {known.get(key, key) if isinstance(key, str) else key: budget for key, budget in value.items()}

    @property
    def has_trainer(self) -> bool:
        """Whether Muster's replica runs the program: only then are there rounds, and the rules of `watch`."""
        return self.trainer is not None or self.hook is not None

    @property
    def trains_apart(self) -> bool:
        """Whether each replica has rounds of its own: those of a sweep with a trainer."""
        return bool(self.sweep) and self.has_trainer

    @property
    def called(self) -> tuple[str | None, dict[str, JsonValue]]:
        """The function that a replica calls, and its keyword arguments; of a hooked program, the one that runs it."""
        program = None if self.hook is None else hooked_program(self.entrypoint or [""], self.arguments)
        if self.hook is None or program is None:
            return self.trainer, self.kwargs
        return HOOKED, hooked_kwargs(self.hook, program, self.kwargs)

    @property
    def instance_types(self) -> tuple[str, ...]:
        """Every type on which a replica may run, the first choice first."""
        own = super().instance_types
        return own if self.places is None else self.places.instance_types(own)

    @property
    def alternatives(self) -> int:
        """How many choices Muster tries one after the other: types, or the rungs of a ladder."""
        rungs = 0 if self.places is None else len(self.places.ladder)
        return rungs or super().alternatives

    @property
    def has_spot(self) -> bool:
        """Whether some rank runs on spot instances."""
        rungs = () if self.places is None else self.places.ladder
        return self.spot or any(part.spot for part in (*self.overrides.values(), *rungs))

    @property
    def quorum(self) -> int:
        """How many replicas must be able to succeed for the run to continue."""
        return self.min_replicas if self.min_replicas is not None else self.replicas

    @property
    def min_participants(self) -> int:
        """How many contributions make a round."""
        return 1 if self.sweep else self.rendezvous.min_participants or self.quorum

    def budget(self, failure_class: FailureClass) -> Budget:
        """The retry budget for a class: the spec's, else the default."""
        return self.reruns.get(failure_class, DEFAULT_BUDGETS[failure_class])
