"""What the functions that settle runs need so that the rerun policy can start the next one."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct


class RerunAccess(Construct):
    """A policy of its own: in the functions' roles the state machine, which calls them, would wait for itself."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        state_machine: sfn.StateMachine,
        functions: Sequence[lambda_.Function],
    ) -> None:
        super().__init__(scope, construct_id)
        executions = Stack.of(self).format_arn(
            service="states",
            resource="execution",
            resource_name=f"{state_machine.state_machine_name}:*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        iam.Policy(
            self,
            "Policy",
            roles=[function.role for function in functions if function.role is not None],
            statements=[
                iam.PolicyStatement(actions=["states:StartExecution"], resources=[state_machine.state_machine_arn]),
                # Whether an execution of the same name is the same run.
                iam.PolicyStatement(actions=["states:DescribeExecution"], resources=[executions]),
            ],
        )
