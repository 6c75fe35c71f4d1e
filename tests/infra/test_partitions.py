"""One template for every partition and region, and settings that name what another one has."""

import json
import re

import boto3

from muster.contract.aws.partitions import Locality
from muster.contract.aws.stock_images import stock_registry
from muster.infra.deploy.account import Account
from muster.infra.deploy.preflight import Preflight
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import Platform
from tests.infra.variants import Variant
from tests.support.template import Template

ACCOUNT = "123456789012"

PARTITIONS = {
    "us-east-1": "aws",
    "eu-south-1": "aws",
    "us-gov-east-1": "aws-us-gov",
    "us-gov-west-1": "aws-us-gov",
    "cn-northwest-1": "aws-cn",
}


def test_the_example_names_awss_own_image_of_the_region(variant: Variant) -> None:
    body = variant("bare").body
    for region, partition in PARTITIONS.items():
        suffix = Locality(partition, region, ACCOUNT).dns_suffix
        there = Template(body, {"AWS::Region": region, "AWS::Partition": partition, "AWS::URLSuffix": suffix})
        spec = json.loads(there.resolve(body["Outputs"]["ExampleInput"]["Value"]))
        assert spec["image"].startswith(f"{stock_registry(region)}/pytorch-training:"), region


def test_the_template_names_no_partition_and_no_domain(variant: Variant) -> None:
    text = json.dumps(variant("bare").body)
    assert "arn:aws" not in text
    # What is left are the names of services as principals, which are the same in every partition.
    assert not re.findall(r"(?<![a-z])\.amazonaws\.com", re.sub(r'"[a-z0-9-]+\.amazonaws\.com"', "", text))


def test_settings_of_another_partition_or_region_are_refused_all_at_once() -> None:
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.7.1"
    spec = {"replicas": 1, "entrypoint": ["a"], "volume_kms_key_id": f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/1"}
    tables = {
        "stack": {"kms_key_arn": f"arn:aws-us-gov:kms:us-gov-east-1:{ACCOUNT}:key/1"},
        "replicas": {"image": image, "role_arn": f"arn:aws:iam::{ACCOUNT}:role/replicas"},
        "schedules": {"nightly": {"at": "rate(1 day)", "spec": spec}},
    }
    settings = parse_settings(tables, Platform.AWS)
    place = Locality("aws-us-gov", "us-gov-west-1", ACCOUNT)
    session = boto3.Session(region_name=place.region)
    found = Preflight(Account(session), place, settings, None).problems()
    assert [problem.field for problem in found] == [
        "stack.kms_key_arn",
        "replicas.image",
        "replicas.role_arn",
        "schedules.nightly.spec.volume_kms_key_id",
    ]
    assert "442386744353.dkr.ecr.us-gov-west-1.amazonaws.com/pytorch-training:2.7.1" in str(found[1])
