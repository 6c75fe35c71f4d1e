"""Context keys: what is taken, and the one line that says what is not."""

from __future__ import annotations

import json

import pytest

from infra.settings.stack_settings import Platform, StackSettings
from muster.contract.errors import ConfigurationError
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.network_access import VpcConfig


def test_nothing_set_gives_the_defaults() -> None:
    assert StackSettings.from_context({}.get) == StackSettings()
    assert StackSettings().rearm_seconds == 21_600


def test_values_come_as_text_from_the_command_line_and_as_numbers_from_cdk_json() -> None:
    text = {"job_prefix": "team7", "target": "local", "rearm_seconds": "60", "log_retention_days": "30"}
    number = {**text, "rearm_seconds": 60.0, "log_retention_days": 30}
    wanted = StackSettings(job_prefix="team7", target=Platform.LOCAL, rearm_seconds=60, log_retention_days=30)
    assert StackSettings.from_context(text.get) == StackSettings.from_context(number.get) == wanted


@pytest.mark.parametrize("key", ["health_alarms", "dashboard"])
def test_what_costs_something_at_rest_can_be_left_out(key: str) -> None:
    for value in (False, "false"):
        assert getattr(StackSettings.from_context({key: value}.get), key) is False
    for value in (True, "true", None):
        assert getattr(StackSettings.from_context({key: value}.get), key) is True


def test_only_a_local_run_is_short_enough_to_be_rearmed_every_few_seconds() -> None:
    assert StackSettings.from_context({"target": "local", "rearm_seconds": 5}.get).rearm_seconds == 5
    with pytest.raises(ConfigurationError, match="from 5 to"):
        StackSettings.from_context({"target": "local", "rearm_seconds": 4}.get)


def test_defaults_come_as_objects_from_cdk_json_and_as_json_from_the_command_line() -> None:
    vpc = {"subnets": ["subnet-1", "subnet-2"], "security_group_ids": ["sg-1"]}
    key = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab"
    given = {
        "replica_instance_type": "ml.g5.xlarge",
        "replica_role_arn": "arn:aws:iam::123456789012:role/team",
        "replica_vpc": vpc,
        "replica_kms_key_arn": key,
        "replica_tags": {"team": "research"},
    }
    settings = StackSettings.from_context(given.get)
    text = {**given, "replica_vpc": json.dumps(vpc), "replica_tags": '{"team": "research"}'}
    assert StackSettings.from_context(text.get) == settings
    assert settings.replica_role_arn == "arn:aws:iam::123456789012:role/team"
    assert settings.defaults == StackDefaults(
        instance_type="ml.g5.xlarge",
        vpc_config=VpcConfig(subnets=["subnet-1", "subnet-2"], security_group_ids=["sg-1"]),
        kms_key_id=key,
        tags={"team": "research"},
    )


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("job_prefix", "with-hyphen", "1 to 11 letters and digits"),
        ("job_prefix", "twelveletter", "1 to 11 letters and digits"),
        ("job_prefix", "", "1 to 11 letters and digits"),
        ("job_prefix", "new\nline", "1 to 11 letters and digits"),
        ("replica_image", "two words", "no white space"),
        ("replica_image", "x" * 256, "at most 255 characters"),
        ("replica_instance_type", "g5.xlarge", "ml.family.size"),
        ("replica_role_arn", "role/replica-of-the-team", "write the role's whole ARN"),
        ("replica_vpc", "subnet-1", "a mapping"),
        ("replica_vpc", {"subnets": ["subnet-1"]}, "security_group_ids: it is required"),
        ("replica_vpc", {"subnets": [], "security_group_ids": ["sg-1"]}, "subnets: at least 1 entry"),
        ("replica_vpc", {"subnets": ["s"], "security_group_ids": ["sg-1"] * 6}, "at most 5 entries"),
        ("replica_kms_key_arn", "alias/team", "the key's ARN"),
        ("replica_tags", '["team"]', "write a mapping"),
        ("replica_tags", {"muster:run": "mine"}, "begins with neither aws: nor muster:"),
        ("replica_tags", {f"key{n}": "v" * 200 for n in range(44)}, "in 3,000 bytes"),
        ("bucket_name", "Team", "lower-case letters"),
        ("target", "azure", "one of aws, local"),
        ("rearm_seconds", "7599", "from 7600 to 31536000"),
        ("rearm_seconds", "1.5", "a whole number"),
        ("rearm_seconds", 1.5, "a whole number"),
        ("rearm_seconds", True, "a whole number"),
        ("rearm_seconds", "9" * 5_000, "a whole number"),
        ("max_concurrent_replicas", 0, "a whole number from 1 to 1000000"),
        ("launches_per_second", 0, "a whole number from 1 to 1000"),
        ("launches_per_second", "1001", "a whole number from 1 to 1000"),
        ("health_alarms", "yes", "true or false"),
        ("dashboard", 1, "true or false"),
        ("notify_email", "nobody", "like team@example.com"),
        ("schedules", "{", "names to schedules"),
        ("schedules", [], "a mapping"),
        ("schedules", {"two words": {}}, "letters, digits and single hyphens"),
        ("schedules", {"nightly": {"at": "cron(0 3 * * ? *)"}}, "one of spec and spec_key"),
        ("schedules", {"nightly": {"at": "at night", "spec_key": "inbox/x"}}, "rate(1 day)"),
        ("schedules", {"nightly": {"at": "rate(1 day)", "spec_key": "control/x"}}, "begins with inbox/"),
        (
            "schedules",
            {"nightly": {"at": "rate(1 day)", "spec": {"replicas": 1}}},
            "trainer: neither trainer nor entrypoint",
        ),
        ("sweep_hours", "-1", "from 0 (never) to 168"),
        ("sweep_hours", 169, "from 0 (never) to 168"),
        ("log_retention_days", "8", "one of 1, 3, 5, 7"),
        ("log_retention_days", [30], "one of 1, 3, 5, 7"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(key: str, value: object, allowed: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        StackSettings.from_context({key: value}.get)
    message = str(refused.value)
    assert f"context key {key}" in message
    assert allowed in message
    assert "\n" not in message
    assert len(message) < 400
