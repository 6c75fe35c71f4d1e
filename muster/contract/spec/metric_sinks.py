"""Where the metrics of the replicas go, beside their logs and the run's page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.algorithm_specification import METRIC_DEFINITIONS_MAX, MetricDefinition
from muster.contract.training.values import ONE_LINE, Wording

METRIC_NAME = r"[A-Za-z_][A-Za-z0-9_./-]{0,47}"
"""The names that a trainer can give to its metrics."""
METRIC_NAME_WORDS = "letters, digits and _ . / -, with a letter or _ at the beginning"

_Line = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\n\r\u0085\u2028\u2029]+$"), ONE_LINE]
MetricName = Annotated[str, Field(max_length=48, pattern=rf"^{METRIC_NAME}$"), Wording(METRIC_NAME_WORDS)]
_ARN = "arn:"


class MlflowSink(Document):
    """An MLflow tracking server."""

    tracking_uri: Annotated[
        str,
        # Without a user and a password before an @: a spec is no place for them.
        Field(max_length=2_048, pattern=r"^(https?://[^@\s]+|arn:aws[a-z\-]*:sagemaker:[^@\s]+)$"),
        Wording(
            "https://host, http://host, or the ARN of SageMaker's managed MLflow, without a password",
            "give passwords and tokens in the variables that MLflow reads, in the image or from the trainer's module",
        ),
    ] = Field(description="the server's address, or the ARN of SageMaker's managed MLflow")
    experiment: _Line = Field(default="muster", description="the experiment; created where it is missing")

    @property
    def is_managed(self) -> bool:
        """Whether SageMaker runs the server."""
        return self.tracking_uri.startswith(_ARN)


class WandbSink(Document):
    """Weights & Biases."""

    project: Annotated[
        str, Field(min_length=1, max_length=128, pattern=r"^[^/\\#?%:\n\r\u0085\u2028\u2029]+$"), ONE_LINE
    ] = Field(description="the project")
    entity: _Line | None = Field(default=None, description="the team or user; default that of the API key")
    mode: Literal["offline", "online"] = Field(
        default="offline",
        description="`offline`: files beside the checkpoints, for `wandb sync`; `online`: needs WANDB_API_KEY in the "
        "container",
    )


class MetricSinks(Document):
    """Where metrics go; by default nowhere beside the log, `muster status` and the page."""

    tensorboard: bool = Field(default=False, description="write TensorBoard's files beside the checkpoints")
    mlflow: MlflowSink | None = Field(default=None, description="log to an MLflow tracking server")
    wandb: WandbSink | None = Field(default=None, description="log to Weights & Biases")
    cloudwatch: list[MetricName] = Field(
        default_factory=list,
        max_length=METRIC_DEFINITIONS_MAX,
        description="names of metrics that SageMaker reads from the log and sends to CloudWatch",
    )

    @property
    def definitions(self) -> list[MetricDefinition]:
        """What makes SageMaker read the metrics from the lines `name=value name=value`."""
        return [MetricDefinition(name=name, regex=_regex(name)) for name in self.cloudwatch]

    def problems(self, own: Sequence[MetricDefinition], *, trainer: bool) -> Iterator[Problem]:
        """Problems with the rest of the spec, whose own metric definitions are `own`."""
        if not trainer and self != MetricSinks():
            remedy = "leave it out, and let the program write its metrics itself"
            yield StatedProblem("metrics", "set without trainer", remedy)
        counts = Counter([*self.cloudwatch, *(metric.name for metric in own)])
        for name in dict.fromkeys(self.cloudwatch):
            if counts[name] > 1:
                found = f"{name!r} is there {counts[name]} times, with those of metric_definitions"
                yield StatedProblem("metrics.cloudwatch", found, "leave out all but one")
        if (total := len(self.cloudwatch) + len(own)) > METRIC_DEFINITIONS_MAX:
            allowed = f"SageMaker allows {METRIC_DEFINITIONS_MAX} together with metric_definitions"
            yield Problem("metrics.cloudwatch", f"{total} metrics", "name fewer", allowed)


def _regex(name: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in "./-" else letter for letter in name)
    return rf"(?:^|\s){escaped}=(\S+)"
