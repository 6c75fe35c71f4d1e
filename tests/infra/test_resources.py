"""Bucket, queue, functions and log groups as the template makes them."""

from typing import Any

from muster.contract.layout import RunLayout
from muster.contract.training.source_delivery import REFRESH_DAYS
from muster.control.aws.clients import READ_SECONDS, TRIES
from muster.infra.deploy.template_limits import oversized
from tests.infra.variants import BOUNDARY, KEY, Variant
from tests.simulation.functions import RETRY_SECONDS, TIMEOUTS
from tests.support.template import FUNCTIONS, Template, construct_name, function, matches


def test_only_source_packages_and_recipes_expire_and_not_before_the_last_run_that_can_need_them_has_ended(
    template: Template,
) -> None:
    rules = template.one("AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    expiring = [rule for rule in rules if "ExpirationInDays" in rule]
    assert [rule["Prefix"] for rule in expiring] == ["source/", "packages/", "recipes/"]
    # An execution lives a year, and what it needs of these may be a month old when it begins.
    assert min(rule["ExpirationInDays"] for rule in expiring) >= 366 + REFRESH_DAYS


def test_the_bucket_outlives_the_stack_and_what_a_run_leaves_in_the_rendezvous_only_becomes_cheaper(
    template: Template,
) -> None:
    [bucket] = template.of_type("AWS::S3::Bucket").values()
    assert (bucket["DeletionPolicy"], bucket["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")
    rules = template.one("AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    [rule] = [rule for rule in rules if rule.get("Prefix") == "rendezvous/"]
    assert "ExpirationInDays" not in rule
    # Not the classes that must be restored before they can be read.
    assert rule["Transitions"] == [{"StorageClass": "STANDARD_IA", "TransitionInDays": 35}]
    assert int(rule["ObjectSizeGreaterThan"]) == 128 * 1024
    [aborting] = [rule for rule in rules if "AbortIncompleteMultipartUpload" in rule]
    assert "Prefix" not in aborting
    assert {rule["Status"] for rule in rules} == {"Enabled"}


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


def test_a_function_retries_a_bounded_number_of_times_and_keeps_what_it_could_not_do(template: Template) -> None:
    found = template.of_type("AWS::Lambda::EventInvokeConfig").items()
    configurations = {construct_name(key): one["Properties"] for key, one in found}
    assert configurations.keys() == {*FUNCTIONS}
    for name, configuration in configurations.items():
        assert function(template, name)["DeadLetterConfig"]["TargetArn"].endswith(":DeadLetters"), name
        assert template.allows(name, "sqs:SendMessage", "arn:aws:sqs:REGION:ACCOUNT:DeadLetters"), name
        retried = (configuration["MaximumRetryAttempts"], configuration["MaximumEventAgeInSeconds"])
        assert retried == (2, 6 * 3600), name
    assert len(RETRY_SECONDS) == 2, "the simulation retries as the stack does"


def test_a_function_has_the_timeout_that_the_simulation_knows_and_the_platform_of_the_bundle(
    template: Template, variant: Variant
) -> None:
    clusters = variant("clusters")
    assert {name.lower(): function(clusters, name)["Timeout"] for name in (*FUNCTIONS, "Look")} == TIMEOUTS
    # Two calls of services that hang, with the pauses between their tries.
    assert min(TIMEOUTS.values()) > 2 * (TRIES * READ_SECONDS + 2 ** (TRIES - 1) - 1)
    # What the bundle is built for.
    platforms = {
        (one["Properties"]["Runtime"], *one["Properties"]["Architectures"])
        for one in template.of_type("AWS::Lambda::Function").values()
    }
    assert platforms == {("python3.13", "arm64")}
    groups = template.of_type("AWS::Logs::LogGroup").values()
    assert {group["Properties"]["RetentionInDays"] for group in groups} == {90}


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
    assert template.body["Outputs"]["KeyArn"]["Value"] == KEY
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


def test_what_is_larger_than_aws_allows_is_named_and_each_schedule_has_its_dead_letters(variant: Variant) -> None:
    large = variant("large")
    policies = large.of_type("AWS::SQS::QueuePolicy").values()
    statements = [s for policy in policies for s in policy["Properties"]["PolicyDocument"]["Statement"]]
    [sent] = [s for s in statements if s.get("Sid") == "EventsOfRules"]
    assert len(sent["Condition"]["ArnEquals"]["aws:SourceArn"]) == len(large.of_type("AWS::Events::Rule")) > 30
    fields = [problem.field for problem in oversized(large.body)]
    assert [field for field in fields if "PlanHandler" in field or "ReplicaRole" in field] == fields != []
    assert oversized(variant("plain").body) == []


def test_each_sum_of_a_template_has_its_limit() -> None:
    def found(kind: str, **properties: Any) -> list[str]:
        return [problem.found for problem in oversized({"Resources": {"X": {"Type": kind, "Properties": properties}}})]

    statement = {"Resource": "x" * 1_000}
    policy = {"PolicyDocument": {"Statement": [statement] * 9}}
    assert found("AWS::SQS::QueuePolicy", **policy) == ["9,159 bytes"]
    assert found("AWS::SQS::QueuePolicy", PolicyDocument={"Statement": [{}] * 21}) == ["21 statements"]
    assert found("AWS::IAM::Policy", Roles=[{"Ref": "R"}], **policy) == []
    assert found("AWS::IAM::Role", Policies=[policy] * 2) == ["18,318 characters"]
    assert found("AWS::Lambda::Function", Environment={"Variables": {"A": "x" * 4_080}}) == ["4,102 bytes"]
    assert found("AWS::Events::Rule", Targets=[{"InputTransformer": {"InputTemplate": "x" * 8_193}}])
    assert found("AWS::S3::BucketPolicy", PolicyDocument={"Statement": [statement] * 21})
    joined = {"Fn::Join": ["", ["x" * 4_000, {"Ref": "AWS::Region"}, {"Fn::GetAtt": ["Y", "Arn"]}]]}
    assert found("AWS::Lambda::Function", Environment={"Variables": {"A": joined}})
