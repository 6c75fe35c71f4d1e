"""Links between the places of the embedded cloud, and their faults."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from muster.contract.aws.instance_types import USD_PER_HOUR
from muster.local import LocalCloud
from muster.local.cloud_errors import UnknownPlaceError
from muster.local.commands import cloud_commands
from muster.local.faults import CallError, CapacityError, DarkRegion, Partition, Price, SlowLink
from muster.options.places.local import commands
from muster.options.places.local.link_settings import LinkClient, LinkSettings
from tests.support.places import OREGON, OTHER, TOKYO, Inbox, allow, client, cloud_with_places, forward
from tests.support.workshop import Workshop

HOME = "123456789012"
MEBIBYTE = 1 << 20
LONG: dict[str, Any] = {"StoppingCondition": {"MaxRuntimeInSeconds": 600}}
"""For a job that imports an SDK on a busy machine."""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    with cloud_with_places(tmp_path_factory.mktemp("cloud")) as running:
        yield running


@pytest.fixture(autouse=True)
def links(cloud: LocalCloud) -> Iterator[LinkClient]:
    """The links, without faults, delays and counts before each test."""
    found = LinkClient(cloud)
    found.reset()
    yield found
    found.set()
    cloud.faults.clear()


@pytest.fixture(scope="module")
def shops(cloud: LocalCloud) -> dict[str, Workshop]:
    """A workshop in each place of the account of home."""
    return {name: Workshop(cloud.at(name)) for name in ("home", "oregon")}


def carried(links: LinkClient) -> dict[tuple[str, str], int]:
    """The bytes on each link that was used."""
    return {(one.source, one.target): one.bytes for one in links.bytes()}


def timed(call: Any, **arguments: Any) -> float:
    """How long a call takes, in seconds."""
    start = time.monotonic()
    call(**arguments)
    return time.monotonic() - start


def test_bytes_are_counted_by_the_places_that_they_go_between(
    cloud: LocalCloud, shops: dict[str, Workshop], links: LinkClient
) -> None:
    home, oregon = shops["home"], shops["oregon"]
    # A job is in its place: it names the region of a bucket, and no endpoint.
    job = oregon.run("carrier", home.bucket, "us-east-1", "1000", **LONG)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    moved = carried(links)
    assert moved.keys() == {("oregon", "home"), ("home", "oregon")}
    assert all(1000 <= count < 1100 for count in moved.values())  # a body has a checksum after it
    links.reset()
    assert oregon.run("carrier", oregon.bucket, OREGON, "1000", **LONG)["TrainingJobStatus"] == "Completed"
    assert carried(links) == {}
    # A copy goes straight from its source's place, whoever asks for it.
    source = {"Bucket": home.bucket, "Key": "carried"}
    client(cloud, "s3", OREGON).copy_object(Bucket=oregon.bucket, Key="copy", CopySource=source)
    copied = carried(links)
    assert 1000 <= copied["home", "oregon"] < 2000
    assert oregon.read("copy") == bytes(1000)
    assert carried(links) == copied  # what a test looks at is not counted


def test_a_link_has_a_latency_and_a_rate(cloud: LocalCloud, shops: dict[str, Workshop], links: LinkClient) -> None:
    far, near = client(cloud, "s3", OREGON), client(cloud, "s3", "us-east-1")
    links.set(
        LinkSettings(source="home", target="oregon", bytes_per_second=4 * MEBIBYTE, latency_seconds=0.3),
        LinkSettings(source="oregon", latency_seconds=5),
    )
    there = {"Bucket": shops["oregon"].bucket, "Key": "key", "Body": bytes(2 * MEBIBYTE)}
    assert timed(far.put_object, **there) >= 0.8
    assert timed(far.head_object, Bucket=there["Bucket"], Key="key") >= 0.3
    cloud.faults.add(SlowLink(place="home", other="oregon", latency_seconds=0.5))
    assert timed(far.head_object, Bucket=there["Bucket"], Key="key") >= 0.8
    assert timed(client(cloud, "sagemaker", OREGON).list_training_jobs) >= 0.8
    [slow] = cloud.faults.list()
    assert slow.fired == 2
    near.list_objects_v2(Bucket=shops["home"].bucket)
    assert cloud.faults.list() == [slow]


def test_a_dark_region_takes_no_call_and_sends_its_events_later(cloud: LocalCloud, shops: dict[str, Workshop]) -> None:
    oregon = shops["oregon"]
    bus = f"arn:aws:events:us-east-1:{HOME}:event-bus/default"
    inbox = Inbox(cloud, {"source": ["aws.sagemaker"], "region": [OREGON]})
    forward(cloud.at("oregon"), "aws.sagemaker", bus, allow("events:PutEvents", bus))
    dark = cloud.faults.add(DarkRegion(place="oregon"))
    for service, call in (("s3", "list_buckets"), ("sagemaker", "list_training_jobs"), ("sts", "get_caller_identity")):
        with pytest.raises(BotoCoreError):
            getattr(client(cloud, service, OREGON), call)()
    with pytest.raises(BotoCoreError):
        client(cloud.at("oregon"), "s3", "us-east-1").list_buckets()
    assert dark.fired == 4
    # Inside it, all works.
    job = oregon.start("carrier", oregon.bucket, OREGON, "10", **LONG)
    assert oregon.end(job)["TrainingJobStatus"] == "Completed"
    assert inbox.received() == []
    client(cloud, "sagemaker", TOKYO).list_training_jobs()
    dark.remove()
    client(cloud, "sagemaker", OREGON).list_training_jobs()
    event = inbox.next()
    assert (event["detail"]["TrainingJobName"], event["account"]) == (job, HOME)


def test_a_partition_parts_two_places_alone(cloud: LocalCloud) -> None:
    cloud.faults.add(Partition(place="oregon", other="tokyo", silent_seconds=0.2))
    oregon = cloud.at("oregon")
    with pytest.raises(BotoCoreError):
        client(oregon, "sagemaker", TOKYO).list_training_jobs()
    with pytest.raises(BotoCoreError):
        client(cloud.at("tokyo"), "sagemaker", OREGON).list_training_jobs()
    client(oregon, "sagemaker", "us-east-1").list_training_jobs()
    client(cloud, "sagemaker", TOKYO).list_training_jobs()


def test_a_shortage_and_throttling_are_those_of_one_place(cloud: LocalCloud, shops: dict[str, Workshop]) -> None:
    cloud.faults.add(CapacityError(place="oregon", count=None))
    cloud.faults.add(CallError(place="oregon", service="sagemaker", operation="List*", code="ThrottlingException"))
    job = shops["oregon"].run("report")
    assert (job["TrainingJobStatus"], "CapacityError" in job["FailureReason"]) == ("Failed", True)
    assert shops["home"].run("report")["TrainingJobStatus"] == "Completed"
    client(cloud, "sagemaker", "us-east-1").list_training_jobs()
    with pytest.raises(ClientError, match="ThrottlingException"):
        client(cloud, "sagemaker", OREGON).list_training_jobs()


def test_an_instance_type_has_a_price_in_a_place(cloud: LocalCloud) -> None:
    filters = {"regionCode": OREGON, "instanceName": "ml.g5.xlarge"}
    asked = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()]
    pricing = client(cloud, "pricing", "us-east-1")
    [offer] = pricing.get_products(ServiceCode="AmazonSageMaker", Filters=asked)["PriceList"]
    assert f'"USD": "{USD_PER_HOUR["ml.g5.xlarge"]:.10f}"' in offer
    for place, usd in (("oregon", 1.0), ("home", 3.0), ("oregon", 2.0)):
        cloud.faults.add(Price(place=place, instance_type="ml.g5.xlarge", usd_per_hour=usd))
    [offer] = pricing.get_products(ServiceCode="AmazonSageMaker", Filters=asked)["PriceList"]
    assert '"USD": "2.0000000000"' in offer


def test_a_function_is_in_its_place(cloud: LocalCloud, shops: dict[str, Workshop], links: LinkClient) -> None:
    source = """
import boto3
def handler(event, _context):
    boto3.client("s3", region_name="us-east-1").put_object(Bucket=event, Key="function", Body=bytes(100))
"""
    oregon = shops["oregon"]
    name, _ = oregon.make_function(source)
    payload = json.dumps(shops["home"].bucket)
    answer = cloud.at("oregon").client("lambda").invoke(FunctionName=name, Payload=payload)
    assert "FunctionError" not in answer, answer["Payload"].read()
    assert set(carried(links)) == {("oregon", "home")}


def test_the_commands_show_the_places_and_their_links(cloud: LocalCloud, capsys: pytest.CaptureFixture[str]) -> None:
    place = cloud.directory.root
    cloud_commands.env(place="tokyo", as_json=True, state=place)
    shown = json.loads(capsys.readouterr().out)["set"]
    assert (shown["AWS_REGION"], shown["CDK_DEFAULT_ACCOUNT"]) == (TOKYO, OTHER)
    assert shown["AWS_ENDPOINT_URL"] == cloud.at("tokyo").endpoint
    named = {name: (one["region"], one["account"]) for name, one in json.loads(shown["MUSTER_LOCAL_PLACES"]).items()}
    assert named == {"oregon": (OREGON, HOME), "tokyo": (TOKYO, OTHER)}
    commands.links(reset=True, as_json=False, state=place)
    assert capsys.readouterr().out == "No bytes.\n"
    with pytest.raises(UnknownPlaceError, match="home, oregon, tokyo"):
        cloud.at("paris")
