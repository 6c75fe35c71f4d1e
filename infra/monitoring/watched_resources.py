"""What the dashboard and the alarms watch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn

from muster.contract.aws.metric_names import NAMESPACE, SERVICE


@dataclass(frozen=True)
class WatchedResources:
    """The resources of the stack that have metrics in CloudWatch; the functions by their names.

    `job_prefix` is the stack's mark on Muster's own metrics.
    """

    state_machine: sfn.StateMachine
    functions: Mapping[str, lambda_.Function]
    dead_letters: sqs.Queue
    job_prefix: str


def muster_metric(name: str, service: str) -> cloudwatch.Metric:
    """Muster's own metric `name` as `service` counts it: one function, or several into one series."""
    return cloudwatch.Metric(namespace=NAMESPACE, metric_name=name, dimensions_map={SERVICE: service})
