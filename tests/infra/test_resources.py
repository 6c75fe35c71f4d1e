"""Bucket, queue, functions and log groups as the template makes them."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from muster.contract.layout import RunLayout
from muster.contract.run.source_delivery import REFRESH_DAYS
from tests.infra.variants import BOUNDARY, KEY, Variant
from tests.support.template import FUNCTIONS, Template, construct_name, function, matches


def test_the_bucket_is_private_encrypted_and_outlives_the_stack(template: Template) -> None:
    [resource] = template.of_type("AWS::S3::Bucket").values()
    bucket = resource["Properties"]
    assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain"
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    [rule] = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert "BucketName" not in bucket
    assert "VersioningConfiguration" not in bucket


def test_only_source_packages_and_recipes_expire_and_not_before_the_last_run_that_can_need_them_has_ended(
    template: Template,
) -> None:
    rules = template.one("AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    expiring = [rule for rule in rules if "ExpirationInDays" in rule]
    assert [rule["Prefix"] for rule in expiring] == ["source/", "packages/", "recipes/"]
    # An execution lives a year, and what it needs of these may be a month old when it begins.
    assert min(rule["ExpirationInDays"] for rule in expiring) >= 366 + REFRESH_DAYS


def test_what_a_run_leaves_in_the_rendezvous_is_kept_and_only_becomes_cheaper(template: Template) -> None:
    rules = template.one("AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    [rule] = [rule for rule in rules if rule.get("Prefix") == "rendezvous/"]
    assert "ExpirationInDays" not in rule
    # Not the classes that must be restored before they can be read.
    assert rule["Transitions"] == [{"StorageClass": "STANDARD_IA", "TransitionInDays": 35}]
    assert int(rule["ObjectSizeGreaterThan"]) == 128 * 1024
    [aborting] = [rule for rule in rules if "AbortIncompleteMultipartUpload" in rule]
    assert "Prefix" not in aborting
    assert {rule["Status"] for rule in rules} == {"Enabled"}


@pytest.mark.parametrize(
    ("kind", "count"), [("AWS::S3::BucketPolicy", 1), ("AWS::SQS::QueuePolicy", 1), ("AWS::SNS::TopicPolicy", 2)]
)
def test_plain_http_is_refused(template: Template, kind: str, count: int) -> None:
    policies = [template.resolve(policy["Properties"])["PolicyDocument"] for policy in template.of_type(kind).values()]
    assert len(policies) == count
    for policy in policies:
        denials = [item for item in policy["Statement"] if item["Effect"] == "Deny"]
        insecure = [item for item in denials if item.get("Condition") == {"Bool": {"aws:SecureTransport": "false"}}]
        assert insecure
        assert insecure[0]["Principal"] in ({"AWS": "*"}, "*")


def test_the_bucket_refuses_to_overwrite_what_is_written_once_and_unconditional_writes_of_records(
    template: Template,
) -> None:
    statements = {
        item.get("Sid"): item for item in template.one("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    }
    once, compared = statements["WrittenOnce"], statements["ComparedAndSwapped"]
    for statement in (once, compared):
        assert (statement["Effect"], statement["Principal"]) == ("Deny", {"AWS": "*"})
        assert statement["Action"] == "s3:PutObject"
    # Not the parts of a multipart upload, which cannot have these headers.
    creation = {"Bool": {"s3:ObjectCreationOperation": "true"}}
    assert once["Condition"] == {"Null": {"s3:if-none-match": "true"}, **creation}
    assert compared["Condition"] == {"Null": {"s3:if-none-match": "true", "s3:if-match": "true"}, **creation}
    assert "arn:aws:s3:::BUCKET/source/*" in compared["Resource"]
    # What the control plane may write is held by one of the two.
    written = [
        r for s in template.statements if "s3:PutObject" in s.actions and s.role != "Replica" for r in s.resources
    ]
    held = [*once["Resource"], *compared["Resource"], "arn:aws:s3:::BUCKET/inbox/*.error.txt"]
    assert not [resource for resource in written if not any(matches(resource, pattern) for pattern in held)]


def control_keys() -> list[str]:
    """One key for each kind of object that the layout has under control/."""
    layout = RunLayout("run")
    properties = [name for name, member in vars(RunLayout).items() if isinstance(member, property)]
    keys = [layout.record(0), *(str(getattr(layout, name)) for name in properties)]
    return [f"{key}0" if key.endswith("/") else key for key in keys if key.startswith("control/")]


def test_policies_and_layout_name_the_same_keys_under_control(template: Template) -> None:
    keys = [f"arn:aws:s3:::BUCKET/{key}" for key in control_keys()]
    assert len(keys) >= 11
    denied = template.one("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    guarded = [
        r for item in denied if item.get("Sid") in {"WrittenOnce", "ComparedAndSwapped"} for r in item["Resource"]
    ]
    allowed = [resource for statement in template.statements for resource in statement.resources]
    for patterns in (guarded, allowed):
        control = {pattern for pattern in patterns if pattern.startswith("arn:aws:s3:::BUCKET/control/")}
        assert not [key for key in keys if not any(matches(key, pattern) for pattern in control)]
        assert not [pattern for pattern in control if not any(matches(key, pattern) for key in keys)]


def test_only_our_rules_may_put_into_the_dead_letter_queue(template: Template) -> None:
    assert template.one("AWS::SQS::Queue")["SqsManagedSseEnabled"] is True
    statements = template.one("AWS::SQS::QueuePolicy")["PolicyDocument"]["Statement"]
    allowed = [item for item in statements if item["Effect"] == "Allow"]
    senders = [*template.of_type("AWS::Events::Rule"), *template.of_type("AWS::SNS::Subscription")]
    assert len(allowed) == len(senders)
    for item in allowed:
        assert item["Principal"]["Service"] in {"events.amazonaws.com", "sns.amazonaws.com"}
        assert list(item["Condition"]["ArnEquals"]) == ["aws:SourceArn"]


def test_every_function_is_one_of_ours_on_the_same_code(template: Template) -> None:
    found = template.of_type("AWS::Lambda::Function")
    assert sorted(construct_name(name) for name in found) == sorted(FUNCTIONS)
    assert len({str(item["Properties"]["Code"]) for item in found.values()}) == 1
    for name in FUNCTIONS:
        properties = function(template, name)
        module, _, attribute = properties["Handler"].rpartition(".")
        assert (module, attribute) == (f"lambdas.{name.lower()}", "handler")
        assert importlib.util.find_spec(module) is not None
        assert (properties["Runtime"], properties["Architectures"]) == ("python3.13", ["arm64"])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_retries_a_bounded_number_of_times_and_keeps_what_it_could_not_do(
    template: Template, name: str
) -> None:
    assert function(template, name)["DeadLetterConfig"]["TargetArn"].endswith(":DeadLetters")
    assert template.allows(name, "sqs:SendMessage", "arn:aws:sqs:REGION:ACCOUNT:DeadLetters")
    configurations = template.of_type("AWS::Lambda::EventInvokeConfig")
    [configuration] = [c["Properties"] for key, c in configurations.items() if construct_name(key) == name]
    assert configuration["MaximumRetryAttempts"] == 2
    assert configuration["MaximumEventAgeInSeconds"] == 6 * 3600


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_writes_into_a_log_group_that_expires(template: Template, name: str) -> None:
    assert function(template, name)["LoggingConfig"]["LogGroup"] == name
    groups = {construct_name(key): group for key, group in template.of_type("AWS::Logs::LogGroup").items()}
    assert groups[name]["Properties"]["RetentionInDays"] == 90
    assert groups["Workflow"]["Properties"]["RetentionInDays"] == 90


def test_step_functions_may_write_the_workflow_s_log_without_a_policy_of_the_account(template: Template) -> None:
    [group] = [g for key, g in template.of_type("AWS::Logs::LogGroup").items() if construct_name(key) == "Workflow"]
    assert template.resolve(group["Properties"])["LogGroupName"] == "/aws/vendedlogs/states/Muster"


def test_functions_have_the_variables_that_they_need(template: Template) -> None:
    for name in FUNCTIONS:
        variables = function(template, name)["Environment"]["Variables"]
        assert variables["MUSTER_BUCKET"] == "BUCKET"
        assert variables["MUSTER_JOB_PREFIX"] == "muster"
        assert variables["MUSTER_BUS"] == "Events"
        assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "Muster"
        assert variables["POWERTOOLS_SERVICE_NAME"] == f"muster-{name.lower()}"
    plan = function(template, "Plan")["Environment"]["Variables"]
    assert plan["MUSTER_REPLICA_ROLE_ARN"] == "arn:aws:iam::ACCOUNT:role/Replica"
    assert plan["MUSTER_LAUNCHES_PER_SECOND"] == "10"
    assert json.loads(plan["MUSTER_DEFAULTS"]) == {
        "access": {"data": [], "roles": []},
        "image": "example/image:1",
        "tags": {},
        "version": 1,
    }


def test_a_key_a_boundary_tags_and_access_logs_reach_every_resource(variant: Variant) -> None:
    template = variant("Nist")

    def properties(kind: str) -> list[dict[str, Any]]:
        return [template.resolve(item["Properties"]) for item in template.of_type(kind).values()]

    for kind, name in (
        ("AWS::Logs::LogGroup", "KmsKeyId"),
        ("AWS::SNS::Topic", "KmsMasterKeyId"),
        ("AWS::SQS::Queue", "KmsMasterKeyId"),
    ):
        assert {found.get(name) for found in properties(kind)} == {KEY}
    [bucket] = properties("AWS::S3::Bucket")
    [rule] = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}
    assert rule["BucketKeyEnabled"] is True
    assert bucket["LoggingConfiguration"] == {"DestinationBucketName": "logs", "LogFilePrefix": "muster/"}
    roles = properties("AWS::IAM::Role")
    assert {role["PermissionsBoundary"] for role in roles} == {BOUNDARY}
    assert all({"Key": "team", "Value": "research"} in role["Tags"] for role in roles)
    for role in (*FUNCTIONS, "Replica"):
        assert template.allows(role, "kms:Decrypt", KEY)
        assert template.allows(role, "kms:GenerateDataKey", KEY)
    # What the stack has of its own name, so that another stack's has another.
    assert {found["AlarmName"].partition("-")[0] for found in properties("AWS::CloudWatch::Alarm")} == {"Nist"}
    assert template.body["Metadata"]["Muster"]["stack"]["name"] == "Nist"


def test_the_outputs_say_where_things_are(template: Template) -> None:
    values = {name: template.resolve(output["Value"]) for name, output in template.body["Outputs"].items()}
    assert values["StateMachineArn"] == "arn:aws:states:REGION:ACCOUNT:stateMachine:Workflow"
    assert (values["BucketName"], values["JobPrefix"], values["Region"]) == ("BUCKET", "muster", "REGION")
    home = "https://REGION.console.aws.amazon.com/cloudwatch/home?region=REGION"
    assert values["DashboardUrl"] == f"{home}#dashboards/dashboard/Muster-REGION"
