"""The metrics of Muster's own, for what reads them in CloudWatch."""

from __future__ import annotations

from aws_cdk import aws_cloudwatch as cloudwatch

from muster.contract.aws.metric_names import NAMESPACE, SERVICE


def own_metric(name: str, service: str) -> cloudwatch.Metric:
    """The metric `name` as `service` counts it: one function, or several into one series."""
    return cloudwatch.Metric(namespace=NAMESPACE, metric_name=name, dimensions_map={SERVICE: service})
