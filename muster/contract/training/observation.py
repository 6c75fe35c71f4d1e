"""Debugger, profiler, TensorBoard, experiments and MLflow: the tools that observe a replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from muster.contract.document import Document
from muster.contract.errors import Problem
from muster.contract.training.values import (
    Image,
    InstanceType,
    Name,
    ParameterKey,
    ParameterValue,
    Path,
    S3Uri,
    Section,
    Wording,
)

_ExperimentEntity = Annotated[
    str,
    Field(min_length=1, max_length=120, pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,119}$"),
    Wording("letters, digits and hyphens between them"),
]
_Parameters = dict[ParameterKey, ParameterValue]


class CollectionConfiguration(Section):
    """Tensors that Debugger saves together."""

    collection_name: Name | None = Field(default=None, description="the collection")
    collection_parameters: Annotated[_Parameters | None, Field(max_length=20)] = Field(
        default=None, description="its parameters"
    )


class DebugHookConfig(Section):
    """Where Debugger saves tensors."""

    s3_output_path: S3Uri = Field(description="prefix; each job gets a folder below it")
    local_path: Path | None = Field(default=None, description="the container's directory")
    hook_parameters: Annotated[_Parameters | None, Field(max_length=20)] = Field(
        default=None, description="the hook's parameters"
    )
    collection_configurations: list[CollectionConfiguration] | None = Field(
        default=None, max_length=20, description="the tensors to save"
    )


class RuleConfiguration(Section):
    """A rule that Debugger or the profiler checks, in a processing job beside the replica's."""

    rule_configuration_name: Name = Field(description="its name, unique in the list")
    rule_evaluator_image: Image = Field(description="the image that checks it")
    local_path: Path | None = Field(default=None, description="the directory of its output")
    s3_output_path: S3Uri | None = Field(default=None, description="prefix of its output")
    instance_type: InstanceType | None = Field(default=None, description="instance of a custom rule, which is billed")
    volume_size_in_gb: Annotated[int | None, Field(ge=0, le=65_536)] = Field(
        default=None, description="its volume, GiB"
    )
    rule_parameters: Annotated[_Parameters | None, Field(max_length=100)] = Field(
        default=None, description="its parameters"
    )


class ProfilerConfig(Section):
    """System and framework metrics."""

    s3_output_path: S3Uri | None = Field(default=None, description="prefix of the metrics")
    # ProfilerConfig: the available values, in milliseconds.
    profiling_interval_in_milliseconds: Literal[100, 200, 500, 1_000, 5_000, 60_000] | None = Field(
        default=None, description="interval of the system metrics"
    )
    profiling_parameters: Annotated[_Parameters | None, Field(max_length=20)] = Field(
        default=None, description="framework profiling"
    )
    disable_profiler: bool | None = Field(default=None, description="turns the profiler off")


class TensorBoardOutputConfig(Section):
    """Where TensorBoard's files go."""

    s3_output_path: S3Uri = Field(description="prefix; each job gets a folder below it")
    local_path: Path | None = Field(default=None, description="the container's directory")


class ExperimentConfig(Section):
    """SageMaker Experiments."""

    experiment_name: _ExperimentEntity | None = Field(default=None, description="an existing experiment")
    trial_name: _ExperimentEntity | None = Field(default=None, description="an existing trial")
    trial_component_display_name: _ExperimentEntity | None = Field(default=None, description="display name of each job")
    run_name: _ExperimentEntity | None = Field(default=None, description="the experiment's run")


class MlflowConfig(Section):
    """SageMaker's managed MLflow."""

    mlflow_resource_arn: Annotated[
        str,
        Field(
            max_length=2_048,
            pattern=r"^arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:mlflow-[a-zA-Z-]*/[^\n\r\u0085\u2028\u2029]*$",
        ),
        Wording("arn:aws:sagemaker:region:123456789012:mlflow-tracking-server/name"),
    ] = Field(description="the tracking server or app")
    mlflow_experiment_name: Name | None = Field(default=None, description="the experiment")
    mlflow_run_name: Name | None = Field(default=None, description="the run")


class ObservationFields(Document):
    """The tools that observe a replica."""

    debug_hook_config: DebugHookConfig | None = Field(default=None, description="Debugger: the tensors to save")
    debug_rule_configurations: list[RuleConfiguration] = Field(
        default_factory=list, max_length=20, description="Debugger: the rules to check"
    )
    profiler_config: ProfilerConfig | None = Field(default=None, description="system and framework metrics")
    profiler_rule_configurations: list[RuleConfiguration] = Field(
        default_factory=list, max_length=20, description="profiler: the rules to check"
    )
    tensor_board_output_config: TensorBoardOutputConfig | None = Field(
        default=None, description="where TensorBoard's files go"
    )
    experiment_config: ExperimentConfig | None = Field(default=None, description="SageMaker Experiments")
    mlflow_config: MlflowConfig | None = Field(default=None, description="SageMaker's managed MLflow")

    def observation_problems(self) -> Iterator[Problem]:
        """Problems between the rules."""
        for field in ("debug_rule_configurations", "profiler_rule_configurations"):
            counts = Counter(rule.rule_configuration_name for rule in getattr(self, field))
            for name, count in counts.items():
                if count > 1:
                    yield Problem(field, f"{count} rules named {name!r}", "rename all but one", "names must be unique")
