"""The client's own session chooses as boto3's does, and its loader of models reads what botocore's does."""

from pathlib import Path

import boto3
import pytest
from botocore.exceptions import UnknownServiceError
from botocore.loaders import create_loader

from muster.client.aws.connection import open_session
from muster.client.aws.light_session import AnySession, LightSession, ServiceModels
from muster.client.client_errors import CredentialsError

FILES = {
    "config": "[default]\nregion = eu-west-1\n[profile other]\nregion = us-gov-west-1\n",
    "credentials": "[default]\naws_access_key_id = AKIADEFAULT\naws_secret_access_key = a\n"
    "[other]\naws_access_key_id = AKIAOTHER\naws_secret_access_key = b\n",
}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def key_of(session: AnySession) -> str:
    client = session.client("sts")
    return f"{client._request_signer._credentials.access_key} in {client.meta.region_name}"


def test_it_chooses_as_boto3_does() -> None:
    for profile, region in ((None, None), ("other", None), (None, "ap-south-1"), ("other", "ap-south-1")):
        ours, theirs = LightSession(profile, region), boto3.Session(profile_name=profile, region_name=region)
        assert (ours.profile_name, ours.region_name) == (theirs.profile_name, theirs.region_name)
        assert key_of(ours) == key_of(theirs), (profile, region)
    assert ours.get_partition_for_region("cn-north-1") == theirs.get_partition_for_region("cn-north-1") == "aws-cn"


def test_the_environment_chooses_where_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "other")
    monkeypatch.setenv("AWS_REGION", "sa-east-1")
    found = open_session(None, None)
    assert (found.profile_name, found.region_name) == ("other", "sa-east-1")
    assert open_session(None, "eu-north-1").region_name == "eu-north-1"
    with pytest.raises(CredentialsError, match="absent"):
        open_session("absent", None)


def test_a_model_is_that_of_botocore_or_of_the_users_configuration(tmp_path: Path) -> None:
    ours, theirs = ServiceModels(None), create_loader()
    for service in ("cloudformation", "iam", "lambda", "logs", "s3", "sagemaker", "sqs", "stepfunctions"):
        for kind in ("service-2", "paginators-1", "endpoint-rule-set-1"):
            assert ours.load_service_model(service, kind) == theirs.load_service_model(service, kind), (service, kind)
    for name in ("endpoints", "partitions", "_retry", "sdk-default-configuration"):
        assert ours.load_data(name) == theirs.load_data(name), name
    model = tmp_path / "sqs" / "2099-01-01" / "service-2.json"
    model.parent.mkdir(parents=True)
    model.write_text('{"metadata": {"serviceId": "own"}}')
    assert ServiceModels(str(tmp_path)).load_service_model("sqs", "service-2") == {"metadata": {"serviceId": "own"}}
    with pytest.raises(UnknownServiceError, match="absent"):
        ours.load_service_model("absent", "service-2")
