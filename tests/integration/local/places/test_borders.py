"""Borders between accounts and regions of the embedded cloud: both sides must allow what crosses them, as on AWS."""

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.local import LocalCloud
from tests.support.places import (
    HOME,
    OREGON,
    OTHER,
    TOKYO,
    Inbox,
    allow,
    client,
    cloud_with_places,
    document,
    forward,
    trusting,
)
from tests.support.waiting import wait_until
from tests.support.workshop import EVERYTHING, Workshop

_TAGS = [{"Key": "lineage", "Value": "one"}]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    with cloud_with_places(tmp_path_factory.mktemp("cloud")) as running:
        yield running


@pytest.fixture(scope="module")
def shops(cloud: LocalCloud) -> dict[str, Workshop]:
    """A workshop in each place."""
    return {name: Workshop(cloud.at(name)) for name in ("home", "oregon", "tokyo")}


def code_of(call: Callable[..., Any], **arguments: Any) -> str:
    """The code of the error with which a call is refused."""
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    return str(refused.value.response["Error"]["Code"])


def function_session(cloud: LocalCloud, statements: list[dict[str, Any]], trust: dict[str, Any] | None = None) -> Any:
    """Credentials of a role of home, as a function has them."""
    shop = Workshop(cloud)
    shop.iam.create_user(UserName=(user := shop.name("user")))
    arn = f"arn:aws:iam::{HOME}:user/{user}"
    role = shop.make_role(statements, trust or trusting({"AWS": arn}))
    key = _key_of(shop, user, allow("sts:AssumeRole", role))
    return client(cloud, "sts", "us-east-1", key).assume_role(RoleArn=role, RoleSessionName="function")["Credentials"]


def _key_of(shop: Workshop, user: str, *statements: dict[str, Any]) -> dict[str, Any]:
    shop.iam.put_user_policy(UserName=user, PolicyName="all", PolicyDocument=document(*statements))
    return {**shop.iam.create_access_key(UserName=user)["AccessKey"], "SessionToken": None}


def tagged_session(cloud: LocalCloud, shop: Workshop, *statements: dict[str, Any]) -> tuple[str, Any]:
    """A role of Tokyo, and credentials of a session of it that has a tag."""
    administrator = {"AWS": f"arn:aws:iam::{OTHER}:root"}
    role = shop.make_role(statements, trusting(administrator, "sts:AssumeRole", "sts:TagSession"))
    sts = cloud.at("tokyo").client("sts")
    return role, sts.assume_role(RoleArn=role, RoleSessionName="job", Tags=_TAGS)["Credentials"]


# --- regions -----------------------------------------------------------------------------------


def test_each_place_has_resources_of_its_own(cloud: LocalCloud, shops: dict[str, Workshop]) -> None:
    for name in shops:
        ssm = cloud.at(name).client("ssm")
        ssm.put_parameter(Name="/cdk/version", Value=name, Type="String")
    found = {name: cloud.at(name).client("ssm").get_parameter(Name="/cdk/version") for name in shops}
    assert {name: answer["Parameter"]["Value"] for name, answer in found.items()} == {name: name for name in shops}
    job = shops["oregon"].run("report")
    assert job["TrainingJobStatus"] == "Completed"
    assert job["TrainingJobArn"].startswith(f"arn:aws:sagemaker:{OREGON}:{HOME}:")
    assert [line for stream in shops["oregon"].log(job["TrainingJobName"]) for line in stream]
    assert code_of(shops["home"].describe, job=job["TrainingJobName"]) == "ValidationException"
    # A program at home reaches it as on AWS: by a client of that region.
    described = client(cloud, "sagemaker", OREGON).describe_training_job(TrainingJobName=job["TrainingJobName"])
    assert described["TrainingJobArn"] == job["TrainingJobArn"]
    # A role belongs to the account, in all its regions.
    assert cloud.client("iam").get_role(RoleName=shops["oregon"].role.rpartition("/")[2])


def test_a_bucket_is_reached_through_its_own_region(cloud: LocalCloud, shops: dict[str, Workshop]) -> None:
    s3 = client(cloud, "s3", "us-east-1")
    seen: list[tuple[int, str]] = []

    def note(response: tuple[Any, Any] | None, **_: object) -> None:
        if response is not None:
            seen.append((response[0].status_code, response[0].headers.get("x-amz-bucket-region", "")))

    s3.meta.events.register_first("needs-retry.s3", note)
    s3.put_object(Bucket=shops["oregon"].bucket, Key="key", Body=b"far")
    # The SDK follows the redirect, as it does on AWS.
    assert seen[0] == (301, OREGON)
    assert shops["oregon"].read("key") == b"far"
    with pytest.raises(ClientError, match="BucketAlreadyExists"):
        shops["tokyo"].s3.create_bucket(
            Bucket=shops["home"].bucket, CreateBucketConfiguration={"LocationConstraint": TOKYO}
        )


def test_a_job_reads_and_writes_buckets_of_its_own_region(shops: dict[str, Workshop]) -> None:
    home = shops["home"]
    home.s3.put_object(Bucket=home.bucket, Key="data/one", Body=b"1")
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{home.bucket}/data"}}
    read = shops["oregon"].run("report", InputDataConfig=[{"ChannelName": "train", "DataSource": source}])
    assert read["TrainingJobStatus"] == "Failed"
    assert "the bucket you are attempting to access" in read["FailureReason"].lower()
    wrote = shops["oregon"].run("report", OutputDataConfig={"S3OutputPath": f"s3://{home.bucket}/output"})
    assert wrote["TrainingJobStatus"] == "Failed"


# --- accounts ----------------------------------------------------------------------------------


def test_a_foreign_bucket_needs_both_policies_and_the_tag_of_the_session(
    cloud: LocalCloud, shops: dict[str, Workshop]
) -> None:
    home, tokyo = shops["home"], shops["tokyo"]
    keys = f"arn:aws:s3:::{home.bucket}/rendezvous/${{aws:PrincipalTag/lineage}}/*"
    everything = f"arn:aws:s3:::{home.bucket}/*"
    role, credentials = tagged_session(cloud, tokyo, allow(["s3:GetObject", "s3:PutObject"], everything))
    _, others = tagged_session(cloud, tokyo, allow("s3:GetObject", everything))
    s3, unallowed = (client(cloud.at("tokyo"), "s3", "us-east-1", one) for one in (credentials, others))
    own = {"Bucket": home.bucket, "Key": "rendezvous/one/header", "Body": b"x"}
    assert code_of(s3.put_object, **own) == "AccessDenied"
    statement = allow(["s3:GetObject", "s3:PutObject"], keys, Principal={"AWS": f"arn:aws:iam::{OTHER}:root"})
    home.s3.put_bucket_policy(Bucket=home.bucket, Policy=document(statement))
    s3.put_object(**own)
    assert home.read("rendezvous/one/header") == b"x"
    assert code_of(s3.put_object, **{**own, "Key": "rendezvous/two/header"}) == "AccessDenied"
    assert code_of(unallowed.put_object, **own) == "AccessDenied"
    assert code_of(s3.get_object, Bucket=home.bucket, Key="rendezvous/one/none") == "AccessDenied"  # it may not list
    assert code_of(s3.get_object, Bucket=home.bucket, Key="none") == "AccessDenied"
    owner = {"ExpectedBucketOwner": OTHER}
    assert code_of(s3.put_object, **own, **owner) == "AccessDenied"
    # A condition on the role names the role, not its session; a denial wins.
    denial = {**statement, "Effect": "Deny", "Condition": {"ArnEquals": {"aws:PrincipalArn": role}}}
    home.s3.put_bucket_policy(Bucket=home.bucket, Policy=document(statement, denial))
    assert code_of(s3.put_object, **own) == "AccessDenied"
    home.s3.delete_bucket_policy(Bucket=home.bucket)


def test_root_reaches_no_bucket_of_another_account(cloud: LocalCloud, shops: dict[str, Workshop]) -> None:
    assert code_of(client(cloud, "s3", TOKYO).list_objects_v2, Bucket=shops["tokyo"].bucket) == "AccessDenied"


def test_a_right_to_buckets_of_an_account_is_none_to_those_of_another(
    cloud: LocalCloud, shops: dict[str, Workshop]
) -> None:
    home = shops["home"]
    only_own = allow("s3:*", "*", Condition={"StringEquals": {"aws:ResourceAccount": OTHER}})
    _, credentials = tagged_session(cloud, shops["tokyo"], only_own)
    everyone = allow("s3:*", f"arn:aws:s3:::{home.bucket}/*", Principal={"AWS": f"arn:aws:iam::{OTHER}:root"})
    home.s3.put_bucket_policy(Bucket=home.bucket, Policy=document(everyone))
    s3 = client(cloud.at("tokyo"), "s3", "us-east-1", credentials)
    assert code_of(s3.put_object, Bucket=home.bucket, Key="key", Body=b"") == "AccessDenied"
    home.s3.delete_bucket_policy(Bucket=home.bucket)


def test_a_role_of_another_account_is_assumed_if_both_sides_allow_it(
    cloud: LocalCloud, shops: dict[str, Workshop]
) -> None:
    tokyo = shops["tokyo"]
    condition = {"StringEquals": {"sts:ExternalId": "secret-1"}, "StringLike": {"aws:RequestTag/lineage": "?*"}}
    trust = trusting({"AWS": f"arn:aws:iam::{HOME}:root"}, "sts:AssumeRole", "sts:TagSession", Condition=condition)
    # Which role of home it is, its ARN says.
    function = "arn:aws:iam::123456789012:role/role-*"
    trust["Condition"] = {**condition, "ArnLike": {"aws:PrincipalArn": function}}
    launcher = tokyo.make_role([EVERYTHING], trust)
    both = function_session(cloud, [allow(["sts:AssumeRole", "sts:TagSession"], launcher)])
    untagging = function_session(cloud, [allow("sts:AssumeRole", launcher)])
    stranger = function_session(cloud, [allow("s3:*", "*")])
    asked = {"RoleArn": launcher, "RoleSessionName": "run", "ExternalId": "secret-1", "Tags": _TAGS}
    for credentials, changes in (
        (stranger, {}),
        (untagging, {}),
        (both, {"ExternalId": "secret-2"}),
        (both, {"Tags": []}),
        (both, {"RoleArn": launcher + "x"}),
    ):
        sts = client(cloud, "sts", TOKYO, credentials)
        assert code_of(sts.assume_role, **{**asked, **changes}) == "AccessDenied"
    sts = client(cloud, "sts", TOKYO, both)
    assert code_of(sts.assume_role, **asked, DurationSeconds=3601) == "ValidationError"
    session = sts.assume_role(**asked)["Credentials"]
    there = client(cloud, "sts", TOKYO, session).get_caller_identity()
    assert there["Arn"] == f"arn:aws:sts::{OTHER}:assumed-role/{launcher.rpartition('/')[2]}/run"
    assert code_of(client(cloud, "sts", "us-east-1").assume_role, **asked) == "AccessDenied"  # root assumes no role
    # With it, a function of home starts a job in Tokyo; only with a role of that account.
    sagemaker = client(cloud, "sagemaker", TOKYO, session)
    request = tokyo.request("report")
    assert code_of(sagemaker.create_training_job, **{**request, "RoleArn": shops["home"].role}) == (
        "AccessDeniedException"
    )
    sagemaker.create_training_job(**request)
    assert tokyo.end(request["TrainingJobName"])["TrainingJobStatus"] == "Completed"


@pytest.mark.parametrize("principal", [f"arn:aws:iam::{OTHER}:role/none", f"arn:aws:iam::{OTHER}:role/*", "1" * 12])
def test_principals_of_a_policy_must_exist(shops: dict[str, Workshop], principal: str) -> None:
    home = shops["home"]
    named = {"AWS": principal}
    assert code_of(home.make_role, statements=[], trust=trusting(named)) == "MalformedPolicyDocument"
    policy = document(allow("s3:GetObject", f"arn:aws:s3:::{home.bucket}/*", Principal=named))
    assert code_of(home.s3.put_bucket_policy, Bucket=home.bucket, Policy=policy) == "MalformedPolicy"


def test_a_policy_means_the_role_that_it_was_written_for(cloud: LocalCloud, shops: dict[str, Workshop]) -> None:
    home, tokyo = shops["home"], shops["tokyo"]
    role, credentials = tagged_session(cloud, tokyo, allow("s3:*", f"arn:aws:s3:::{home.bucket}/*"))
    statement = allow("s3:*", f"arn:aws:s3:::{home.bucket}/*", Principal={"AWS": role})
    home.s3.put_bucket_policy(Bucket=home.bucket, Policy=document(statement))
    s3 = client(cloud.at("tokyo"), "s3", "us-east-1", credentials)
    s3.put_object(Bucket=home.bucket, Key="key", Body=b"")
    name = role.rpartition("/")[2]
    tokyo.iam.delete_role_policy(RoleName=name, PolicyName="all")
    unique = tokyo.iam.get_role(RoleName=name)["Role"]["RoleId"]
    tokyo.iam.delete_role(RoleName=name)
    tokyo.iam.create_role(RoleName=name, AssumeRolePolicyDocument=document(trusting({"AWS": OTHER})))
    tokyo.iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=document(EVERYTHING))
    again = cloud.at("tokyo").client("sts").assume_role(RoleArn=role, RoleSessionName="again")["Credentials"]
    s3 = client(cloud.at("tokyo"), "s3", "us-east-1", again)
    assert code_of(s3.put_object, Bucket=home.bucket, Key="key", Body=b"") == "AccessDenied"
    assert unique in home.s3.get_bucket_policy(Bucket=home.bucket)["Policy"]
    home.s3.delete_bucket_policy(Bucket=home.bucket)


# --- event buses -------------------------------------------------------------------------------


def test_events_cross_to_another_region_with_a_role_that_may_send_them(cloud: LocalCloud) -> None:
    home, oregon = cloud, cloud.at("oregon")
    bus = f"arn:aws:events:us-east-1:{HOME}:event-bus/default"
    inbox = Inbox(home, {"source": ["own.allowed", "own.denied"]})
    forward(oregon, "own.denied", bus, allow("events:PutEvents", f"{bus}x"))
    forward(oregon, "own.allowed", bus, allow("events:PutEvents", bus))
    events = oregon.client("events")
    for source in ("own.denied", "own.allowed"):
        events.put_events(Entries=[{"Source": source, "DetailType": "test", "Detail": '{"a": 1}'}])
    event = inbox.next()
    assert (event["source"], event["account"], event["region"]) == ("own.allowed", HOME, OREGON)
    assert event["detail"] == {"a": 1}
    assert inbox.received() == []
    target = {"Id": "bus", "Arn": bus}
    events.put_rule(Name="unsound", EventPattern='{"source": ["none"]}')
    assert code_of(events.put_targets, Rule="unsound", Targets=[target]) == "ValidationException"
    foreign = {**target, "RoleArn": f"arn:aws:iam::{OTHER}:role/some"}
    assert code_of(events.put_targets, Rule="unsound", Targets=[foreign]) == "AccessDeniedException"


def test_events_cross_to_another_account_if_its_bus_allows_it_and_no_further(cloud: LocalCloud) -> None:
    home, oregon, tokyo = cloud, cloud.at("oregon"), cloud.at("tokyo")
    bus = f"arn:aws:events:us-east-1:{HOME}:event-bus/default"
    further = f"arn:aws:events:{OREGON}:{HOME}:event-bus/default"
    inbox, beyond = (Inbox(place, {"source": ["other.account"]}) for place in (home, oregon))
    forward(tokyo, "other.account", bus, allow("events:PutEvents", bus))
    forward(home, "other.account", further, allow("events:PutEvents", further))

    def put() -> None:
        entry = {"Source": "other.account", "DetailType": "test", "Detail": "{}"}
        tokyo.client("events").put_events(Entries=[entry])

    put()
    home.client("events").put_permission(StatementId="tokyo", Principal=OTHER, Action="events:PutEvents")
    assert inbox.received() == []
    put()
    event = inbox.next()
    assert (event["account"], event["region"]) == (OTHER, TOKYO)
    assert beyond.received() == []


def test_a_template_gives_a_bus_its_policy_and_refuses_a_target_without_a_role(cloud: LocalCloud) -> None:
    formation, events = cloud.client("cloudformation"), cloud.client("events")
    bus = f"arn:aws:events:us-east-1:{HOME}:event-bus/default"
    other = {"AWS": f"arn:aws:iam::{OTHER}:root"}
    policy = {"StatementId": "written", "Statement": allow("events:PutEvents", bus, Principal=other)}

    def resources(kind: str, properties: dict[str, Any]) -> str:
        return json.dumps({"Resources": {"One": {"Type": f"AWS::Events::{kind}", "Properties": properties}}})

    formation.create_stack(StackName="bus", TemplateBody=resources("EventBusPolicy", policy))
    formation.get_waiter("stack_create_complete").wait(StackName="bus", WaiterConfig={"Delay": 1})
    statements = json.loads(events.describe_event_bus()["Policy"])["Statement"]
    assert [one["Principal"] for one in statements if one["Sid"] == "written"] == [other]
    formation.delete_stack(StackName="bus")
    formation.get_waiter("stack_delete_complete").wait(StackName="bus", WaiterConfig={"Delay": 1})
    assert "written" not in events.describe_event_bus().get("Policy", "")
    rule = {"EventPattern": {"source": ["none"]}, "Targets": [{"Id": "bus", "Arn": bus}]}
    there = cloud.at("oregon").client("cloudformation")
    there.create_stack(StackName="rule", TemplateBody=resources("Rule", rule))
    look = functools.partial(_status, there, "rule")
    assert wait_until("the end of the stack", look) == "ROLLBACK_COMPLETE"


def _status(formation: Any, stack: str) -> str | None:
    status = str(formation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"])
    return None if status.endswith("_IN_PROGRESS") else status
