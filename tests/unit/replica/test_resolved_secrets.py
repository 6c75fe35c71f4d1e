"""References to secrets in the environment: what is asked for, what the program finds, and how what fails is told."""

import json
from pathlib import Path

import pytest

from muster.contract.exits import ReplicaExit
from muster.contract.run.last_lines import without_resolved
from muster.contract.run.replica_variables import ENV_RESOLVED
from muster.replica.entry import launch, resolved_secrets
from muster.replica.entry.resolved_secrets import TRIES, SecretError, resolve_secrets
from tests.support.s3_server import RESET, Raw, S3Server, answer

WHOLE = "secretsmanager:team/hf-token"
OF_KEY = "secretsmanager:arn:aws:secretsmanager:eu-west-1:123456789012:secret:wandb-AbC123#api_key"
PARAMETER = "ssm:/team/proxy"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolved_secrets, "_WAIT_SECONDS", 0.001)


def said(status: int, **document: object) -> Raw:
    return answer(status, json.dumps(document).encode())


def refused(s3: S3Server, value: str = WHOLE, **variables: str) -> SecretError:
    with pytest.raises(SecretError) as error:
        resolve_secrets({**s3.environment, "HF_TOKEN": value, **variables})
    return error.value


def test_each_reference_is_replaced_by_its_value_once(s3: S3Server) -> None:
    value = "ssm:/not/again"  # as it is, even if it looks like a reference
    s3.script(
        said(200, SecretString=value),
        said(200, SecretString='{"api_key": "of-the-key", "number": 1}'),
        said(200, Parameter={"Value": "http://proxy"}),
    )
    variables = {**s3.environment, "PLAIN": "as it is", "HF_TOKEN": WHOLE, "WANDB": OF_KEY, "PROXY": PARAMETER}
    resolve_secrets(variables)
    resolve_secrets(variables)
    found = {name: variables[name] for name in ("PLAIN", "HF_TOKEN", "WANDB", "PROXY")}
    assert found == {"PLAIN": "as it is", "HF_TOKEN": value, "WANDB": "of-the-key", "PROXY": "http://proxy"}
    assert [(one.headers["x-amz-target"], json.loads(one.body)) for one in s3.requests] == [
        ("secretsmanager.GetSecretValue", {"SecretId": "team/hf-token"}),
        ("secretsmanager.GetSecretValue", {"SecretId": OF_KEY.partition(":")[2].partition("#")[0]}),
        ("AmazonSSM.GetParameter", {"Name": "/team/proxy", "WithDecryption": True}),
    ]
    # An ARN's region is the one that is asked.
    regions = [one.headers["authorization"].split("/")[2:4] for one in s3.requests]
    assert regions == [["eu-central-1", "secretsmanager"], ["eu-west-1", "secretsmanager"], ["eu-central-1", "ssm"]]


def test_what_a_replica_reports_shows_no_value_that_it_has_read() -> None:
    variables = {"HF_TOKEN": "hf_0123456789", "PLAIN": "hf_plain_text", ENV_RESOLVED: "HF_TOKEN"}
    line = "m:train failed: train.py:1: ValueError: hf_0123456789 and hf_plain_text"
    assert without_resolved(line, variables) == line.replace("hf_0123456789", "(HF_TOKEN, not shown)")


def test_a_secret_that_cannot_be_read_ends_the_replica_with_one_line(s3: S3Server, subtests: pytest.Subtests) -> None:
    denied = {"__type": "com.amazon#AccessDeniedException", "Message": "not authorized to perform GetSecretValue"}
    rows = {
        "AccessDeniedException: not authorized": (WHOLE, said(400, **denied)),
        "ResourceNotFoundException": (WHOLE, said(400, __type="ResourceNotFoundException")),
        "no JSON object with the key 'api_key'": (OF_KEY, said(200, SecretString='{"other": "hidden"}')),
        "only bytes": (WHOLE, said(200, SecretBinary="aGlkZGVu")),
        "null character": (WHOLE, said(200, SecretString="hidden\0")),
        "HTTP status 302": (WHOLE, answer(302, Location="/elsewhere")),
        "allowed: secretsmanager:NAME": ("ssm:/a b", said(200)),
    }
    for words, (value, reply) in rows.items():
        with subtests.test(words):
            s3.script(reply)
            error = refused(s3, value)
            assert (error.code, len(s3.requests) < 2) == (ReplicaExit.BAD_INPUT, True)
            assert str(error).startswith(f"The variable HF_TOKEN refers to {value}, which cannot be read: ")
            assert words in str(error)
            assert "hidden" not in str(error)
    assert "credentials" in str(refused(s3, AWS_ACCESS_KEY_ID=""))


def test_a_busy_service_is_asked_again_and_ends_the_replica_so_that_it_is_rerun(s3: S3Server) -> None:
    busy = (said(400, __type="ThrottlingException"), said(503), RESET, answer(200, b"no JSON"))
    s3.script(*busy, said(200, SecretString="there"))
    variables = {**s3.environment, "HF_TOKEN": WHOLE}
    resolve_secrets(variables)
    assert (variables["HF_TOKEN"], len(s3.requests)) == ("there", len(busy) + 1)
    s3.script(busy[0])
    error = refused(s3)
    assert (error.code, len(s3.requests)) == (ReplicaExit.RENDEZVOUS, TRIES)
    assert "ThrottlingException (in 6 tries" in str(error)


def test_a_container_reads_its_secrets_before_anything_of_the_run(
    s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    s3.script(said(400, __type="AccessDeniedException"))
    code = launch.main({**s3.environment, "SAGEMAKER_BASE_DIR": str(tmp_path), "HF_TOKEN": WHOLE})
    reason = (tmp_path / "output" / "failure").read_text()
    assert (code, reason.startswith("[bad-input] The variable HF_TOKEN refers to")) == (ReplicaExit.BAD_INPUT, True)
    assert "Traceback" not in capsys.readouterr().err
