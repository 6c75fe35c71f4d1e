"""The limits of CreateTrainingJob that its documentation states and botocore's model lacks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from muster.local.sagemaker.request_validation import constraint

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import (
        AlgorithmSpecificationUnionTypeDef,
        ChannelUnionTypeDef,
        CreateTrainingJobRequestTypeDef,
        ResourceConfigUnionTypeDef,
        StoppingConditionTypeDef,
        TagTypeDef,
    )

MAX_RUNTIME_SECONDS = 28 * 24 * 3600  # StoppingCondition: a training job runs at most 28 days
MAX_KEEP_ALIVE_SECONDS = 3600  # ResourceConfig: warm pools, documented maximum (the model says 21,600)
_REQUIRED = ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition")


def documented_violations(request: CreateTrainingJobRequestTypeDef) -> list[str]:
    """Every documented limit of CreateTrainingJob that `request`, valid by the model, breaks."""
    found = [
        constraint(None, name[:1].lower() + name[1:], "Member must not be null")
        for name in _REQUIRED
        if request.get(name) is None
    ]
    if found:
        return found
    return [
        *_algorithm(request["AlgorithmSpecification"]),
        *_resources(request["ResourceConfig"], spot=bool(request.get("EnableManagedSpotTraining"))),
        *_stopping(request["StoppingCondition"], spot=bool(request.get("EnableManagedSpotTraining"))),
        *_channels(request.get("InputDataConfig", [])),
        *_tags(request.get("Tags", [])),
    ]


def _algorithm(algorithm: AlgorithmSpecificationUnionTypeDef) -> Iterator[str]:
    named = [name for name, value in algorithm.items() if name in {"TrainingImage", "AlgorithmName"} and value]
    if len(named) != 1:
        yield constraint(
            " and ".join(named) or None,
            "algorithmSpecification",
            "Exactly one of TrainingImage and AlgorithmName must be given",
        )
    for definition in algorithm.get("MetricDefinitions", []):
        try:
            re.compile(definition["Regex"])
        except re.error:
            yield constraint(
                definition["Regex"], "algorithmSpecification.metricDefinitions", "Member must be a regular expression"
            )


def _resources(resources: ResourceConfigUnionTypeDef, *, spot: bool) -> Iterator[str]:
    path = "resourceConfig"
    preferences = resources.get("InstancePreferences")
    if preferences and resources.get("InstanceType"):
        yield constraint(resources["InstanceType"], f"{path}.instanceType", "Not together with InstancePreferences")
    if preferences and spot:
        yield constraint(preferences, f"{path}.instancePreferences", "Not with managed spot training")
    if not preferences and not resources.get("InstanceGroups"):
        if not resources.get("InstanceType"):
            yield constraint(None, f"{path}.instanceType", "Member must not be null")
        if not resources.get("InstanceCount"):
            yield constraint(resources.get("InstanceCount"), f"{path}.instanceCount", _at_least(1))
    if not resources.get("VolumeSizeInGB"):
        yield constraint(resources.get("VolumeSizeInGB"), f"{path}.volumeSizeInGB", _at_least(1))
    keep_alive = resources.get("KeepAlivePeriodInSeconds", 0)
    if keep_alive > MAX_KEEP_ALIVE_SECONDS:
        yield constraint(keep_alive, f"{path}.keepAlivePeriodInSeconds", _at_most(MAX_KEEP_ALIVE_SECONDS))
    if keep_alive and spot:
        yield constraint(keep_alive, f"{path}.keepAlivePeriodInSeconds", "Not with managed spot training")


def _stopping(stopping: StoppingConditionTypeDef, *, spot: bool) -> Iterator[str]:
    path = "stoppingCondition"
    runtime, wait = stopping.get("MaxRuntimeInSeconds"), stopping.get("MaxWaitTimeInSeconds")
    if runtime is not None and runtime > MAX_RUNTIME_SECONDS:
        yield constraint(runtime, f"{path}.maxRuntimeInSeconds", _at_most(MAX_RUNTIME_SECONDS))
    if spot and wait is None:
        yield constraint(None, f"{path}.maxWaitTimeInSeconds", "Must be given for managed spot training")
    if wait is not None and not spot:
        yield constraint(wait, f"{path}.maxWaitTimeInSeconds", "Only for managed spot training")
    if wait is not None and runtime is not None and wait < runtime:
        yield constraint(wait, f"{path}.maxWaitTimeInSeconds", "Must not be less than MaxRuntimeInSeconds")


def _channels(channels: Sequence[ChannelUnionTypeDef]) -> Iterator[str]:
    counts = Counter(channel["ChannelName"] for channel in channels)
    for name, count in counts.items():
        if count > 1:
            yield constraint(name, "inputDataConfig", "Channel names must be unique")
    for index, channel in enumerate(channels, start=1):
        sources = [source for source in channel["DataSource"].values() if source]
        if len(sources) != 1:
            yield constraint(
                channel["DataSource"], f"inputDataConfig.{index}.member.dataSource", "Exactly one source must be given"
            )


def _tags(tags: Sequence[TagTypeDef]) -> Iterator[str]:
    counts = Counter(tag["Key"] for tag in tags)
    for key, count in counts.items():
        if count > 1:
            yield constraint(key, "tags", "Tag keys must be unique")
        if key.lower().startswith("aws:"):
            yield constraint(key, "tags", "Tag keys must not start with aws:")


def _at_least(limit: int) -> str:
    return f"Member must have value greater than or equal to {limit}"


def _at_most(limit: int) -> str:
    return f"Member must have value less than or equal to {limit}"
