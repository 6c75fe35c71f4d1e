"""References to secrets in a spec's environment: their forms, and who may refer to what."""

from typing import Any

import pytest

from muster.contract.run.last_lines import without_secrets
from muster.contract.spec.replica_access import ReplicaAccess
from muster.contract.spec.secret_references import read_reference
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.stack_defaults import StackDefaults
from tests.support.refused_specs import refused_fields

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:team/wandb-AbC123"
FIELD = "environment.HF_TOKEN"
BASE: dict[str, Any] = {"replicas": 2, "image": "i", "trainer": "m:f"}


def test_a_reference_names_a_secret_one_of_its_values_or_a_parameter() -> None:
    read = [
        read_reference(text) for text in (f"secretsmanager:{ARN}#key", "secretsmanager:a/b#c.d", "ssm:/a/b", "ssm:x")
    ]
    assert [(one.service, one.name, one.key, one.region) for one in read if one is not None] == [
        ("secretsmanager", ARN, "key", "eu-west-1"),
        ("secretsmanager", "a/b", "c.d", ""),
        ("ssm", "/a/b", "", ""),
        ("ssm", "x", "", ""),
    ]


@pytest.mark.parametrize(
    "value",
    ["secretsmanager:", "secretsmanager:a*", f"secretsmanager:{ARN[:-7]}", "secretsmanager:a#", "ssm:/a#b", "ssm://a"],
)
def test_what_begins_as_a_reference_and_is_none_is_refused_without_its_value(value: str) -> None:
    said = refused_fields({**BASE, "environment": {"HF_TOKEN": value}})[FIELD]
    assert said.startswith("it begins as a reference to a secret, and is none; secretsmanager:NAME")
    assert value not in said.partition(";")[0]


def test_a_program_of_the_users_own_image_has_nobody_who_reads_its_secrets() -> None:
    own = {"entrypoint": ["python", "train.py"], "trainer": None, "environment": {"HF_TOKEN": "ssm:/hf"}}
    assert "set source_dir" in refused_fields({**BASE, **own})[FIELD]
    delivered = {**BASE, **own, "source_dir": f"s3://bucket/source/{'a' * 64}.tar.gz"}
    parse_spec({name: value for name, value in delivered.items() if value is not None})


def test_a_spec_refers_to_what_the_settings_name() -> None:
    environment = {"HF_TOKEN": "secretsmanager:hf", "WANDB": f"secretsmanager:{ARN}#key"}
    fields = {**BASE, "environment": environment, "overrides": {"1": {"environment": {"PROXY": "ssm:/proxy"}}}}
    known = [f"secretsmanager:{ARN}"]

    def told(secrets: list[str] | None, **more: Any) -> list[str]:
        stack = StackDefaults(access=ReplicaAccess(secrets=secrets, roles=["arn:aws:iam::123456789012:role/own"]))
        return [str(problem) for problem in stack.problems(parse_spec({**fields, **more}), "arn:aws:iam::1:role/r")]

    line = f'secrets = ["secretsmanager:{ARN}", "secretsmanager:hf", "ssm:/proxy"]'
    ending = f"; the secrets that the settings name: secretsmanager:{ARN}; write {line} in the table [replicas] "
    ending += "of muster.toml and deploy"
    assert told(known) == [
        f"environment.HF_TOKEN: found 'secretsmanager:hf'{ending}",
        f"overrides.1.environment.PROXY: found 'ssm:/proxy'{ending}",
    ]
    assert told([*known, "secretsmanager:hf", "ssm:/proxy"]) == []
    assert len(told([])) == 3
    # What another role may read is not known.
    assert told(None) == told([], role_arn="arn:aws:iam::123456789012:role/own") == []


def test_a_reference_is_no_secret_itself() -> None:
    text = "The variable HF_TOKEN refers to secretsmanager:hf-token, which cannot be read: AccessDenied for key-0123456"
    shown = without_secrets(text, {"HF_TOKEN": "secretsmanager:hf-token", "KEY": "key-0123456"})
    assert shown == text.replace("key-0123456", "(KEY, not shown)")
