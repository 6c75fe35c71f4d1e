"""The replica finds its bucket's region and S3's address there without AWS_REGION."""

from __future__ import annotations

import botocore.session
import pytest

from muster.replica.store import s3_store
from muster.replica.store.s3_region import region_of, s3_endpoint
from muster.replica.store.s3_store import S3ObjectStore

JOB_ARN = "arn:aws-us-gov:sagemaker:us-gov-west-1:123456789012:training-job/other-r0"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "TRAINING_JOB_ARN")
    for name in (*s3_store.CA_VARIABLES, *names):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variables", "region"),
    [
        ({"MUSTER_REGION": "eu-west-2"}, "eu-west-2"),
        # The request is about the run's bucket; another variable may be about anything.
        ({"MUSTER_REGION": "eu-west-2", "TRAINING_JOB_ARN": JOB_ARN, "AWS_REGION": "us-east-1"}, "eu-west-2"),
        ({"TRAINING_JOB_ARN": JOB_ARN, "AWS_REGION": "us-east-1"}, "us-gov-west-1"),
        ({"TRAINING_JOB_ARN": "nonsense", "AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
        ({}, None),
    ],
)
def test_the_region_is_that_of_the_request(variables: dict[str, str], region: str | None) -> None:
    assert region_of(variables) == region


def test_a_store_needs_no_region_from_sagemaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_REGION", "cn-north-1")
    store = S3ObjectStore("bucket", "prefix/")
    assert store.client.config["region"] == "cn-north-1"
    assert store.client.config["endpoint"] == "https://s3.cn-north-1.amazonaws.com.cn"


def test_an_endpoint_of_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_REGION", "us-gov-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3-fips.us-gov-west-1.amazonaws.com")
    store = S3ObjectStore("bucket", "prefix/")
    assert store.client.config["endpoint"] == "https://s3-fips.us-gov-west-1.amazonaws.com"


def test_every_region_that_botocore_knows_has_botocores_address() -> None:
    session = botocore.session.get_session()
    regions = [
        (region, partition)
        for partition in session.get_available_partitions()
        for region in session.get_available_regions("s3", partition)
    ]
    assert len(regions) > 30
    partitions = session.get_component("data_loader").load_data("partitions")["partitions"]
    suffixes = {partition["id"]: partition["outputs"]["dnsSuffix"] for partition in partitions}
    for region, partition in regions:
        assert s3_endpoint(region) == f"https://s3.{region}.{suffixes[partition]}"
