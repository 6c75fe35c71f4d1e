"""The Price List API, as an HTTP server that answers like it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import boto3
import pytest

from muster.client.aws.cloud import Cloud
from muster.client.aws.deployed_stack import Stack
from muster.client.aws.price_list import PricesUnknownError, listed_prices
from muster.client.errors import DeniedError
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


class PriceList(BaseHTTPRequestHandler):
    """Answers GetProducts, one offer to a page."""

    asked: ClassVar[list[dict[str, Any]]] = []
    refuses: ClassVar[bool] = False

    def do_POST(self) -> None:
        assert self.headers["X-Amz-Target"] == "AWSPriceListService.GetProducts"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        filters = {item["Field"]: item["Value"] for item in body["Filters"]}
        self.asked.append(filters)
        offers, page = OFFERS.get(filters["instanceName"], []), int(body.get("NextToken", 0))
        following = {"NextToken": str(page + 1)} if page + 1 < len(offers) else {}
        answer = {"PriceList": offers[page : page + 1], "FormatVersion": "aws_v1", **following}
        refusal = {"__type": "AccessDeniedException", "Message": "not authorized to perform: pricing:GetProducts"}
        content = json.dumps(refusal if self.refuses else answer).encode()
        self.send_response(400 if self.refuses else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def price_list(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[PriceList]]:
    server = HTTPServer(("127.0.0.1", 0), PriceList)
    monkeypatch.setattr(PriceList, "asked", [])
    monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with serving(server):
        yield PriceList


def test_the_price_is_that_of_training_by_the_hour_in_the_region(price_list: type[PriceList]) -> None:
    prices = listed_prices(boto3.Session(), "us-west-2", ["ml.g5.xlarge", "ml.new.xlarge", "ml.g5.xlarge"])
    assert prices.usd_per_hour == {"ml.g5.xlarge": 1.408}
    assert (prices.region, prices.source) == ("us-west-2", "AWS Price List API")
    assert {(asked["regionCode"], asked["instanceName"]) for asked in price_list.asked} == {
        ("us-west-2", "ml.g5.xlarge"),
        ("us-west-2", "ml.new.xlarge"),
    }


def test_a_refusal_is_one_error(price_list: type[PriceList], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_list, "refuses", True)
    with pytest.raises(DeniedError, match="pricing:GetProducts"):
        listed_prices(boto3.Session(), "us-west-2", ["ml.g5.xlarge"])


def test_accounts_of_another_partition_ask_for_no_prices(price_list: type[PriceList]) -> None:
    for region, partition in (("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")):
        with pytest.raises(PricesUnknownError, match=f"accounts of {partition}"):
            listed_prices(boto3.Session(), region, ["ml.g5.xlarge"])
    assert price_list.asked == []


def test_a_plan_has_the_prices_of_the_region_in_which_the_stack_was_found(price_list: type[PriceList]) -> None:
    spec = parse_spec({"replicas": 1, "entrypoint": ["true"], "image": "i:1", "instance_type": "ml.g5.xlarge"})
    cloud = Cloud(None, boto3.Session(region_name="us-west-2"))
    machine = "arn:aws:states:us-west-2:123456789012:stateMachine:Runs"
    vars(cloud.connection)["stack"] = Stack("Muster", machine, "the-bucket", "muster")
    found = DeploymentContext.of(cloud, spec)
    assert (found.prices.region, found.prices.usd_per_hour) == ("us-west-2", {"ml.g5.xlarge": 1.408})
