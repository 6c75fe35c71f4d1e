"""The data, policies and roles that a deployment gives its replicas beyond the stack's bucket."""

import pytest

from muster.infra.settings.settings_file import SettingsError, parse_settings, parse_tables
from muster.infra.settings.stack_settings import Platform
from tests.infra.variants import KEY, POLICY, ROLE, SECRET, Variant
from tests.support.template import Template


@pytest.fixture(scope="module")
def with_data(variant: Variant) -> Template:
    return variant("data")


def test_a_replica_reads_what_lies_under_the_prefixes_and_changes_nothing(with_data: Template) -> None:
    readable = ("team-data/sets/train/0.parquet", "team-data/labels/0.csv", "public/anything")
    for key in (*readable, "team-data/sets2/0.parquet", "team-data/secrets", "other/sets/train"):
        arn = f"arn:aws:s3:::{key}"
        assert with_data.allows("Replica", "s3:GetObject", arn) == (key in readable), key
        for action in ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"):
            assert not with_data.allows("Replica", action, arn), key


def test_a_replica_lists_the_prefixes_only(with_data: Template) -> None:
    def lists(bucket: str, prefix: str) -> bool:
        return with_data.allows("Replica", "s3:ListBucket", f"arn:aws:s3:::{bucket}", {"s3:prefix": prefix})

    assert lists("team-data", "sets/")
    assert lists("team-data", "labels/new/")
    assert lists("public", "")
    assert not lists("team-data", "")
    assert not lists("team-data", "sets")
    assert not lists("other", "sets/")
    assert not with_data.allows("Replica", "s3:ListBucket", "arn:aws:s3:::team-data")


def test_a_replica_decrypts_with_the_keys_of_the_data_and_does_no_more_with_them(with_data: Template) -> None:
    actions = ("kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey", "kms:CreateGrant")
    assert [action for action in actions if with_data.allows("Replica", action, KEY)] == ["kms:Decrypt"]


def test_a_role_reads_the_secrets_that_the_settings_name_and_no_other(variant: Variant, with_data: Template) -> None:
    here = "REGION:ACCOUNT"
    for action, arn, role, allowed in (
        # Secrets Manager adds a hyphen and six characters; another secret's name may go on.
        (
            "secretsmanager:GetSecretValue",
            f"arn:aws:secretsmanager:{here}:secret:team/hf-token-AbC123",
            "Replica",
            True,
        ),
        ("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:{here}:secret:team/hf-token", "Replica", False),
        (
            "secretsmanager:GetSecretValue",
            f"arn:aws:secretsmanager:{here}:secret:team/hf-token-2-AbC123",
            "Replica",
            False,
        ),
        ("secretsmanager:GetSecretValue", SECRET, "Replica", True),
        ("secretsmanager:GetSecretValue", SECRET.replace("AbC123", "AbC124"), "Replica", False),
        ("secretsmanager:PutSecretValue", SECRET, "Replica", False),
        ("ssm:GetParameter", f"arn:aws:ssm:{here}:parameter/team/proxy", "Replica", True),
        ("ssm:GetParameter", f"arn:aws:ssm:{here}:parameter/team/proxy/more", "Replica", False),
        ("ssm:GetParameter", f"arn:aws:ssm:{here}:parameter/team/proxy", "Attempt", False),
    ):
        assert with_data.allows(role, action, arn) is allowed, (action, arn)
    clusters = variant("clusters")
    assert clusters.allows("Pod", "ssm:GetParameter", f"arn:aws:ssm:{here}:parameter/team/proxy")
    assert clusters.allows("Pod", "kms:Decrypt", KEY)


def test_policies_are_attached_to_the_replica_role_alone(variant: Variant) -> None:
    roles = variant("policies").of_type("AWS::IAM::Role")
    attached = [name for name, role in roles.items() if POLICY in role["Properties"].get("ManagedPolicyArns", [])]
    assert [name.startswith("ReplicaRole") for name in attached] == [True]


def test_a_further_role_can_be_passed_to_sagemaker_only(with_data: Template) -> None:
    passing = [item for item in with_data.statements if "iam:PassRole" in item.actions and ROLE in item.resources]
    assert [item.condition for item in passing] == [
        {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    ]


MANY = ", ".join(f'"s3://team/{number}/"' for number in range(21))


IMPOSSIBLE = {
    'data = ["s3://team/sets"]': "replicas.data.0: found 's3://team/sets'; allowed: s3://bucket/",
    'data = ["s3://team/*/"]': "without * ? $ and spaces",
    'data = ["team/sets/"]': "replicas.data.0: found 'team/sets/'",
    'data = ["s3://team/${aws:username}/"]': "without * ? $ and spaces",
    f"data = [{MANY}]": "replicas.data: found 21 entries; at most 20 entries",
    'data_kms_key_arns = ["alias/x"]\ndata = ["s3://team/"]': "write the key's ARN",
    f'data_kms_key_arns = ["{KEY}"]': "set without replicas.data",
    f'data = ["s3://team/"]\nrole_arn = "{ROLE}"': "replicas.data: set together with replicas.role_arn",
    f'policy_arns = ["{POLICY}"]\nrole_arn = "{ROLE}"': "replicas.policy_arns: set together with",
    'secrets = ["secretsmanager:team/*"]': "found 'secretsmanager:team/*'; allowed: secretsmanager:NAME",
    'secrets = ["hf-token"]': "write it as a spec does, without #key",
    f'secrets_kms_key_arns = ["{KEY}"]': "set without replicas.secrets",
    f'secrets = ["ssm:/x"]\nrole_arn = "{ROLE}"': "replicas.secrets: set together with replicas.role_arn",
    'further_role_arns = ["training"]': "write the role's whole ARN",
    'data = ["s3://team-rendezvous/"]': "replicas.data.0: found 's3://team-rendezvous/'; not in the stack's own",
    'data = ["s3://team-rendezvous/control/"]': "use another prefix",
    '[recipes]\nsources = ["s3://team-rendezvous/control/x/"]': "recipes.sources.0: found",
}
"""Lines of the table replicas, and what is said of them."""


def test_what_the_role_cannot_have_is_refused() -> None:
    for lines, said in IMPOSSIBLE.items():
        text = f'[bucket]\nname = "team-rendezvous"\n[replicas]\n{lines}'
        with pytest.raises(SettingsError) as refused:
            parse_settings(parse_tables(text), Platform.AWS, text)
        assert said in str(refused.value)
        assert len(refused.value.problems) == 1, lines


def test_data_may_lie_in_the_stacks_bucket_beside_musters_own() -> None:
    text = '[bucket]\nname = "team-rendezvous"\n[replicas]\ndata = ["s3://team-rendezvous/data/"]'
    access = parse_settings(parse_tables(text), Platform.AWS, text).defaults.access
    assert access is not None
    assert access.data == ["s3://team-rendezvous/data/"]
