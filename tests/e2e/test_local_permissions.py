"""IAM on the embedded cloud's training service: who may call what, with which role, and with which signature."""

from __future__ import annotations

import json
from typing import Any

import botocore
import botocore.config
import pytest
import urllib3
from botocore.exceptions import ClientError

from tests.support.workshop import Workshop

ACCOUNT = "123456789012"
JOBS = f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-job/"


def code_of(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


def allow(action: str | list[str], resource: str, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def pass_role(role: str) -> dict[str, Any]:
    return allow("iam:PassRole", role, Condition={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}})


def test_what_a_launcher_needs_and_no_more_is_enough(workshop: Workshop) -> None:
    client = workshop.client_as(
        "sagemaker",
        [
            allow(["sagemaker:CreateTrainingJob", "sagemaker:AddTags"], f"{JOBS}mine-*"),
            allow(["sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"], f"{JOBS}mine-*"),
            pass_role(workshop.role),
        ],
    )
    name = workshop.name("mine")
    request = workshop.request("counter", TrainingJobName=name, Tags=[{"Key": "run", "Value": "one"}])
    client.create_training_job(**request)
    client.describe_training_job(TrainingJobName=name)
    client.stop_training_job(TrainingJobName=name)
    workshop.end(name)
    with pytest.raises(ClientError) as caught:
        client.create_training_job(**{**request, "TrainingJobName": workshop.name("theirs")})
    assert code_of(caught) == "AccessDeniedException"
    with pytest.raises(ClientError) as caught:
        client.list_training_jobs()
    assert code_of(caught) == "AccessDeniedException"


@pytest.mark.parametrize("missing", ["sagemaker:CreateTrainingJob", "sagemaker:AddTags", "iam:PassRole"])
def test_creating_a_tagged_job_needs_every_permission(workshop: Workshop, missing: str) -> None:
    needed = {
        "sagemaker:CreateTrainingJob": allow("sagemaker:CreateTrainingJob", f"{JOBS}*"),
        "sagemaker:AddTags": allow("sagemaker:AddTags", f"{JOBS}*"),
        "iam:PassRole": pass_role(workshop.role),
    }
    client = workshop.client_as("sagemaker", [one for action, one in needed.items() if action != missing])
    request = workshop.request("failing", "0", Tags=[{"Key": "run", "Value": "one"}])
    with pytest.raises(ClientError) as caught:
        client.create_training_job(**request)
    assert code_of(caught) == "AccessDeniedException"
    assert f"not authorized to perform: {missing}" in str(caught.value)
    listed = workshop.sagemaker.list_training_jobs(NameContains=request["TrainingJobName"])
    assert listed["TrainingJobSummaries"] == []


def test_a_role_can_be_passed_to_sagemaker_only(workshop: Workshop) -> None:
    other = allow("iam:PassRole", "*", Condition={"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}})
    client = workshop.client_as("sagemaker", [allow("sagemaker:*", "*"), other])
    with pytest.raises(ClientError) as caught:
        client.create_training_job(**workshop.request("failing", "0"))
    assert "iam:PassRole" in str(caught.value)


def test_request_and_resource_tags_are_conditions(workshop: Workshop) -> None:
    tagged = {"StringEquals": {"aws:RequestTag/team": "a"}}
    own = {"StringEquals": {"aws:ResourceTag/team": "a"}}
    client = workshop.client_as(
        "sagemaker",
        [
            allow(["sagemaker:CreateTrainingJob", "sagemaker:AddTags"], "*", Condition=tagged),
            allow("sagemaker:DescribeTrainingJob", "*", Condition=own),
            pass_role(workshop.role),
        ],
    )
    request = workshop.request("failing", "0", Tags=[{"Key": "team", "Value": "a"}])
    client.create_training_job(**request)
    client.describe_training_job(TrainingJobName=request["TrainingJobName"])
    foreign = workshop.request("failing", "0", Tags=[{"Key": "team", "Value": "b"}])
    with pytest.raises(ClientError) as caught:
        client.create_training_job(**foreign)
    assert code_of(caught) == "AccessDeniedException"
    workshop.sagemaker.create_training_job(**foreign)
    with pytest.raises(ClientError) as caught:
        client.describe_training_job(TrainingJobName=foreign["TrainingJobName"])
    assert code_of(caught) == "AccessDeniedException"


@pytest.mark.parametrize("kind", ["missing", "untrusting", "conditional"])
def test_a_role_that_does_not_trust_sagemaker_is_refused(workshop: Workshop, kind: str) -> None:
    trust = {
        "untrusting": {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"},
        "conditional": {
            "Effect": "Allow",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
            "Action": "sts:AssumeRole",
            "Condition": {"StringEquals": {"aws:SourceAccount": "999999999999"}},
        },
    }
    made = trust.get(kind)
    role = workshop.make_role([allow("s3:*", "*")], made) if made else f"arn:aws:iam::{ACCOUNT}:role/nobody"
    with pytest.raises(ClientError) as caught:
        workshop.sagemaker.create_training_job(**workshop.request("failing", "0", RoleArn=role))
    assert code_of(caught) == "ValidationException"
    assert "Could not assume role" in str(caught.value)


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


@pytest.mark.parametrize(
    ("key", "chained", "answer"),
    [("one/a", True, "written"), ("two/a", True, "AccessDenied"), ("one/a", False, "AccessDenied")],
)
def test_session_tags_reach_the_job_if_they_are_chained(
    workshop: Workshop, key: str, chained: bool, answer: str
) -> None:
    launchers = Launchers(workshop, ["sts:AssumeRole", "sts:TagSession"])
    request = workshop.request("writer", workshop.bucket, key, RoleArn=launchers.job_role)
    launchers.client(run="one").create_training_job(**{**request, **(CHAINED if chained else {})})
    job = request["TrainingJobName"]
    assert workshop.end(job)["TrainingJobStatus"] == "Completed"
    assert workshop.log(job)[0][0] == answer


def test_checkpoints_are_stored_with_the_sessions_tags(workshop: Workshop) -> None:
    launchers = Launchers(workshop, ["sts:AssumeRole", "sts:TagSession"])
    config = {"S3Uri": f"s3://{workshop.bucket}/two/checkpoints/"}
    request = workshop.request("counter", "1", RoleArn=launchers.job_role, CheckpointConfig=config)
    launchers.client(run="one").create_training_job(**request, **CHAINED)
    shown = workshop.end(request["TrainingJobName"])
    assert shown["TrainingJobStatus"] == "Failed"
    assert "checkpoints" in shown["FailureReason"]


def test_a_role_that_may_not_be_tagged_is_refused(workshop: Workshop) -> None:
    launchers = Launchers(workshop, ["sts:AssumeRole"])
    request = workshop.request("failing", "0", RoleArn=launchers.job_role)
    with pytest.raises(ClientError) as caught:
        launchers.client(run="one").create_training_job(**request, **CHAINED)
    assert code_of(caught) == "ValidationException"
    assert "Could not assume role" in str(caught.value)


@pytest.mark.parametrize("service", ["sagemaker", "s3"])
@pytest.mark.parametrize("key", ["test", ACCOUNT, "AKIAAAAAAAAAAAAAAAAA"])
def test_well_known_and_made_up_keys_open_nothing(workshop: Workshop, service: str, key: str) -> None:
    client = workshop.cloud.client(service, aws_access_key_id=key, aws_secret_access_key="test")
    with pytest.raises(ClientError):
        client.list_training_jobs() if service == "sagemaker" else client.list_buckets()


@pytest.mark.parametrize("service", ["sagemaker", "s3", "iam"])
def test_the_root_key_opens_nothing_without_its_secret(workshop: Workshop, service: str) -> None:
    key = workshop.cloud.state.access_key_id
    client = workshop.cloud.client(service, aws_access_key_id=key, aws_secret_access_key="wrong")
    call = {"sagemaker": "list_training_jobs", "s3": "list_buckets", "iam": "list_roles"}[service]
    with pytest.raises(ClientError) as caught:
        getattr(client, call)()
    assert code_of(caught) in {"InvalidSignatureException", "SignatureDoesNotMatch"}


def test_a_presigned_url_of_root_is_good_only_with_its_signature(workshop: Workshop) -> None:
    key = workshop.name("presigned")
    workshop.s3.put_object(Bucket=workshop.bucket, Key=key, Body=b"x")
    pool = urllib3.PoolManager(ca_certs=str(workshop.cloud.state.ca_file))

    def fetched(**options: Any) -> int:
        config = botocore.config.Config(signature_version="s3v4")
        client = workshop.cloud.client("s3", **{"config": config, **options})
        parameters = {"Bucket": workshop.bucket, "Key": key}
        return int(pool.request("GET", client.generate_presigned_url("get_object", Params=parameters)).status)

    root = workshop.cloud.state.access_key_id
    assert fetched() == 200
    assert fetched(aws_access_key_id=root, aws_secret_access_key="wrong") == 403
    assert fetched(config=botocore.config.Config(signature_version="s3")) == 403


def test_unsigned_calls_are_refused(workshop: Workshop) -> None:
    unsigned = botocore.config.Config(signature_version=botocore.UNSIGNED)
    with pytest.raises(ClientError) as caught:
        workshop.cloud.client("sagemaker", config=unsigned).list_training_jobs()
    assert code_of(caught) == "MissingAuthenticationTokenException"


STRANGE_PATHS = (
    *("/", "/latest/meta-data/iam/security-credentials/", "/v2/credentials/any", "/v4/abcdefgh", "/login", "/logout"),
    *("/oauth2/token", "/oauth2/authorize", "/us-east-1_abc/.well-known/jwks.json", "/v2/_catalog", "/restapis"),
    *("/graphql", "/iceberg/v1/config", "/2015-03-31/functions", "/_ministack/lambda-code/x", "/health", "/any/key"),
)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("signed", [False, True])
def test_strangers_get_nothing(workshop: Workshop, method: str, signed: bool) -> None:
    pool = urllib3.PoolManager(ca_certs=str(workshop.cloud.state.ca_file))
    scope = "Credential=AKIAAAAAAAAAAAAAAAAA/20260101/us-east-1/s3/aws4_request"
    made_up = {"Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"} if signed else {}
    answers = {path: pool.request(method, workshop.cloud.endpoint + path, headers=made_up) for path in STRANGE_PATHS}
    assert {path: answer.status for path, answer in answers.items()} == dict.fromkeys(STRANGE_PATHS, 403)
    assert not any(b"SecretAccessKey" in answer.data for answer in answers.values())


def test_metadata_is_closed_to_jobs_too(workshop: Workshop) -> None:
    """With a key that exists the rest is a question of its signature; these paths never ask for one."""
    pool = urllib3.PoolManager(ca_certs=str(workshop.cloud.state.ca_file))
    key = workshop.access_key([allow("s3:*", "*")])["AccessKeyId"]
    scope = f"Credential={key}/20260101/us-east-1/s3/aws4_request"
    headers = {"Authorization": f"AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"}
    for path in STRANGE_PATHS:
        assert pool.request("GET", workshop.cloud.endpoint + path, headers=headers).status in {400, 403}, path


PLAN = f"arn:aws:sagemaker:us-east-1:{ACCOUNT}:training-plan/reserved"


@pytest.mark.parametrize("missing", ["", "training-plan", "reserved-capacity"])
def test_a_training_plan_is_a_resource_of_its_own(workshop: Workshop, missing: str) -> None:
    names = [name for name in ("training-plan", "reserved-capacity") if name != missing]
    client = workshop.client_as(
        "sagemaker",
        [
            allow("sagemaker:CreateTrainingJob", f"{JOBS}*"),
            *(allow("sagemaker:CreateTrainingJob", f"arn:aws:sagemaker:*:*:{name}/*") for name in names),
            pass_role(workshop.role),
        ],
    )
    resources = {"InstanceType": "ml.p5.48xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1, "TrainingPlanArn": PLAN}
    request = workshop.request("failing", "0", ResourceConfig=resources)
    if not missing:
        client.create_training_job(**request)
        return
    with pytest.raises(ClientError) as caught:
        client.create_training_job(**request)
    assert code_of(caught) == "AccessDeniedException"
    assert f":{missing}/" in str(caught.value)


def test_the_keys_and_the_network_of_a_job_are_conditions(workshop: Workshop) -> None:
    in_vpc = {
        "ForAllValues:StringEquals": {"sagemaker:VpcSubnets": ["subnet-1"]},
        "Null": {"sagemaker:VpcSubnets": "false"},
    }
    client = workshop.client_as(
        "sagemaker", [allow("sagemaker:CreateTrainingJob", "*", Condition=in_vpc), pass_role(workshop.role)]
    )
    for subnets, allowed in ((["subnet-1"], True), (["subnet-2"], False), (None, False)):
        network = {"VpcConfig": {"Subnets": subnets, "SecurityGroupIds": ["sg-1"]}} if subnets else {}
        request = workshop.request("failing", "0", **network)
        if allowed:
            client.create_training_job(**request)
            continue
        with pytest.raises(ClientError) as caught:
            client.create_training_job(**request)
        assert code_of(caught) == "AccessDeniedException"


def test_the_services_own_interfaces_are_closed_to_jobs(workshop: Workshop) -> None:
    pool = urllib3.PoolManager(ca_certs=str(workshop.cloud.state.ca_file))
    base = workshop.cloud.endpoint
    assert pool.request("GET", f"{base}/_muster/faults").status == 401
    assert pool.request("GET", f"{base}/_muster/faults", headers={"Authorization": "Bearer no"}).status == 401
    assert pool.request("POST", f"{base}/_ministack/reset").status == 403
    assert pool.request("POST", f"{base}/_ministack/config", body=json.dumps({})).status == 403
    assert workshop.s3.head_bucket(Bucket=workshop.bucket)
