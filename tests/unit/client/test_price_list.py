"""The Price List API, as an HTTP server that answers like it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import boto3
import pytest

from muster.client.aws.cloud import Cloud
from muster.client.aws.price_list import PricesUnknownError, listed_prices
from muster.client.errors import DeniedError, UnreachableError
from muster.client.launch.dry_run import DeploymentContext
from muster.contract.spec.spec_reader import parse_spec
from tests.support.serving import serving


def offer(usage: str, usd: str, unit: str = "Hrs") -> str:
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    terms = {"OnDemand": {"SKU.TERM": {"priceDimensions": {"SKU.TERM.RATE": dimension}}}}
    return json.dumps({"product": {"productFamily": "ML Instance", "attributes": {"usagetype": usage}}, "terms": terms})


OFFERS = {
    "ml.g5.xlarge": [
        offer("USW2-Notebk:ml.g5.xlarge", "9.0"),
        offer("USW2-Train:ml.g5.xlarge", "1.408"),
        offer("USW2-Train:ml.g5.xlarge", "0.0000000000"),
        offer("USW2-Train:ml.g5.xlarge", "7.0", "Quantity"),
    ],
    "ml.new.xlarge": [offer("USW2-Host:ml.new.xlarge", "3.0")],
}


class PriceList:
    """Answers GetProducts, one offer to a page."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.refuses = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = outer.answer(self.headers["X-Amz-Target"], body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, target: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        assert target == "AWSPriceListService.GetProducts"
        if self.refuses:
            return 400, {"__type": "AccessDeniedException", "Message": "not authorized to perform: pricing:GetProducts"}
        filters = {item["Field"]: item["Value"] for item in body["Filters"]}
        self.asked.append(filters)
        offers, page = OFFERS.get(filters["instanceName"], []), int(body.get("NextToken", 0))
        following = {"NextToken": str(page + 1)} if page + 1 < len(offers) else {}
        return 200, {"PriceList": offers[page : page + 1], "FormatVersion": "aws_v1", **following}


@pytest.fixture
def price_list(monkeypatch: pytest.MonkeyPatch) -> Iterator[PriceList]:
    service = PriceList()
    monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", service.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with serving(service.server):
        yield service


def test_the_price_is_that_of_training_by_the_hour_in_the_region(price_list: PriceList) -> None:
    prices = listed_prices(boto3.Session(), "us-west-2", ["ml.g5.xlarge", "ml.new.xlarge", "ml.g5.xlarge"])
    assert prices.usd_per_hour == {"ml.g5.xlarge": 1.408}
    assert (prices.region, prices.source) == ("us-west-2", "AWS Price List API")
    assert {(asked["regionCode"], asked["instanceName"]) for asked in price_list.asked} == {
        ("us-west-2", "ml.g5.xlarge"),
        ("us-west-2", "ml.new.xlarge"),
    }


def test_a_refusal_is_one_error(price_list: PriceList) -> None:
    price_list.refuses = True
    with pytest.raises(DeniedError, match="pricing:GetProducts"):
        listed_prices(boto3.Session(), "us-west-2", ["ml.g5.xlarge"])


@pytest.mark.parametrize(("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")])
def test_accounts_of_another_partition_ask_for_no_prices(price_list: PriceList, region: str, partition: str) -> None:
    with pytest.raises(PricesUnknownError, match=f"accounts of {partition} cannot ask for prices in dollars"):
        listed_prices(boto3.Session(), region, ["ml.g5.xlarge"])
    assert price_list.asked == []


class StackDescription(BaseHTTPRequestHandler):
    """Answers DescribeStacks with a stack that has the three outputs that every stack of Muster has."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        values = {
            "StateMachineArn": "arn:aws:states:us-west-2:123456789012:stateMachine:Runs",
            "BucketName": "the-bucket",
            "JobPrefix": "muster",
        }
        outputs = "".join(
            f"<member><OutputKey>{key}</OutputKey><OutputValue>{value}</OutputValue></member>"
            for key, value in values.items()
        )
        body = (
            "<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>Muster</StackName>"
            f"<Outputs>{outputs}</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_a_plan_has_the_prices_of_the_region_in_which_the_stack_was_found(
    price_list: PriceList, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = HTTPServer(("127.0.0.1", 0), StackDescription)
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDFORMATION", f"http://127.0.0.1:{server.server_address[1]}")
    spec = parse_spec({"replicas": 1, "entrypoint": ["true"], "image": "i:1", "instance_type": "ml.g5.xlarge"})
    with serving(server):
        found = DeploymentContext.of(Cloud(None, boto3.Session(region_name="us-west-2")), spec)
    assert (found.prices.region, found.prices.usd_per_hour) == ("us-west-2", {"ml.g5.xlarge": 1.408})


def test_no_way_to_the_api_is_an_error_of_its_own(price_list: PriceList, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", "http://127.0.0.1:9")
    with pytest.raises(UnreachableError):
        listed_prices(boto3.Session(), "us-west-2", ["ml.g5.xlarge"])
