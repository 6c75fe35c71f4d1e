"""The state machine: statemachine/run.asl.json, under a role that allows calls of our functions and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from muster.infra.functions.handler_function import ExpiringLogGroup
from muster.infra.settings.stack_settings import StackSettings
from muster.infra.workflow.workflow_definition import armed_definition


class Workflow(Construct):
    """One execution per run. `functions` are those that the definition calls, by its placeholders for their ARNs."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: StackSettings,
        *,
        definition: Path,
        functions: Mapping[str, lambda_.IFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        role = iam.Role(
            self,
            "Role",
            description="Muster: the workflow",
            assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
            inline_policies={"Workflow": iam.PolicyDocument(statements=_statements(functions))},
        )
        self.state_machine = sfn.StateMachine(
            self,
            "StateMachine",
            comment="Muster: one run of N replicas",
            state_machine_type=sfn.StateMachineType.STANDARD,
            # As text in the template, where cfn-lint checks it; it would not check an uploaded file.
            definition_body=sfn.DefinitionBody.from_string(
                json.dumps(
                    armed_definition(definition, settings.runs.rearm_seconds, snap_start=settings.runs.snap_start)
                )
            ),
            definition_substitutions={
                "Partition": stack.partition,
                **{name: function.function_arn for name, function in functions.items()},
            },
            role=role.without_policy_updates(),
            logs=sfn.LogOptions(
                destination=ExpiringLogGroup(
                    self,
                    "Logs",
                    days=settings.watch.log_retention_days,
                    # Step Functions adds other groups one by one to a policy of the account that has at most 5,120
                    # characters: in a crowded account the deployment would fail. It allows this prefix as a whole.
                    name=f"/aws/vendedlogs/states/{stack.stack_name}",
                ),
                level=sfn.LogLevel.ERROR,
                # Inputs hold specs, and specs hold the values of users' environment variables.
                include_execution_data=False,
            ),
        )
        # A policy of its own: it names the state machine, which depends on its role.
        iam.Policy(self, "DistributedMap", roles=[role], statements=self._distributed_map(stack))

    def _distributed_map(self, stack: Stack) -> list[iam.PolicyStatement]:
        """A Distributed Map starts its children as executions of its own state machine."""
        name = self.state_machine.state_machine_name
        executions = [
            stack.format_arn(
                service="states",
                resource="execution",
                resource_name=pattern,
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            )
            # The ARNs of children have the map's label behind a slash.
            for pattern in (f"{name}:*", f"{name}/*")
        ]
        return [
            iam.PolicyStatement(actions=["states:StartExecution"], resources=[self.state_machine.state_machine_arn]),
            iam.PolicyStatement(actions=["states:DescribeExecution", "states:StopExecution"], resources=executions),
        ]


def _statements(functions: Mapping[str, lambda_.IFunction]) -> list[iam.PolicyStatement]:
    return [
        iam.PolicyStatement(
            actions=["lambda:InvokeFunction"], resources=[function.function_arn for function in functions.values()]
        ),
        # `*` is forced: the actions by which a service delivers its logs have no resource level.
        iam.PolicyStatement(
            actions=[
                "logs:CreateLogDelivery",
                "logs:DeleteLogDelivery",
                "logs:DescribeLogGroups",
                "logs:DescribeResourcePolicies",
                "logs:GetLogDelivery",
                "logs:ListLogDeliveries",
                "logs:PutResourcePolicy",
                "logs:UpdateLogDelivery",
            ],
            resources=["*"],
        ),
    ]
