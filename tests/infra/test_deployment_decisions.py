"""The decisions of a deployment without a cloud: what changes, and what a bucket and a key lack."""

import copy
from typing import Any

from muster.contract.aws.partitions import Locality
from muster.infra.deploy.bucket_requirements import BucketState, Requirements
from muster.infra.deploy.deployed_template import resource_changes
from muster.infra.deploy.key_policy import key_statements, missing_statements
from muster.infra.deploy.settings_changes import setting_changes, version_change

PLACE = Locality("aws-us-gov", "us-gov-west-1", "123456789012")
SPEC = {"replicas": 1, "trainer": "a:b", "environment": {"TOKEN": "a-secret"}}


def test_a_key_that_the_file_leaves_out_gets_its_default_and_a_key_that_it_sets_is_changed() -> None:
    deployed = {"stack": {"name": "A"}, "runs": {"sweep_hours": 12}, "notify": {"email": "x@y.z"}}
    new = {"stack": {"name": "B"}, "runs": {"sweep_hours": 6, "launches_per_second": 2}}
    assert [str(change) for change in setting_changes(deployed, new)] == [
        "runs.sweep_hours: 12 -> 6",
        "notify.email: x@y.z -> the default",
        "runs.launches_per_second: the default -> 2",
    ]
    assert setting_changes(deployed, deployed) == ()


def test_a_schedule_is_one_key_and_shows_none_of_its_values() -> None:
    deployed = {"schedules": {"nightly": {"at": "rate(1 day)", "spec": SPEC}, "weekly": {"at": "rate(7 days)"}}}
    [change] = setting_changes(deployed, {"schedules": {"weekly": {"at": "rate(7 days)"}}})
    assert (change.key, change.new) == ("schedules.nightly", None)
    # A spec's environment may hold a password: only the names of its fields are shown.
    assert "a-secret" not in str(change)
    assert "a spec of environment, replicas, trainer" in str(change)


def test_an_older_version_is_said_loudly() -> None:
    assert version_change(None, "0.9.2") is version_change("0.9.2", "0.9.2") is None
    assert version_change("0.9.1", "0.9.2") == "Version: 0.9.1 -> 0.9.2"
    assert (version_change("0.10.0", "0.9.2") or "").startswith("WARNING: version 0.10.0 is deployed")


def test_resources_are_listed_by_what_happens_to_them() -> None:
    def topic(**properties: str) -> dict[str, Any]:
        return {"Type": "AWS::SNS::Topic", "Properties": properties}

    kept_bucket = {"Type": "AWS::S3::Bucket", "DeletionPolicy": "Retain"}
    before = {"Resources": {"Same": topic(A="1"), "New": topic(TopicName="x"), "Old": topic(), "Data": kept_bucket}}
    after = {"Resources": {"Same": topic(A="2"), "New": topic(TopicName="y"), "More": topic()}}
    assert resource_changes(before, after) == [
        "+ AWS::SNS::Topic More",
        "~ AWS::SNS::Topic New: TopicName (replaced)",
        "~ AWS::SNS::Topic Same: A",
        "- AWS::S3::Bucket Data (stays in the account, outside the stack)",
        "- AWS::SNS::Topic Old",
    ]


RULES = [
    {"Id": "source", "Prefix": "source/", "ExpirationInDays": 400, "Status": "Enabled"},
    {
        "Id": "colder",
        "Prefix": "rendezvous/",
        "ObjectSizeGreaterThan": 131072,
        "Status": "Enabled",
        "Transitions": [{"StorageClass": "STANDARD_IA", "TransitionInDays": 35}],
    },
]
INBOX = {
    "Event": "s3:ObjectCreated:*",
    "Filter": {"S3Key": {"Rules": [{"Name": "suffix", "Value": ".json"}]}},
    "Topic": {"Fn::Join": [":", ["arn", {"Ref": "AWS::Partition"}, "sns", "Muster-inbox"]]},
}
BUCKET = {
    "LifecycleConfiguration": {"Rules": RULES},
    "NotificationConfiguration": {"TopicConfigurations": [INBOX]},
}
ARN = {"Fn::GetAtt": ["B", "Arn"]}
TLS = {
    "Sid": "Tls",
    "Effect": "Deny",
    "Principal": {"AWS": "*"},
    "Action": "s3:*",
    "Resource": [ARN, {"Fn::Join": ["", [ARN, "/*"]]}],
    "Condition": {"NumericLessThan": {"s3:TlsVersion": 1.2}},
}
TEMPLATE: dict[str, Any] = {
    "Resources": {
        "B": {"Type": "AWS::S3::Bucket", "Properties": BUCKET},
        "P": {"Type": "AWS::S3::BucketPolicy", "Properties": {"PolicyDocument": {"Statement": [TLS]}}},
    }
}


def test_an_empty_bucket_lacks_everything_and_a_completed_one_nothing() -> None:
    wanted = Requirements.from_template(TEMPLATE, "data", PLACE)
    empty = BucketState()
    policy, rules = wanted.missing_policy(empty), wanted.missing_lifecycle(empty)
    notifications = wanted.missing_notifications(empty)
    assert policy is not None
    assert policy["Statement"][0]["Resource"] == ["arn:aws-us-gov:s3:::data", "arn:aws-us-gov:s3:::data/*"]
    assert rules is not None
    assert rules["Rules"][1]["Filter"] == {"And": {"Prefix": "rendezvous/", "ObjectSizeGreaterThan": 131072}}
    assert notifications is not None
    assert notifications["TopicConfigurations"][0]["TopicArn"] == "arn:aws-us-gov:sns:Muster-inbox"
    # As S3 gives them back: in another order, a number as text, other names for the same.
    statement = copy.deepcopy(policy["Statement"][0])
    statement["Resource"].reverse()
    statement["Condition"] = {"NumericLessThan": {"s3:TlsVersion": "1.2"}}
    topic = {**notifications["TopicConfigurations"][0], "Id": "made-by-s3"}
    whole = BucketState([statement], list(reversed(rules["Rules"])), {"TopicConfigurations": [topic]})
    assert wanted.missing_policy(whole) is None
    assert wanted.missing_lifecycle(whole) is None
    assert wanted.missing_notifications(whole) is None


def test_what_a_bucket_has_of_its_own_stays() -> None:
    wanted = Requirements.from_template(TEMPLATE, "data", PLACE)
    own = BucketState(
        [{"Sid": "Own", "Effect": "Deny"}, {"Sid": "Tls", "Effect": "Allow"}],
        [{"ID": "own", "Status": "Enabled", "NoncurrentVersionExpiration": {"NoncurrentDays": 3}}],
        {"QueueConfigurations": [{"QueueArn": "q"}]},
    )
    policy, rules = wanted.missing_policy(own), wanted.missing_lifecycle(own)
    notifications = wanted.missing_notifications(own)
    assert policy is not None
    assert [(item["Sid"], item["Effect"]) for item in policy["Statement"]] == [("Own", "Deny"), ("Tls", "Deny")]
    assert rules is not None
    assert [rule["ID"] for rule in rules["Rules"]] == ["own", "source", "colder"]
    assert notifications is not None
    assert notifications["QueueConfigurations"] == [{"QueueArn": "q"}]


def test_a_key_policy_is_complete_when_every_service_and_the_account_may_use_the_key() -> None:
    wanted = key_statements(PLACE)
    assert missing_statements({"Statement": wanted}, PLACE) == []
    for left_out in wanted:
        rest = [item for item in wanted if item is not left_out]
        assert missing_statements({"Statement": rest}, PLACE) == [left_out]
    # The key policy that the console writes: the account's roles, by their own policies.
    root = {"Effect": "Allow", "Principal": {"AWS": "arn:aws-us-gov:iam::123456789012:root"}, "Action": "kms:*"}
    missing = missing_statements({"Statement": root}, PLACE)
    assert [item["Sid"] for item in missing] == [item["Sid"] for item in wanted[1:]]
    assert missing[0]["Principal"] == {"Service": "logs.us-gov-west-1.amazonaws.com"}
