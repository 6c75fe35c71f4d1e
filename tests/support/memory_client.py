"""A client whose calls reach the AWS in memory."""

from __future__ import annotations

import json
from typing import Any, cast

import boto3

from muster.client.aws.cloud import Cloud
from muster.client.aws.deployed_stack import Stack
from tests.memory.cloud import ACCOUNT, MemoryCloud
from tests.memory.harness import PREFIX


class _Session:
    def __init__(self, cloud: MemoryCloud) -> None:
        self._cloud = cloud

    def client(self, service: str, **_: object) -> Any:
        return self._cloud.client(service)


def client_of(memory: MemoryCloud, account: str = ACCOUNT) -> Cloud:
    """A client that has found its stack, in `account`: CloudFormation is not in memory."""
    cloud = Cloud("Muster", cast("boto3.Session", _Session(memory)))
    machine = memory.workflow.machine_arn.replace(ACCOUNT, account)
    names = json.dumps({name.partition("-")[0]: name for name in memory.functions.names})
    vars(cloud.connection)["stack"] = Stack(
        "Muster", machine, memory.bucket, PREFIX, dead_letter_url="https://sqs/letters", function_names=names
    )
    return cloud
