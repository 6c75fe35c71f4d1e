"""The session of the client's own calls chooses profile, region and credentials as boto3's does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from muster.client.aws.connection import open_session
from muster.client.aws.light_session import AnySession, LightSession
from muster.client.errors import CredentialsError

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


@pytest.mark.parametrize("profile", [None, "other"])
@pytest.mark.parametrize("region", [None, "ap-south-1"])
def test_it_chooses_as_boto3_does(profile: str | None, region: str | None) -> None:
    ours, theirs = LightSession(profile, region), boto3.Session(profile_name=profile, region_name=region)
    assert (ours.profile_name, ours.region_name) == (theirs.profile_name, theirs.region_name)
    assert key_of(ours) == key_of(theirs)
    assert ours.get_partition_for_region("cn-north-1") == theirs.get_partition_for_region("cn-north-1") == "aws-cn"


def test_the_environment_chooses_where_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert (open_session(None, None).profile_name, open_session(None, None).region_name) == ("other", "us-gov-west-1")
    monkeypatch.setenv("AWS_REGION", "sa-east-1")
    assert open_session(None, None).region_name == "sa-east-1"
    assert open_session(None, "eu-north-1").region_name == "eu-north-1"


def test_a_profile_that_does_not_exist_is_an_error_at_once() -> None:
    with pytest.raises(CredentialsError, match="absent"):
        open_session("absent", None)


def test_the_client_needs_no_boto3() -> None:
    code = "import sys; sys.modules['boto3'] = None\nfrom muster import Muster\nMuster(region='eu-west-1')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
