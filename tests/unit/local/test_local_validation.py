"""Requests that SageMaker refuses, by its model and by its documentation, field by field."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from muster.local.sagemaker.documented_limits import documented_violations
from muster.local.sagemaker.request_validation import refuse, violations
from muster.local.sagemaker.service_errors import ServiceError
from tests.support.local_samples import REQUEST

if TYPE_CHECKING:
    pass


def changed(path: str, value: Any) -> dict[str, Any]:
    """The request with one member replaced, or taken away for None. `path` is dotted; digits index lists."""
    request = copy.deepcopy(REQUEST)
    place: Any = request
    *way, last = path.split(".")
    for step in way:
        place = place[int(step)] if step.isdigit() else place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return request


def many(count: int, **value: Any) -> list[dict[str, Any]]:
    return [value] * count


OF_THE_MODEL: list[tuple[str, Any, str]] = [
    ("TrainingJobName", None, "'trainingJobName' failed to satisfy constraint: Member must not be null"),
    ("TrainingJobName", "a" * 64, "length less than or equal to 63"),
    ("TrainingJobName", "ends-", "regular expression pattern"),
    ("TrainingJobName", "", "length greater than or equal to 1"),
    ("TrainingJobName", 7, "must be a string"),
    ("AlgorithmSpecification.TrainingInputMode", "Disk", "enum value set: [Pipe, File, FastFile]"),
    ("AlgorithmSpecification.ContainerArguments", ["a", "b" * 257], "'algorithmSpecification.containerArguments.2"),
    ("AlgorithmSpecification.ContainerArguments", "-m", "must be a list"),
    ("HyperParameters", {str(number): "v" for number in range(101)}, "less than or equal to 100"),
    ("HyperParameters", {"k" * 257: "v"}, "Map keys must satisfy constraint"),
    ("Environment", {"K": "v" * 513}, "less than or equal to 512"),
    ("InputDataConfig", [], "greater than or equal to 1"),
    ("ResourceConfig.InstanceCount", -1, "value greater than or equal to 0"),
    ("ResourceConfig.InstanceCount", True, "of type integer"),
    ("RetryStrategy.MaximumRetryAttempts", 31, "value less than or equal to 30"),
    ("EnableManagedSpotTraining", "yes", "must be a boolean"),
    ("Colour", "blue", "one of the members of the operation"),
    ("StoppingCondition.Colour", "blue", "'stoppingCondition.colour'"),
    ("StoppingCondition", "soon", "must be a structure"),
]
"""A member, a value that the model forbids, and what is said of it."""


def test_the_model_is_held_to_the_letter() -> None:
    assert violations("CreateTrainingJob", REQUEST) == []
    for path, value, expected in OF_THE_MODEL:
        found = violations("CreateTrainingJob", changed(path, value))
        assert any(expected in violation for violation in found), (path, value, found)
        # Nothing else is wrong with it.
        assert len({violation.split("' at '")[-1].split("'")[0] for violation in found}) == 1, (path, value, found)


OF_THE_DOCUMENTATION: list[tuple[str, Any, str]] = [
    ("ResourceConfig", None, "'resourceConfig'"),
    ("StoppingCondition", None, "'stoppingCondition'"),
    ("AlgorithmSpecification", None, "'algorithmSpecification'"),
    ("AlgorithmSpecification.TrainingImage", None, "Exactly one of TrainingImage and AlgorithmName"),
    ("AlgorithmSpecification.AlgorithmName", "mine", "Exactly one of TrainingImage and AlgorithmName"),
    ("AlgorithmSpecification.MetricDefinitions.0.Regex", "(", "must be a regular expression"),
    ("ResourceConfig.InstanceType", None, "'resourceConfig.instanceType'"),
    ("ResourceConfig.InstanceCount", 0, "'resourceConfig.instanceCount'"),
    ("ResourceConfig.VolumeSizeInGB", None, "'resourceConfig.volumeSizeInGB'"),
    ("ResourceConfig.KeepAlivePeriodInSeconds", 60, "Not with managed spot training"),
    ("StoppingCondition.MaxRuntimeInSeconds", 2419201, "'stoppingCondition.maxRuntimeInSeconds'"),
    ("StoppingCondition.MaxWaitTimeInSeconds", 3599, "Must not be less than MaxRuntimeInSeconds"),
    ("StoppingCondition.MaxWaitTimeInSeconds", None, "Must be given for managed spot training"),
    ("EnableManagedSpotTraining", False, "Only for managed spot training"),
    ("InputDataConfig", REQUEST["InputDataConfig"] * 2, "Channel names must be unique"),
    ("InputDataConfig.0.DataSource", {}, "Exactly one source must be given"),
    ("Tags", many(2, Key="k", Value="v"), "Tag keys must be unique"),
    ("Tags.0.Key", "AWS:mine", "must not start with aws:"),
]
"""The same for what only the documentation says."""


def test_the_documentation_is_held_where_the_model_is_silent() -> None:
    assert documented_violations(REQUEST) == []
    for path, value, expected in OF_THE_DOCUMENTATION:
        request = changed(path, value)
        assert violations("CreateTrainingJob", request) == [], (path, value)
        found = documented_violations(request)
        assert any(expected in violation for violation in found), (path, value, found)


def test_a_warm_pool_is_kept_an_hour_at_most_and_preferences_exclude_a_type_and_spot() -> None:
    request = changed("EnableManagedSpotTraining", False)
    del request["StoppingCondition"]["MaxWaitTimeInSeconds"]
    request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = 3600
    assert documented_violations(request) == []
    request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = 3601
    assert "'resourceConfig.keepAlivePeriodInSeconds'" in documented_violations(request)[0]
    request = changed("ResourceConfig.InstancePreferences", [{"InstanceType": "ml.g5.xlarge"}])
    found = documented_violations(request)
    assert any("Not together with InstancePreferences" in violation for violation in found)
    assert any("Not with managed spot training" in violation for violation in found)


def test_all_violations_are_told_at_once() -> None:
    request = changed("TrainingJobName", "ends-")
    request["Environment"] = {"K": "v" * 513}
    request["Tags"] = many(51, Key="k", Value="v")
    with pytest.raises(ServiceError) as caught:
        refuse(violations("CreateTrainingJob", request))
    assert caught.value.code == "ValidationException"
    assert caught.value.message.startswith("3 validation errors detected: Value ")
    for path in ("'trainingJobName'", "'environment.K'", "'tags'"):
        assert path in caught.value.message


def test_the_other_operations_are_checked_too() -> None:
    for operation, request, expected in (
        ("ListTrainingJobs", {"StatusEquals": "Done"}, "enum value set"),
        ("ListTrainingJobs", {"CreationTimeAfter": "yesterday"}, "must be a number"),
        ("DescribeTrainingJob", {}, "'trainingJobName'"),
        ("ListTags", {}, "'resourceArn'"),
        ("DescribeHubContent", {"HubName": "a", "HubContentType": "Model"}, "'hubContentName'"),
    ):
        [violation] = violations(operation, request)
        assert expected in violation, operation
