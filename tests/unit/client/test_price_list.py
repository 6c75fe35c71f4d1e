"""The prices of today, from a Price List API whose answers are given here."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from muster.client.aws.cloud import Cloud
from muster.client.aws.deployed_stack import Stack
from muster.client.aws.price_list import PricesUnknownError, listed_prices
from muster.client.client_errors import DeniedError
from muster.client.launch.dry_run import DeploymentContext
from muster.contract.spec.spec_reader import parse_spec


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


@dataclass
class PriceList:
    """Answers GetProducts in the place of the service, one offer to a page."""

    asked: list[dict[str, str]] = field(default_factory=list)
    refuses: bool = False

    def answer(self, params: dict[str, Any], **_: object) -> tuple[SimpleNamespace, dict[str, Any]]:
        body = json.loads(params["body"])
        self.asked.append({item["Field"]: item["Value"] for item in body["Filters"]})
        if self.refuses:
            return SimpleNamespace(status_code=400), {"Error": {"Code": "AccessDeniedException", "Message": "no"}}
        offers, page = OFFERS.get(self.asked[-1]["instanceName"], []), int(body.get("NextToken", 0))
        following = {"NextToken": str(page + 1)} if page + 1 < len(offers) else {}
        return SimpleNamespace(status_code=200), {"PriceList": offers[page : page + 1], **following}

    def session(self, region: str | None = None) -> boto3.Session:
        session = boto3.Session("key", "secret", region_name=region)
        session.events.register("before-call.pricing.GetProducts", self.answer)
        return session


@pytest.fixture
def price_list(monkeypatch: pytest.MonkeyPatch) -> PriceList:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return PriceList()


def test_the_price_is_that_of_training_by_the_hour_in_the_region(price_list: PriceList) -> None:
    prices = listed_prices(price_list.session(), "us-west-2", ["ml.g5.xlarge", "ml.new.xlarge", "ml.g5.xlarge"])
    assert prices.usd_per_hour == {"ml.g5.xlarge": 1.408}
    assert (prices.region, prices.source) == ("us-west-2", "AWS Price List API")
    assert {(asked["regionCode"], asked["instanceName"]) for asked in price_list.asked} == {
        ("us-west-2", "ml.g5.xlarge"),
        ("us-west-2", "ml.new.xlarge"),
    }


def test_a_refusal_is_one_error(price_list: PriceList) -> None:
    price_list.refuses = True
    with pytest.raises(DeniedError, match="GetProducts"):
        listed_prices(price_list.session(), "us-west-2", ["ml.g5.xlarge"])


def test_accounts_of_another_partition_ask_for_no_prices(price_list: PriceList) -> None:
    for region, partition in (("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")):
        with pytest.raises(PricesUnknownError, match=f"accounts of {partition}"):
            listed_prices(price_list.session(), region, ["ml.g5.xlarge"])
    assert price_list.asked == []


def test_a_plan_has_the_prices_of_the_region_in_which_the_stack_was_found(price_list: PriceList) -> None:
    spec = parse_spec({"replicas": 1, "entrypoint": ["true"], "image": "i:1", "instance_type": "ml.g5.xlarge"})
    cloud = Cloud(None, price_list.session("us-west-2"))
    machine = "arn:aws:states:us-west-2:123456789012:stateMachine:Runs"
    vars(cloud.connection)["stack"] = Stack("Muster", machine, "the-bucket", "muster")
    found = DeploymentContext.of(cloud, spec)
    assert (found.prices.region, found.prices.usd_per_hour) == ("us-west-2", {"ml.g5.xlarge": 1.408})
