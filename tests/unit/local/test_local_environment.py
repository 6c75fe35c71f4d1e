"""What processes see: the embedded cloud, and nothing that leads elsewhere."""

import subprocess
from pathlib import Path

from muster.local.process_environment import bare_environment, client_environment, endpoint_variables, shell_lines
from tests.support.local_samples import STATE

REAL = {
    "AWS_PROFILE": "production",
    "AWS_SESSION_TOKEN": "real",
    "AWS_ACCESS_KEY_ID": "AKIAREAL",
    "AWS_SECRET_ACCESS_KEY": "real",
    "AWS_ROLE_ARN": "arn:aws:iam::1:role/real",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/token",
    "AWS_ENDPOINT_URL_STS": "https://sts.amazonaws.com",
    "AWS_ENDPOINT_URL_SAGEMAKER": "https://api.sagemaker.eu-central-1.amazonaws.com",
    "AWS_CA_BUNDLE": "/etc/real.pem",
    "NODE_EXTRA_CA_CERTS": "/etc/real.pem",
    "AWS_REGION": "us-west-2",
    "AWS_CONFIG_FILE": "/home/user/.aws/config",
    "NO_PROXY": "internal.example",
    "EDITOR": "vi",
}


def test_a_clients_environment_is_turned_as_a_whole() -> None:
    turned = client_environment(STATE, REAL)
    assert turned["EDITOR"] == "vi"
    assert not any("real" in value.lower() for value in turned.values())
    for gone in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "AWS_ENDPOINT_URL_STS"):
        assert gone not in turned
    assert "AWS_ENDPOINT_URL_SAGEMAKER" not in turned
    assert turned["AWS_ENDPOINT_URL"] == turned["AWS_ENDPOINT_URL_S3"] == STATE.endpoint
    assert turned["AWS_REGION"] == turned["AWS_DEFAULT_REGION"] == "eu-central-1"
    assert turned["AWS_CONFIG_FILE"] == turned["AWS_SHARED_CREDENTIALS_FILE"] == "/dev/null"
    assert turned["AWS_CA_BUNDLE"] == turned["NODE_EXTRA_CA_CERTS"] == "/state/ca.pem"
    assert turned["SSL_CERT_FILE"] == turned["REQUESTS_CA_BUNDLE"] == "/state/bundle.pem"
    assert turned["NO_PROXY"] == "internal.example,127.0.0.1,localhost"
    assert client_environment(STATE, turned) == turned, "a second time changes nothing"


def test_the_lines_for_a_shell_do_the_same() -> None:
    script = "\n".join([*shell_lines(STATE, REAL), "env -0"])
    shell = subprocess.run(
        ["bash", "-c", script], env={**REAL, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    seen = dict(entry.split("=", 1) for entry in shell.stdout.split("\0") if entry)
    for name in ("PATH", "PWD", "SHLVL", "_", "OLDPWD"):
        seen.pop(name, None)
    assert seen == client_environment(STATE, REAL)


def test_a_bare_environment_has_nothing_of_the_users_and_the_endpoints_variables_no_credentials(tmp_path: Path) -> None:
    bare = bare_environment(tmp_path / "home", tmp_path / "tmp")
    assert bare.keys() == {"PATH", "LANG", "HOME", "TMPDIR"}
    assert bare["HOME"] == str(tmp_path / "home")
    variables = endpoint_variables(STATE.endpoint, STATE.region, STATE.ca_file)
    assert not [name for name in variables if "KEY" in name or "TOKEN" in name]
