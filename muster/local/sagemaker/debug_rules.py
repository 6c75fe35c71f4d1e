"""The rules of Debugger and the profiler that a job asks for. The embedded cloud evaluates none, and says so.

The fault `rule-issue` lets a rule find something, as on AWS it does in a processing job beside the training job.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import CreateTrainingJobRequestTypeDef

_JOB_NAME_MAX = 63  # CreateProcessingJob: ProcessingJobName
_NOT_EVALUATED = "The embedded cloud does not evaluate rules."

Issue = Callable[[str], str | None]
"""What the rule of this name has found, in words; None where it has found nothing."""


class DebugRules:
    """The rules of one job; its lock guards them."""

    def __init__(self, request: CreateTrainingJobRequestTypeDef, arn: str) -> None:
        base = arn.rpartition(":")[0]
        self._rules = {
            answer: [
                _rule(configured["RuleConfigurationName"], request["TrainingJobName"], base) for configured in rules
            ]
            for answer, rules in (
                ("DebugRuleEvaluationStatuses", request.get("DebugRuleConfigurations", [])),
                ("ProfilerRuleEvaluationStatuses", request.get("ProfilerRuleConfigurations", [])),
            )
        }

    def conclude(self, issue: Issue) -> None:
        """The job is about to end: every rule comes to its verdict."""
        for rules in self._rules.values():
            for rule in rules:
                found = issue(str(rule["RuleConfigurationName"]))
                rule["RuleEvaluationStatus"] = "Error" if found is None else "IssuesFound"
                rule["StatusDetails"] = found or _NOT_EVALUATED
                rule["LastModifiedTime"] = round(time.time(), 3)

    def documents(self) -> dict[str, object]:
        """The members of DescribeTrainingJob's answer."""
        return {name: [{**rule} for rule in rules] for name, rules in self._rules.items() if rules}


def _rule(name: str, job: str, base: str) -> dict[str, object]:
    mark = hashlib.sha256(f"{job}/{name}".encode()).hexdigest()[:8]
    return {
        "RuleConfigurationName": name,
        "RuleEvaluationJobArn": f"{base}:processing-job/{job[: _JOB_NAME_MAX - 9].rstrip('-')}-{mark}",
        "RuleEvaluationStatus": "InProgress",
        "LastModifiedTime": round(time.time(), 3),
    }
