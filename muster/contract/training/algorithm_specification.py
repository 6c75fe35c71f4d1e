"""AlgorithmSpecification and HyperParameters: the container, and the settings of its algorithm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.values import HyperParameterKey, HyperParameterValue, Image, RequestPart, Section, Wording

HYPER_PARAMETERS_MAX = 100
"""CreateTrainingJob: HyperParameters has at most so many entries."""
METRIC_DEFINITIONS_MAX = 40
"""AlgorithmSpecification: MetricDefinitions has at most so many items."""

InputMode = Literal["File", "FastFile", "Pipe"]


class TrainingRepositoryAuthConfig(Section):
    """The login at a private registry."""

    training_repository_credentials_provider_arn: Annotated[
        str,
        Field(
            min_length=1,
            max_length=2_048,
            pattern=r"^arn:[a-zA-Z0-9\-]+:lambda:[a-zA-Z0-9\-]+:[0-9]{12}:function:[^\n\r\u0085\u2028\u2029]*$",
        ),
        Wording("arn:aws:lambda:region:123456789012:function:name"),
    ] = Field(description="the function that returns the registry's credentials")


class TrainingImageConfig(Section):
    """How SageMaker reaches the image."""

    training_repository_access_mode: Literal["Platform", "Vpc"] = Field(
        description="`Vpc`: the image is in a private registry that can be reached only from the VPC"
    )
    training_repository_auth_config: TrainingRepositoryAuthConfig | None = Field(
        default=None, description="the login at the registry"
    )


class MetricDefinition(Section):
    """A metric that SageMaker reads from the replica's log."""

    name: Annotated[
        str,
        Field(min_length=1, max_length=255, pattern=r"^[^\n\r\u0085\u2028\u2029]+$"),
        Wording("one line, without a line break"),
    ] = Field(description="the metric's name in CloudWatch")
    regex: Annotated[
        str,
        Field(min_length=1, max_length=500, pattern=r"^[^\n\r\u0085\u2028\u2029]+$"),
        Wording("one line, without a line break"),
    ] = Field(description="regular expression whose group is the value")


class AlgorithmFields(Document):
    """The container: its image or algorithm, its input, and the metrics that are read from its log."""

    image: Image | None = Field(default=None, description="container image (TrainingImage); default the stack's")
    algorithm_name: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=170,
            pattern=r"^(arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:[a-z\-]*/)?[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$",
        ),
        Wording("an algorithm's name (at most 63 letters, digits and hyphens between them) or its ARN"),
    ] = Field(default=None, description="an algorithm resource of the account, instead of an image")
    training_image_config: TrainingImageConfig | None = Field(
        default=None, description="access to an image in a private registry"
    )
    training_input_mode: InputMode = Field(default="File", description="the input mode of channels that set none")
    hyper_parameters: dict[HyperParameterKey, HyperParameterValue] = Field(
        default_factory=dict,
        max_length=HYPER_PARAMETERS_MAX,
        description="what the algorithm reads in hyperparameters.json",
    )
    metric_definitions: list[MetricDefinition] = Field(
        default_factory=list,
        max_length=METRIC_DEFINITIONS_MAX,
        description="metrics that SageMaker reads from the log",
    )
    enable_sage_maker_metrics_time_series: bool | None = Field(
        default=None, description="keep the metrics as time series; default SageMaker's"
    )

    def algorithm_problems(self) -> Iterator[Problem]:
        """Problems between the fields of the algorithm."""
        if self.algorithm_name is not None and self.image is not None:
            yield StatedProblem("algorithm_name", "set together with image", "leave one of the two out")
        access = self.training_image_config
        if access and access.training_repository_auth_config and access.training_repository_access_mode != "Vpc":
            field = "training_image_config.training_repository_access_mode"
            yield Problem(field, "'Platform'", "write Vpc", "training_repository_auth_config requires Vpc")
        for index, metric in enumerate(self.metric_definitions):
            try:
                re.compile(metric.regex)
            except re.error as error:
                field = f"metric_definitions.{index}.regex"
                yield Problem(field, repr(metric.regex), "correct it", f"not a valid regular expression: {error}")

    def algorithm_request(
        self, entrypoint: list[str] | None, arguments: list[str], further: list[MetricDefinition]
    ) -> RequestPart:
        """AlgorithmSpecification. With `entrypoint` None the container runs its own program.

        `further`: metrics that are read from the log beside those of `metric_definitions`.
        """
        members: RequestPart = {
            "TrainingImage": self.image,
            "AlgorithmName": self.algorithm_name,
            "TrainingInputMode": self.training_input_mode,
            "ContainerEntrypoint": entrypoint,
            "ContainerArguments": arguments or None,
            "TrainingImageConfig": self.training_image_config and self.training_image_config.request(),
            "MetricDefinitions": [metric.request() for metric in (*self.metric_definitions, *further)] or None,
            "EnableSageMakerMetricsTimeSeries": self.enable_sage_maker_metrics_time_series,
        }
        return {name: value for name, value in members.items() if value is not None}
