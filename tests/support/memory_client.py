"""A client whose calls reach the AWS in memory."""

import json
from typing import Any, cast

import boto3

from muster.client.aws.cloud import Cloud
from muster.client.aws.deployed_stack import Stack
from muster.client.sdk import Muster
from tests.memory.cloud import ACCOUNT, REGION, MemoryClient, MemoryCloud
from tests.memory.harness import BUS, PREFIX
from tests.memory.places import PLACES


class _Session:
    region_name = REGION

    def __init__(self, cloud: MemoryCloud) -> None:
        self._cloud = cloud

    def get_partition_for_region(self, _: str) -> str:
        """One without a Price List API, which is not in memory."""
        return "aws-cn"

    def client(self, service: str, region_name: str | None = None, **_: object) -> Any:
        places = [place for place in self._cloud.places.values() if place.at.region == region_name]
        if places and service == "logs":
            return MemoryClient(service, self._cloud.calls, places[0].of_a_reader)
        return self._cloud.client(service)


def client_of(memory: MemoryCloud, account: str = ACCOUNT) -> Cloud:
    """A client that has found its stack, in `account`: CloudFormation is not in memory."""
    cloud = Cloud("Muster", cast("boto3.Session", _Session(memory)))
    machine = memory.workflow.machine_arn.replace(ACCOUNT, account)
    names = json.dumps({name.partition("-")[0]: name for name in memory.functions.names})
    vars(cloud.connection)["stack"] = Stack(
        *("Muster", machine, memory.bucket, PREFIX),
        dead_letter_url="https://sqs/letters",
        function_names=names,
        event_bus=BUS,
        places=PLACES.to_json().decode() if memory.places else "",
    )
    return cloud


def muster_of(memory: MemoryCloud) -> Muster:
    """The SDK over the AWS in memory."""
    muster = Muster(region="us-east-1")
    muster._cloud = client_of(memory)
    return muster


def put(memory: MemoryCloud, key: str, body: bytes) -> None:
    """Write an object into the stack's bucket."""
    memory.client("s3").put_object(Bucket=memory.bucket, Key=key, Body=body)
