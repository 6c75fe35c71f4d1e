"""Training jobs on an embedded cloud, and queries of that cloud, for tests."""

import io
import itertools
import json
import os
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from muster.local import LocalCloud, Settings
from tests.support.waiting import wait_until

IMAGE = "muster-local/python:test"
PROGRAMS = Path(__file__).parent / "jobs" / "programs"
"""Small programs that jobs run, by module name."""
EVERYTHING = {"Effect": "Allow", "Action": "*", "Resource": "*"}
_TRUST = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
_OF_FUNCTIONS = {**_TRUST, "Principal": {"Service": "lambda.amazonaws.com"}}
_names = itertools.count(1)


def fast_settings(**changes: Any) -> Settings:
    """Settings under which a job takes tenths of a second; the service ends with the test process."""
    values: dict[str, Any] = {
        "port": 0,
        "end_with_parent": True,
        "phase_seconds": 0.02,
        "stop_grace_seconds": 30.0,
        "checkpoint_sync_seconds": 0.1,
        "code": (PROGRAMS,),
    }
    return Settings(**{**values, **changes})


def turn_to(monkeypatch: pytest.MonkeyPatch, cloud: LocalCloud) -> None:
    """Let this process reach `cloud` as root, and nothing else."""
    environment = cloud.environment()
    for name in os.environ.keys() - environment.keys():
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def own_calls(cloud: LocalCloud) -> Counter[str]:
    """How often this process, or a child process that uses the cloud, made each call since the last reset.

    Replicas and functions that another test left behind may call at any time.
    """
    counts: Counter[str] = Counter()
    for call in cloud.calls.report():
        if call.caller == "root":
            counts[call.operation] += call.count
    return counts


def packed(source: str) -> bytes:
    """The code of a function: an archive of one module, `index`."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as bundle:
        bundle.writestr("index.py", source)
    return archive.getvalue()


class Workshop:
    """Roles, a bucket and training jobs on an embedded cloud, under names that no other test has."""

    def __init__(self, cloud: LocalCloud) -> None:
        self.cloud = cloud
        self.s3 = cloud.client("s3")
        self.iam = cloud.client("iam")
        self.sagemaker = cloud.client("sagemaker")
        self.logs = cloud.client("logs")
        self.bucket = self.name("bucket")
        region = cloud.state.region
        place = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        self.s3.create_bucket(Bucket=self.bucket, **place)
        self.role = self.make_role(
            [
                {"Effect": "Allow", "Action": ["s3:*"], "Resource": "*"},
                {"Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": "*"},
            ]
        )

    @staticmethod
    def name(stem: str = "job") -> str:
        """A fresh name."""
        return f"{stem}-{next(_names)}"

    def make_role(self, statements: Sequence[dict[str, Any]], trust: dict[str, Any] | None = None) -> str:
        """A role that SageMaker may assume (or the principal of `trust`), with these policy statements."""
        name = self.name("role")
        document = {"Version": "2012-10-17", "Statement": [trust or _TRUST]}
        arn = self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(document))["Role"]["Arn"]
        policy = {"Version": "2012-10-17", "Statement": list(statements)}
        self.iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=json.dumps(policy))
        return str(arn)

    def make_function(
        self, source: str, statements: Sequence[dict[str, Any]] = (EVERYTHING,), **changes: Any
    ) -> tuple[str, str]:
        """Name and ARN of a function, whose role has these policy statements; `source` defines `handler`."""
        made = self.cloud.client("lambda").create_function(
            FunctionName=self.name("function"),
            Runtime="python3.13",
            Role=self.make_role(statements, _OF_FUNCTIONS),
            Handler="index.handler",
            Code={"ZipFile": packed(source)},
            Timeout=60,
            **changes,
        )
        return str(made["FunctionName"]), str(made["FunctionArn"])

    def invoke(self, function: str) -> Any:
        """What a function answers."""
        return json.loads(self.cloud.client("lambda").invoke(FunctionName=function)["Payload"].read())

    def client_as(self, service: str, statements: Sequence[dict[str, Any]]) -> Any:
        """A client of a new user whose policy is `statements`."""
        key = self.access_key(statements)
        return self.cloud.client(
            service, aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"]
        )

    def access_key(self, statements: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The access key of a new user whose policy is `statements`."""
        user = self.name("user")
        self.iam.create_user(UserName=user)
        policy = {"Version": "2012-10-17", "Statement": list(statements)}
        self.iam.put_user_policy(UserName=user, PolicyName="all", PolicyDocument=json.dumps(policy))
        return dict(self.iam.create_access_key(UserName=user)["AccessKey"])

    def request(self, program: str, *arguments: str, **changes: Any) -> dict[str, Any]:
        """A CreateTrainingJob request that runs a module of `PROGRAMS`; `changes` replace top-level members."""
        request: dict[str, Any] = {
            "TrainingJobName": self.name(),
            "RoleArn": self.role,
            "AlgorithmSpecification": {
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["python", "-m", program],
                **({"ContainerArguments": list(arguments)} if arguments else {}),
            },
            "OutputDataConfig": {"S3OutputPath": f"s3://{self.bucket}/output"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        }
        return {**request, **changes}

    def start(self, program: str, *arguments: str, **changes: Any) -> str:
        """Create a job; its name."""
        request = self.request(program, *arguments, **changes)
        self.sagemaker.create_training_job(**request)
        return str(request["TrainingJobName"])

    def describe(self, job: str) -> dict[str, Any]:
        """DescribeTrainingJob."""
        return dict(self.sagemaker.describe_training_job(TrainingJobName=job))

    def until(self, job: str, secondary: str) -> dict[str, Any]:
        """The description of a job as soon as it is in a secondary status."""

        def look() -> dict[str, Any] | None:
            shown = self.describe(job)
            return shown if shown["SecondaryStatus"] == secondary else None

        return wait_until(f"{secondary} of {job}", look)

    def end(self, job: str) -> dict[str, Any]:
        """The description of a job that ended."""

        def look() -> dict[str, Any] | None:
            shown = self.describe(job)
            return shown if shown["TrainingJobStatus"] in {"Completed", "Failed", "Stopped"} else None

        return wait_until(f"the end of {job}", look)

    def run(self, program: str, *arguments: str, **changes: Any) -> dict[str, Any]:
        """Create a job and wait for its end."""
        return self.end(self.start(program, *arguments, **changes))

    def log(self, job: str) -> list[list[str]]:
        """The lines of each of a job's log streams, in the order of the streams; none before the first line."""
        group = "/aws/sagemaker/TrainingJobs"
        try:
            streams = self.logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{job}/")["logStreams"]
        except self.logs.exceptions.ResourceNotFoundException:
            return []
        return [
            [
                event["message"]
                for event in self.logs.get_log_events(
                    logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
                )["events"]
            ]
            for stream in sorted(streams, key=lambda stream: stream["logStreamName"])
        ]

    def until_logged(self, job: str, line: str) -> None:
        """Wait until a job's newest process wrote a line."""

        wait_until(f"{line!r} in the log of {job}", lambda: any(line in lines for lines in self.log(job)[-1:]))

    def keys(self, prefix: str) -> list[str]:
        """Keys in the bucket."""
        return [
            entry["Key"] for entry in self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])
        ]

    def read(self, key: str) -> bytes:
        """An object of the bucket."""
        return bytes(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())


def statuses(shown: dict[str, Any]) -> list[str]:
    """The secondary statuses that a job went through."""
    return [transition["Status"] for transition in shown["SecondaryStatusTransitions"]]
