"""What DescribeTrainingJob says of a job beside its status: figures, verdicts and links that a spec has asked for.

Everything comes from outside, some of it from the user's own program: what has another form is left out, and what is
longer than AWS documents is cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field

from muster.contract import timestamps
from muster.contract.answer_values import count_of, line_of, mapping_of, mappings_of
from muster.contract.document import StoredPart, else_unknown, known_member
from muster.contract.names import JOB_NAME_MAX
from muster.contract.timestamps import Timestamp

if TYPE_CHECKING:
    from muster.contract.spec.spec import Spec

METRICS_MAX = 40  # CreateTrainingJob: MetricDefinitions
_METRIC_NAMES_MAX = 4_096  # characters of the names of one attempt: a record must stay small
_NAME_MAX = 256  # RuleConfigurationName, MlflowExperimentId, MlflowRunId; a metric's name has at most 255
_RULES_MAX = 40  # DebugRuleConfigurations and ProfilerRuleConfigurations: 20 each
_STATUS_MAX = 64
_WORDS_MAX = 300  # StatusDetails has up to 1,024 characters
_ARN_MAX = 2_048


class FinalMetric(StoredPart):
    """The last value of a metric that SageMaker read from the log, with the spec's metric definitions."""

    name: str
    value: float = Field(allow_inf_nan=False)
    at: Timestamp | None = Field(default=None, description="when the program wrote it")


class PoolState(StrEnum):
    """WarmPoolStatus: its values."""

    IN_USE = "InUse"
    AVAILABLE = "Available"
    REUSED = "Reused"
    TERMINATED = "Terminated"
    UNKNOWN = "unknown"  # of a newer SageMaker


class WarmPool(StoredPart):
    """The instances that a job keeps after its end, billed until another job takes them or their time ends."""

    state: Annotated[PoolState, else_unknown(PoolState.UNKNOWN)]
    kept_seconds: int | None = Field(default=None, ge=0, description="billed so far after the job's end, per instance")
    until: Timestamp | None = Field(default=None, description="when it ends, unless a job takes it or it is ended")
    reused_by: str | None = Field(default=None, description="the job that took it")


class RuleVerdict(StoredPart):
    """What a rule of Debugger or the profiler has found in a job."""

    tool: str = Field(description="`debugger` or `profiler`")
    rule: str
    status: str = Field(description="as SageMaker names it, such as `IssuesFound`")
    words: str = Field(default="", description="the details of the status")
    at: Timestamp | None = Field(default=None, description="since when it has this status")

    @property
    def is_final(self) -> bool:
        """Whether the verdict can never change again."""
        return self.status not in {"InProgress", "Stopping"}


class MlflowRun(StoredPart):
    """The run that SageMaker has created on a managed tracking server."""

    resource: str = Field(description="the ARN of the tracking server or app")
    experiment_id: str
    run_id: str


class JobProgress(StoredPart):
    """How far a program is that reports it to SageMaker."""

    step: int | None = None
    steps: int | None = Field(default=None, description="of each epoch")
    epoch: int | None = None
    epochs: int | None = None


class JobDetails(StoredPart):
    """What DescribeTrainingJob says of a job beside its status."""

    instances: int | None = Field(default=None, ge=1, description="of the job; figures in seconds are of one of them")
    training_seconds: int | None = Field(
        default=None, ge=0, description="TrainingTimeInSeconds; `billable_seconds` of the attempt says what is billed"
    )
    metrics: tuple[FinalMetric, ...] = ()
    warm_pool: WarmPool | None = None
    rules: tuple[RuleVerdict, ...] = ()
    mlflow: MlflowRun | None = None
    progress: JobProgress | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing but the warm pool can change any more, once the job has ended."""
        return all(rule.is_final for rule in self.rules)

    def without_metrics(self) -> Self:
        """The details of an attempt that another one has replaced."""
        return self.model_copy(update={"metrics": ()})


def asks_for_details(spec: Spec) -> bool:
    """Whether a spec asks SageMaker for anything that only DescribeTrainingJob reports."""
    return bool(
        spec.spot
        or spec.metric_definitions
        or spec.metrics.definitions
        or spec.keep_alive_period_in_seconds
        or spec.debug_rule_configurations
        or spec.profiler_rule_configurations
        or spec.mlflow_config
    )


def job_details(found: Mapping[str, object]) -> JobDetails:
    """The details in an answer of DescribeTrainingJob. Pure."""
    resources = mapping_of(found.get("ResourceConfig"))
    instances = count_of(resources.get("SelectedInstanceCount")) or count_of(resources.get("InstanceCount"))
    return JobDetails(
        instances=instances or None,
        training_seconds=count_of(found.get("TrainingTimeInSeconds")),
        metrics=tuple(_metrics(found)),
        warm_pool=_warm_pool(found),
        rules=tuple(_rules(found))[:_RULES_MAX],
        mlflow=_mlflow(found),
        progress=_progress(found),
    )


def _metrics(found: Mapping[str, object]) -> Iterator[FinalMetric]:
    room = _METRIC_NAMES_MAX
    for item in mappings_of(found.get("FinalMetricDataList"))[:METRICS_MAX]:
        name, value = line_of(item.get("MetricName"), _NAME_MAX), item.get("Value")
        # A regular expression can find `nan` in the log, which no JSON document may hold.
        if not name or isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            continue
        room -= len(name)
        if room < 0:
            return
        yield FinalMetric(name=name, value=float(value), at=_time(item.get("Timestamp")))


def _warm_pool(found: Mapping[str, object]) -> WarmPool | None:
    pool = mapping_of(found.get("WarmPoolStatus"))
    state = line_of(pool.get("Status"), _STATUS_MAX)
    if not state:
        return None
    keep = count_of(mapping_of(found.get("ResourceConfig")).get("KeepAlivePeriodInSeconds"))
    end = found.get("TrainingEndTime")
    until = end + timedelta(seconds=keep) if isinstance(end, datetime) and keep is not None else None
    return WarmPool(
        state=known_member(state, PoolState.UNKNOWN),
        kept_seconds=count_of(pool.get("ResourceRetainedBillableTimeInSeconds")),
        until=_time(until),
        reused_by=line_of(pool.get("ReusedByJob"), JOB_NAME_MAX) or None,
    )


def _rules(found: Mapping[str, object]) -> Iterator[RuleVerdict]:
    for tool, name in (("debugger", "DebugRuleEvaluationStatuses"), ("profiler", "ProfilerRuleEvaluationStatuses")):
        for item in mappings_of(found.get(name)):
            yield RuleVerdict(
                tool=tool,
                rule=line_of(item.get("RuleConfigurationName"), _NAME_MAX),
                status=line_of(item.get("RuleEvaluationStatus"), _STATUS_MAX),
                words=line_of(item.get("StatusDetails"), _WORDS_MAX),
                at=_time(item.get("LastModifiedTime")),
            )


def _mlflow(found: Mapping[str, object]) -> MlflowRun | None:
    details = mapping_of(found.get("MlflowDetails"))
    run = line_of(details.get("MlflowRunId"), _NAME_MAX)
    if not run:
        return None
    return MlflowRun(
        resource=line_of(mapping_of(found.get("MlflowConfig")).get("MlflowResourceArn"), _ARN_MAX),
        experiment_id=line_of(details.get("MlflowExperimentId"), _NAME_MAX),
        run_id=run,
    )


def _progress(found: Mapping[str, object]) -> JobProgress | None:
    info = mapping_of(found.get("ProgressInfo"))
    if not info:
        return None
    return JobProgress(
        step=count_of(info.get("CurrentStep")),
        steps=count_of(info.get("TotalStepCountPerEpoch")),
        epoch=count_of(info.get("CurrentEpoch")),
        epochs=count_of(info.get("MaxEpoch")),
    )


def _time(value: object) -> Timestamp | None:
    return timestamps.text(value) if isinstance(value, datetime) else None
