"""Which changes of the settings wait until no run is in progress."""

from typing import Any

from muster.infra.deploy.settings_changes import pinned_changes

ROLE, OTHER = (f"arn:aws:iam::123456789012:role/{name}" for name in ("one", "other"))
NETWORK = {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}


# The settings of the stack, those of the next deployment, and the changes that wait.
CHANGES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({}, {}, []),
    ({"replicas": {"image": "a"}}, {"replicas": {"image": "b", "instance_type": "ml.m5.large"}}, []),
    ({}, {"replicas": {"vpc": NETWORK, "kms_key_arn": "arn:key"}}, []),
    ({"replicas": {"vpc": NETWORK}}, {"replicas": {"vpc": dict(NETWORK)}}, []),
    ({"replicas": {"vpc": NETWORK}}, {"replicas": {"vpc": {**NETWORK, "subnets": []}}}, ["replicas.vpc"]),
    ({"replicas": {"kms_key_arn": "arn:key"}}, {}, ["replicas.kms_key_arn"]),
    ({"replicas": {"further_role_arns": [ROLE, OTHER]}}, {"replicas": {"further_role_arns": [OTHER, ROLE]}}, []),
    (
        {"replicas": {"further_role_arns": [ROLE, OTHER]}},
        {"replicas": {"further_role_arns": [OTHER]}},
        ["replicas.further_role_arns"],
    ),
    ({"replicas": {"policy_arns": ["arn:a"]}}, {}, ["replicas.policy_arns"]),
    ({"replicas": {"policy_arns": ["arn:a"]}}, {"replicas": {"policy_arns": ["arn:a", "arn:b"]}}, []),
    ({"replicas": {"data_kms_key_arns": ["arn:a"]}}, {}, ["replicas.data_kms_key_arns"]),
    ({"replicas": {"secrets": ["ssm:/a", "ssm:/b"]}}, {"replicas": {"secrets": ["ssm:/b"]}}, ["replicas.secrets"]),
    ({"replicas": {"secrets_kms_key_arns": ["arn:a"]}}, {}, ["replicas.secrets_kms_key_arns"]),
    ({"replicas": {"data": ["s3://b/a/"]}}, {"replicas": {"data": ["s3://b/c/"]}}, ["replicas.data"]),
    ({"replicas": {"data": ["s3://b/a/"]}}, {"replicas": {"data": ["s3://b/"]}}, []),
    # Without the setting the stack has a role of its own, which is deleted.
    ({}, {"replicas": {"role_arn": ROLE}}, ["replicas.role_arn"]),
    ({"replicas": {"role_arn": ROLE}}, {"replicas": {"role_arn": OTHER}}, ["replicas.role_arn"]),
    ({"replicas": {"role_arn": ROLE}}, {"replicas": {"role_arn": ROLE}}, []),
]


def test_what_reruns_of_running_runs_need_is_a_pinned_change() -> None:
    for deployed, new, changed in CHANGES:
        assert [change.key for change in pinned_changes(deployed, new)] == changed, (deployed, new)
