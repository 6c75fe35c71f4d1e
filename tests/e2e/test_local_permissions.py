"""IAM on the embedded cloud's training service: who may call what, with which role, and with which signature."""

from typing import Any

import botocore
import botocore.config
import pytest
import urllib3
from botocore.exceptions import ClientError

from muster.replica.entry.resolved_secrets import SecretError, resolve_secrets
from tests.support.workshop import Workshop

ACCOUNT = "123456789012"
JOBS = f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/"
DENIED = "AccessDeniedException"


def refusal(call: Any, **parameters: Any) -> dict[str, Any]:
    """The error with which a call is refused."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return dict(caught.value.response["Error"])


def allow(action: str | list[str], resource: str, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def pass_role(role: str) -> dict[str, Any]:
    return allow("iam:PassRole", role, Condition={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}})


def test_creating_a_tagged_job_needs_every_permission(workshop: Workshop) -> None:
    to_another = {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}}
    needed = {
        "sagemaker:CreateTrainingJob": allow("sagemaker:CreateTrainingJob", f"{JOBS}mine-*"),
        "sagemaker:AddTags": allow("sagemaker:AddTags", f"{JOBS}*"),
        "iam:PassRole": pass_role(workshop.role),
    }
    name = workshop.name("mine")
    request = workshop.request("failing", "0", TrainingJobName=name, Tags=[{"Key": "run", "Value": "one"}])
    for missing in needed:
        given = [one for action, one in needed.items() if action != missing]
        client = workshop.client_as("sagemaker", [*given, allow("iam:PassRole", "*", Condition=to_another)])
        refused = refusal(client.create_training_job, **request)
        assert refused["Code"] == DENIED, missing
        assert f"not authorized to perform: {missing}" in refused["Message"]
    assert workshop.sagemaker.list_training_jobs(NameContains=name)["TrainingJobSummaries"] == []
    client = workshop.client_as("sagemaker", [*needed.values()])
    client.create_training_job(**request)
    workshop.end(name)
    theirs = {**request, "TrainingJobName": workshop.name("theirs")}
    assert refusal(client.create_training_job, **theirs)["Code"] == DENIED


def test_tags_plans_and_the_network_of_a_job_are_conditions(workshop: Workshop) -> None:
    plan = f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-plan/reserved"
    resources = {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1, "TrainingPlanArn": plan}
    tagged = allow(
        ["sagemaker:CreateTrainingJob", "sagemaker:AddTags"],
        "*",
        Condition={"StringEquals": {"aws:RequestTag/team": "a"}},
    )
    in_vpc = allow(
        "sagemaker:CreateTrainingJob",
        "*",
        Condition={
            "ForAllValues:StringEquals": {"sagemaker:VpcSubnets": ["subnet-1"]},
            "Null": {"sagemaker:VpcSubnets": "false"},
        },
    )
    # A training plan, and what it has reserved, are resources of their own.
    job = allow("sagemaker:CreateTrainingJob", f"{JOBS}*")
    plans, capacity = (
        allow("sagemaker:CreateTrainingJob", f"arn:aws:sagemaker:*:*:{name}/*")
        for name in ("training-plan", "reserved-capacity")
    )
    for name, statements, changes, allowed in (
        ("own tag", [tagged], {"Tags": [{"Key": "team", "Value": "a"}]}, True),
        ("other tag", [tagged], {"Tags": [{"Key": "team", "Value": "b"}]}, False),
        ("own subnet", [in_vpc], vpc("subnet-1"), True),
        ("other subnet", [in_vpc], vpc("subnet-2"), False),
        ("no subnet", [in_vpc], {}, False),
        ("plan", [job, plans, capacity], {"ResourceConfig": resources}, True),
        ("plan without it", [job, capacity], {"ResourceConfig": resources}, False),
        ("plan without its capacity", [job, plans], {"ResourceConfig": resources}, False),
    ):
        client = workshop.client_as("sagemaker", [*statements, pass_role(workshop.role)])
        request = workshop.request("failing", "0", **changes)
        if allowed:
            client.create_training_job(**request)
        else:
            assert refusal(client.create_training_job, **request)["Code"] == DENIED, name


def vpc(subnet: str) -> dict[str, Any]:
    return {"VpcConfig": {"Subnets": [subnet], "SecurityGroupIds": ["sg-1"]}}


def test_the_tags_of_a_job_are_conditions_of_who_may_see_it(workshop: Workshop) -> None:
    own = {"StringEquals": {"aws:ResourceTag/team": "a"}}
    client = workshop.client_as("sagemaker", [allow("sagemaker:DescribeTrainingJob", "*", Condition=own)])
    mine, theirs = (workshop.start("failing", "0", Tags=[{"Key": "team", "Value": team}]) for team in "ab")
    client.describe_training_job(TrainingJobName=mine)
    assert refusal(client.describe_training_job, TrainingJobName=theirs)["Code"] == DENIED


def test_a_right_to_a_log_group_names_its_streams(workshop: Workshop) -> None:
    group = workshop.name("group")
    workshop.logs.create_log_group(logGroupName=group)
    arn = f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:{group}"
    reads = ["logs:FilterLogEvents", "logs:DescribeLogStreams"]
    for resource, allowed in (
        (f"{arn}:*", True),
        (f"{arn}:log-stream:", True),
        (f"{arn}:log-stream:a", False),
        (arn, False),
    ):
        logs = workshop.client_as("logs", [allow(reads, resource)])
        for call in (logs.filter_log_events, logs.describe_log_streams):
            if allowed:
                call(logGroupName=group)
            else:
                assert refusal(call, logGroupName=group)["Code"] == DENIED, resource


def test_a_role_that_does_not_trust_sagemaker_is_refused(workshop: Workshop) -> None:
    sagemaker = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    elsewhere = {"StringEquals": {"aws:SourceAccount": "999999999999"}}
    roles = {
        "missing": f"arn:aws:iam::{ACCOUNT}:role/nobody",
        "untrusting": workshop.make_role(
            [allow("s3:*", "*")], {**sagemaker, "Principal": {"Service": "lambda.amazonaws.com"}}
        ),
        "conditional": workshop.make_role([allow("s3:*", "*")], {**sagemaker, "Condition": elsewhere}),
    }
    for kind, role in roles.items():
        refused = refusal(workshop.sagemaker.create_training_job, **workshop.request("failing", "0", RoleArn=role))
        assert refused["Code"] == "ValidationException", kind
        assert "Could not assume role" in refused["Message"]


CHAINED = {"SessionChainingConfig": {"EnableSessionTagChaining": True}}


class Launchers:
    """A launcher's role for sessions with the tag `run`, and a job's role whose rights name that tag."""

    def __init__(self, workshop: Workshop, trusted: list[str]) -> None:
        self._workshop = workshop
        own = f"arn:aws:s3:::{workshop.bucket}/${{aws:PrincipalTag/run}}/*"
        sagemaker = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": trusted}
        output = f"arn:aws:s3:::{workshop.bucket}/output/*"
        self.job_role = workshop.make_role(
            [allow("s3:PutObject", own), allow("s3:PutObject", output), allow("logs:*", "*")], sagemaker
        )
        anybody = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
        self._launcher = workshop.make_role([allow("sagemaker:*", "*"), pass_role(self.job_role)], anybody)
        self._key = workshop.access_key([allow(["sts:AssumeRole", "sts:TagSession"], self._launcher)])

    def client(self, **tags: str) -> Any:
        """SageMaker for a session of the launcher's role with these tags."""
        cloud, key = self._workshop.cloud, self._key
        sts = cloud.client("sts", aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"])
        given = sts.assume_role(
            RoleArn=self._launcher,
            RoleSessionName="attempt",
            Tags=[{"Key": name, "Value": value} for name, value in tags.items()],
        )["Credentials"]
        return cloud.client(
            "sagemaker",
            aws_access_key_id=given["AccessKeyId"],
            aws_secret_access_key=given["SecretAccessKey"],
            aws_session_token=given["SessionToken"],
        )


def test_session_tags_reach_the_job_and_its_checkpoints_if_they_are_chained(workshop: Workshop) -> None:
    launchers = Launchers(workshop, ["sts:AssumeRole", "sts:TagSession"])
    client, jobs = launchers.client(run="one"), {}
    for key, chained, answer in (
        ("one/a", CHAINED, "written"),
        ("two/a", CHAINED, "AccessDenied"),
        ("one/b", {}, "AccessDenied"),
    ):
        request = workshop.request("writer", workshop.bucket, key, RoleArn=launchers.job_role, **chained)
        client.create_training_job(**request)
        jobs[request["TrainingJobName"]] = answer
    config = {"S3Uri": f"s3://{workshop.bucket}/two/checkpoints/"}
    synced = workshop.request("counter", "1", RoleArn=launchers.job_role, CheckpointConfig=config, **CHAINED)
    client.create_training_job(**synced)
    ended = {job: workshop.end(job)["TrainingJobStatus"] for job in jobs}
    assert ended == dict.fromkeys(jobs, "Completed")
    session = f"arn:aws:sts::{ACCOUNT}:assumed-role/{launchers.job_role.rpartition('/')[2]}/SageMaker"
    assert {job: workshop.log(job) for job in jobs} == {job: [[answer, session]] for job, answer in jobs.items()}
    shown = workshop.end(synced["TrainingJobName"])
    assert shown["TrainingJobStatus"] == "Failed"
    assert "checkpoints" in shown["FailureReason"]


def test_a_role_that_may_not_be_tagged_is_refused(workshop: Workshop) -> None:
    launchers = Launchers(workshop, ["sts:AssumeRole"])
    request = workshop.request("failing", "0", RoleArn=launchers.job_role, **CHAINED)
    refused = refusal(launchers.client(run="one").create_training_job, **request)
    assert refused["Code"] == "ValidationException"
    assert "Could not assume role" in refused["Message"]


# --- signatures -----------------------------------------------------------------------------------

CALLS = {"sagemaker": "list_training_jobs", "s3": "list_buckets", "iam": "list_roles"}


def test_a_reference_to_a_secret_is_read_with_the_rights_of_who_reads_it(workshop: Workshop) -> None:
    """As a container does it: with requests that Muster signs itself."""
    name, parameter = workshop.name("secret"), f"/team/{workshop.name('proxy')}"
    secrets = workshop.cloud.client("secretsmanager")
    arn = secrets.create_secret(Name=name, SecretString='{"token": "t"}')["ARN"]
    secrets.create_secret(Name=f"{name}-more", SecretString="more")
    workshop.cloud.client("ssm").put_parameter(Name=parameter, Value="p", Type="SecureString")
    key = workshop.access_key(
        [
            allow("secretsmanager:GetSecretValue", f"arn:aws:secretsmanager:us-east-1:{ACCOUNT}:secret:{name}-??????"),
            allow("ssm:GetParameter", f"arn:aws:ssm:us-east-1:{ACCOUNT}:parameter{parameter}"),
        ]
    )
    own = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    reader = {**workshop.cloud.environment(), **own}
    variables = {**reader, "A": f"secretsmanager:{name}#token", "B": f"secretsmanager:{arn}", "C": f"ssm:{parameter}"}
    resolve_secrets(variables)
    assert [variables[each] for each in "ABC"] == ["t", '{"token": "t"}', "p"]
    for denied in (f"secretsmanager:{name}-more", f"ssm:{parameter}-more"):
        with pytest.raises(SecretError, match=DENIED):
            resolve_secrets({**reader, "A": denied})


def test_no_key_opens_anything_without_its_secret_and_no_call_without_a_signature(workshop: Workshop) -> None:
    root = workshop.cloud.state.access_key_id
    for service, call in CALLS.items():
        for key in ("test", ACCOUNT, "AKIAAAAAAAAAAAAAAAAA", root):
            client = workshop.cloud.client(service, aws_access_key_id=key, aws_secret_access_key="test")
            code = refusal(getattr(client, call))["Code"]
            assert key != root or code in {"InvalidSignatureException", "SignatureDoesNotMatch"}, service
    unsigned = botocore.config.Config(signature_version=botocore.UNSIGNED)
    client = workshop.cloud.client("sagemaker", config=unsigned)
    assert refusal(client.list_training_jobs)["Code"] == "MissingAuthenticationTokenException"


@pytest.fixture
def pool(workshop: Workshop) -> urllib3.PoolManager:
    return urllib3.PoolManager(ca_certs=str(workshop.cloud.state.ca_file))


def test_a_presigned_url_of_root_is_good_only_with_its_signature(workshop: Workshop, pool: urllib3.PoolManager) -> None:
    key = workshop.name("presigned")
    workshop.s3.put_object(Bucket=workshop.bucket, Key=key, Body=b"x")

    def fetched(version: str = "s3v4", **options: Any) -> int:
        config = botocore.config.Config(signature_version=version)
        client = workshop.cloud.client("s3", config=config, **options)
        parameters = {"Bucket": workshop.bucket, "Key": key}
        return int(pool.request("GET", client.generate_presigned_url("get_object", Params=parameters)).status)

    root = workshop.cloud.state.access_key_id
    assert fetched() == 200
    assert fetched(aws_access_key_id=root, aws_secret_access_key="wrong") == 403
    assert fetched("s3") == 403


def test_the_services_own_interfaces_are_closed_to_jobs(workshop: Workshop, pool: urllib3.PoolManager) -> None:
    base = workshop.cloud.endpoint
    assert pool.request("GET", f"{base}/_muster/faults").status == 401
    assert pool.request("GET", f"{base}/_muster/faults", headers={"Authorization": "Bearer no"}).status == 401
    assert pool.request("POST", f"{base}/_ministack/reset").status == 403
    assert pool.request("POST", f"{base}/_ministack/config", body="{}").status == 403
    assert workshop.s3.head_bucket(Bucket=workshop.bucket)
