"""Partitions as botocore knows them, and AWS's own images in them."""

from __future__ import annotations

import json
from pathlib import Path

import botocore
import pytest

from muster.contract.aws.partitions import CONSOLE_DOMAINS, Locality, console_base, dns_suffix
from muster.contract.aws.stock_images import STOCK_ACCOUNTS, stock_registry

PARTITIONS = json.loads((Path(botocore.__file__).parent / "data" / "partitions.json").read_bytes())["partitions"]


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda partition: partition["id"])
def test_the_domain_of_every_region_is_botocores(partition: dict[str, object]) -> None:
    regions, outputs = partition["regions"], partition["outputs"]
    assert isinstance(regions, dict)
    assert isinstance(outputs, dict)
    named = [region for region in regions if not region.endswith("-global")]
    assert {dns_suffix(region) for region in named} <= {outputs["dnsSuffix"]}


def test_every_partition_of_the_internet_has_a_console() -> None:
    known = {partition["id"] for partition in PARTITIONS}
    assert set(CONSOLE_DOMAINS) <= known
    assert console_base("aws-cn", "cn-north-1") == "https://cn-north-1.console.amazonaws.cn"


@pytest.mark.parametrize(
    ("region", "registry"),
    [
        ("eu-west-1", "763104351884.dkr.ecr.eu-west-1.amazonaws.com"),
        ("us-gov-west-1", "442386744353.dkr.ecr.us-gov-west-1.amazonaws.com"),
        ("us-gov-east-1", "446045086412.dkr.ecr.us-gov-east-1.amazonaws.com"),
        ("cn-north-1", "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn"),
        ("cn-northwest-1", "727897471807.dkr.ecr.cn-northwest-1.amazonaws.com.cn"),
    ],
)
def test_awss_own_images_are_in_another_account_in_each_partition(region: str, registry: str) -> None:
    assert stock_registry(region) == registry


def test_every_region_with_an_account_of_its_own_is_a_region() -> None:
    assert set(STOCK_ACCOUNTS) <= {region for partition in PARTITIONS for region in partition["regions"]}


def test_an_arn_says_where_its_resource_is() -> None:
    arn = "arn:aws-cn:states:cn-north-1:123456789012:execution:Runs:r"
    assert Locality.of_arn(arn) == Locality("aws-cn", "cn-north-1", "123456789012")
