"""A log group whose events expire."""

from __future__ import annotations

from typing import cast

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from constructs import Construct


class ExpiringLogGroup(logs.LogGroup):
    """A log group that keeps its events for `days` (a number that CloudWatch Logs takes) and goes with the stack."""

    def __init__(self, scope: Construct, construct_id: str, *, days: int) -> None:
        super().__init__(scope, construct_id, removal_policy=RemovalPolicy.DESTROY)
        # The construct's own parameter is an enum by name; the resource takes the number.
        cast(logs.CfnLogGroup, self.node.default_child).retention_in_days = days
