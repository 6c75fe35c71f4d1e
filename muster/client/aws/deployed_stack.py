"""The deployed stack, read from its outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.client.client_errors import ForeignStackError
from muster.contract.aws.partitions import Locality
from muster.contract.names import execution_arn

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import StackTypeDef

DEFAULT_STACK = "Muster"
"""The stack that is meant where none is named. If there is none of that name, the only stack of Muster is meant."""


@dataclass(frozen=True)
class Stack:
    """What a client needs to know of a stack."""

    name: str
    state_machine_arn: str
    bucket: str
    job_prefix: str
    role_arn: str = ""
    package_uri: str = ""
    defaults: str = "{}"
    dead_letter_url: str = ""
    function_names: str = ""
    event_bus: str = ""
    key_arn: str = ""
    """Of the key that encrypts what the stack stores, if the deployment has one of its own."""
    places: str = ""
    """Of a stack with places: the document that their option reads."""

    @classmethod
    def from_outputs(cls, name: str, outputs: Mapping[str, str]) -> Stack:
        """The stack named `name` with these CloudFormation outputs.

        Raises:
            ForeignStackError: an output is missing.
        """
        for key in ("StateMachineArn", "BucketName", "JobPrefix"):
            if not outputs.get(key):
                raise ForeignStackError(name, key)
        return cls(
            name,
            outputs["StateMachineArn"],
            outputs["BucketName"],
            outputs["JobPrefix"],
            role_arn=outputs.get("ReplicaRoleArn", ""),
            package_uri=outputs.get("ReplicaPackageUri", ""),
            defaults=outputs.get("ReplicaDefaults", "{}"),
            dead_letter_url=outputs.get("DeadLetterQueueUrl", ""),
            function_names=outputs.get("FunctionNames", ""),
            event_bus=outputs.get("EventBusName", ""),
            key_arn=outputs.get("KeyArn", ""),
            places=outputs.get("Places", ""),
        )

    @staticmethod
    def is_described_by(outputs: Mapping[str, str]) -> bool:
        """Whether a stack with these outputs is one of Muster."""
        return {"StateMachineArn", "BucketName", "JobPrefix", "ReplicaRoleArn"} <= outputs.keys()

    @property
    def account(self) -> str:
        """The account of the stack."""
        return Locality.of_arn(self.state_machine_arn).account

    @property
    def dead_letters(self) -> str:
        """The URL of the dead-letter queue.

        Raises:
            ForeignStackError: the output is missing.
        """
        if not self.dead_letter_url:
            raise ForeignStackError(self.name, "DeadLetterQueueUrl")
        return self.dead_letter_url

    @property
    def bus(self) -> str:
        """The name of the event bus.

        Raises:
            ForeignStackError: the output is missing.
        """
        if not self.event_bus:
            raise ForeignStackError(self.name, "EventBusName")
        return self.event_bus

    @property
    def functions(self) -> Mapping[str, str]:
        """The physical names of the stack's functions by their names.

        Raises:
            ForeignStackError: the output is missing: the stack was deployed by an older version.
        """
        if not self.function_names:
            raise ForeignStackError(self.name, "FunctionNames")
        found: dict[str, str] = json.loads(self.function_names)
        return found

    def execution_arn(self, execution: str) -> str:
        """The ARN of the execution named `execution`."""
        return execution_arn(self.state_machine_arn, execution)


def outputs_of(stack: StackTypeDef) -> dict[str, str]:
    """The outputs of a stack as DescribeStacks answers it, by their keys."""
    return {item["OutputKey"]: item["OutputValue"] for item in stack.get("Outputs", [])}
