"""The endpoint of the credentials of a job's process."""

import json
from pathlib import Path
from typing import Any

import pytest
import urllib3

from muster.local.ministack.role_sessions import RoleCredentials
from muster.local.sagemaker import container_credentials
from muster.local.sagemaker.container_credentials import CredentialEndpoint


def ask(uri: str, **headers: str) -> tuple[int, dict[str, Any]]:
    answer = urllib3.request("GET", uri, headers=headers)
    return answer.status, json.loads(answer.data)


class Issuer:
    """Makes credentials and counts them."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, seconds: float) -> RoleCredentials:
        assert seconds > 0
        self.made += 1
        return RoleCredentials(f"ASIA{self.made}", "secret", "token")


def test_credentials_are_for_who_has_the_token_as_long_as_its_file_exists(tmp_path: Path) -> None:
    endpoint, file = CredentialEndpoint(), tmp_path / "token"
    variables = endpoint.offer(Issuer(), file)
    uri, token = variables["AWS_CONTAINER_CREDENTIALS_FULL_URI"], file.read_text()
    assert variables["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] == str(file)
    assert file.stat().st_mode & 0o077 == 0
    refused = (401, {})
    assert ask(uri) == ask(uri, Authorization="no") == ask(f"{uri}0", Authorization=token) == refused
    status, given = ask(uri, Authorization=token)
    assert (status, given["AccessKeyId"], given["Token"]) == (200, "ASIA1", "token")
    file.unlink()
    assert ask(uri, Authorization=token) == refused


def test_credentials_are_renewed_before_they_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, file = CredentialEndpoint(), tmp_path / "token"
    uri = endpoint.offer(Issuer(), file)["AWS_CONTAINER_CREDENTIALS_FULL_URI"]

    def key() -> str:
        return str(ask(uri, Authorization=file.read_text())[1]["AccessKeyId"])

    assert [key(), key()] == ["ASIA1", "ASIA1"]
    monkeypatch.setattr(container_credentials, "_RENEWED_BEFORE", container_credentials._SECONDS + 1)
    assert key() == "ASIA2"
