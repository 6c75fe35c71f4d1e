"""The log group of training jobs, which SageMaker makes with the first job of an account."""

from __future__ import annotations

from aws_cdk import ArnFormat, Stack

from muster.contract.names import TRAINING_LOG_GROUP


def log_group_arn(stack: Stack, rest: str) -> str:
    """The ARN of the group and what follows its name: `:log-stream:…` for streams."""
    return stack.format_arn(
        service="logs",
        resource="log-group",
        resource_name=f"{TRAINING_LOG_GROUP}{rest}",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
