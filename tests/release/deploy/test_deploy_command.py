"""`muster deploy` and `muster destroy` on the embedded cloud: what they change, refuse, delete and take over."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from docs.commands_reference import ANSWERS
from muster.contract.run.result import Verdict
from muster.local import LocalCloud
from tests.support.command_server import CommandServer
from tests.support.deployed import Deployed
from tests.support.template import ROOT
from tests.support.workshop import fast_settings


@dataclass(frozen=True)
class Shell:
    """A user's shell on the embedded cloud, in a folder with a settings file."""

    cloud: LocalCloud
    folder: Path
    commands: CommandServer

    def write(self, text: str) -> None:
        (self.folder / "muster.toml").write_text(text, encoding="utf-8")

    def run(self, *arguments: str, code: int = 0) -> str:
        """What `muster ARGUMENTS` prints; an error is on its last lines."""
        outcome = self.commands.run([*arguments, "--target", "local"], self.folder, self.cloud.environment())
        assert outcome.returncode == code, (outcome.stdout, outcome.stderr)
        return outcome.stdout + outcome.stderr

    def deploy(self, *arguments: str) -> dict[str, Any]:
        line = self.run("deploy", "--yes", "--json", *arguments)
        answer: dict[str, Any] = json.loads(line)
        assert ANSWERS["deploy"].model_validate_json(line).model_dump(mode="json") == answer
        return answer


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, commands: CommandServer) -> Iterator[Shell]:
    folder = tmp_path_factory.mktemp("deploy-command")
    with LocalCloud.start(folder / "cloud", fast_settings(code=(ROOT,))) as cloud:
        yield Shell(cloud, folder, commands)


def test_the_life_of_a_stack(shell: Shell) -> None:
    """Deployed, looked at, deployed again without a key, destroyed, its bucket taken over."""
    name = "Lifecycle"
    shell.write(
        f"""
        [stack]
        name = "{name}"
        tags = {{ team = "research" }}
        [notify]
        email = "team@example.com"
        [runs]
        sweep_hours = 12
        """
    )
    first = shell.deploy()
    assert first["deployed"]
    bucket = first["outputs"]["BucketName"]

    # A key that the file leaves out gets its default, and a line says so first.
    shell.write(f'[stack]\nname = "{name}"\ntags = {{ team = "research" }}\n[runs]\nsweep_hours = 24\n')
    shown = shell.run("deploy", "--diff")
    assert "notify.email: team@example.com -> the default" in shown
    assert "runs.sweep_hours: 12 -> 24" in shown
    assert "~ AWS::Events::Rule SweepSchedule" in shown
    rules = shell.cloud.client("events").list_rules()["Rules"]
    assert "rate(12 hours)" in [rule.get("ScheduleExpression") for rule in rules]  # --diff changed nothing
    again = shell.deploy()
    changes = {change["key"]: (change["deployed"], change["new"]) for change in again["settings"]}
    assert changes == {"notify.email": ("team@example.com", None), "runs.sweep_hours": (12, 24)}
    topic = first["outputs"]["NotificationTopicArn"]
    assert shell.cloud.client("sns").list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"] == []
    assert shell.deploy()["resources"] == []

    # The data stays, and the next stack takes it over without a step by hand.
    shell.cloud.client("s3").put_object(Bucket=bucket, Key="output/old/result", Body=b"1")
    destroyed = json.loads(shell.run("destroy", "--stack", name, "--yes", "--json"))
    assert destroyed["kept_bucket"] == bucket
    stacks = shell.cloud.client("cloudformation").list_stacks()["StackSummaries"]
    assert name not in [item["StackName"] for item in stacks if item["StackStatus"] != "DELETE_COMPLETE"]
    shell.write(f'[stack]\nname = "{name}"\n[bucket]\nexisting = "{bucket}"\n')
    taken = shell.deploy()
    assert (taken["outputs"]["BucketName"], taken["commands"]) == (bucket, [])
    refused = shell.run("destroy", "--stack", name, "--yes", "--delete-data", bucket, code=2)
    assert "did not make the bucket" in refused


def test_a_bucket_that_lacks_something_is_refused_with_commands_that_add_it(shell: Shell) -> None:
    s3, name = shell.cloud.client("s3"), "existing-data"
    s3.create_bucket(Bucket=name)
    s3.put_bucket_policy(Bucket=name, Policy=json.dumps({"Version": "2012-10-17", "Statement": [OWN]}))
    shell.write(f'[stack]\nname = "Guest"\n[bucket]\nexisting = "{name}"\n')
    refused = shell.run("deploy", "--yes", code=2)
    assert "2 problems; nothing was changed" in refused
    for call in ("put-bucket-policy", "put-bucket-lifecycle-configuration"):
        assert f"run: aws s3api {call} --bucket {name}" in refused
    pasted(s3, refused)
    first = shell.deploy()
    assert first["outputs"]["BucketName"] == name
    # The inbox's topic is there only now.
    [command] = first["commands"]
    pasted(s3, command)
    policy = json.loads(s3.get_bucket_policy(Bucket=name)["Policy"])
    assert OWN in policy["Statement"]
    assert shell.deploy("--diff")["commands"] == []


OWN = {
    "Sid": "Own",
    "Effect": "Deny",
    "Principal": "*",
    "Action": "s3:DeleteBucket",
    "Resource": "arn:aws:s3:::existing-data",
}


def pasted(s3: Any, text: str) -> None:
    """Do what the printed commands of the AWS CLI do."""
    calls: dict[str, Callable[[str, Any], object]] = {
        "policy": lambda bucket, found: s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(found)),
        "lifecycle-configuration": lambda bucket, found: s3.put_bucket_lifecycle_configuration(
            Bucket=bucket, LifecycleConfiguration=found
        ),
        "notification-configuration": lambda bucket, found: s3.put_bucket_notification_configuration(
            Bucket=bucket, NotificationConfiguration=found
        ),
    }
    for bucket, option, file in re.findall(r"--bucket (\S+) --([a-z-]+) file://(\S+)", text):
        calls[option](bucket, json.loads(Path(file).read_text(encoding="utf-8")))


def deployed(shell: Shell, name: str) -> Deployed:
    """A stack without further settings."""
    shell.write(f'[stack]\nname = "{name}"\n')
    return Deployed(shell.cloud, shell.deploy()["outputs"], shell.folder / f"gates-{name}")


def test_two_stacks_side_by_side_share_nothing(shell: Shell) -> None:
    alpha, beta = (deployed(shell, name) for name in ("Alpha", "Beta"))
    assert alpha.prefix != beta.prefix
    # The same run's name in both: the jobs' names, and so their events, differ by the prefix alone.
    held = beta.start(beta.gated("held"), "night")
    held.wait_for_training(0)
    ended = alpha.start({"replicas": 1, "entrypoint": ["python", "-c", "print('done')"]}, "night")
    assert ended.wait()["status"] == "SUCCEEDED"
    assert held.describe()["status"] == "RUNNING"
    record = held.record()
    assert record is not None
    assert [attempt.job for attempt in record.attempts] == [held.job()]
    assert len(ended.statuses()) == 1

    # A stack with runs is not deleted; with --stop-runs they are settled first.
    refused = shell.run("destroy", "--stack", "Beta", "--yes", code=2)
    assert "night" in refused
    assert "--stop-runs" in refused
    assert held.describe()["status"] == "RUNNING"
    wrong = shell.run("destroy", "--stack", "Beta", "--yes", "--stop-runs", "--delete-data", "other", code=2)
    assert f"write --delete-data {beta.bucket}" in wrong
    # A schedule with a name like a timer's, which belongs to somebody else.
    scheduler, other = shell.cloud.client("scheduler"), f"{beta.prefix}-report"
    timer = f"{beta.prefix}-night-timer"
    functions = shell.cloud.client("cloudformation").list_stack_resources(StackName="Beta")["StackResourceSummaries"]
    [own] = [
        item["PhysicalResourceId"]
        for item in functions
        if item["ResourceType"] == "AWS::Lambda::Function" and item["LogicalResourceId"].startswith("TimerHandler")
    ]
    arn = shell.cloud.client("lambda").get_function(FunctionName=own)["Configuration"]["FunctionArn"]
    for name, target in ((other, f"{arn}-report"), (timer, arn)):
        scheduler.create_schedule(
            Name=name,
            ScheduleExpression="rate(300 days)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": target, "RoleArn": beta.outputs["ReplicaRoleArn"]},
        )
    answer = shell.run("destroy", "--stack", "Beta", "--yes", "--stop-runs", "--delete-data", beta.bucket, "--json")
    assert json.loads(answer)["stopped_runs"] == ["night"]
    left = [item["Name"] for item in scheduler.list_schedules(NamePrefix=beta.prefix)["Schedules"]]
    assert left == [other]
    scheduler.delete_schedule(Name=other)
    assert beta.bucket not in [item["Name"] for item in shell.cloud.client("s3").list_buckets()["Buckets"]]
    assert not shell.cloud.running_jobs()
    assert ended.result().verdict is Verdict.SUCCEEDED


def test_a_key_whose_policy_lacks_something_is_refused_with_its_statements(shell: Shell) -> None:
    kms = shell.cloud.client("kms")
    key = kms.create_key()["KeyMetadata"]
    shell.write(f'[stack]\nname = "Nist"\nkms_key_arn = "{key["Arn"]}"\n')
    refused = shell.run("deploy", "--yes", code=2)
    statements = json.loads(refused[refused.index("[\n") :])
    assert "LogGroupsOfTheAccount" in [item["Sid"] for item in statements]
    policy = json.loads(kms.get_key_policy(KeyId=key["KeyId"], PolicyName="default")["Policy"])
    policy["Statement"] = [*policy["Statement"], *statements]
    kms.put_key_policy(KeyId=key["KeyId"], PolicyName="default", Policy=json.dumps(policy))
    stack = Deployed(shell.cloud, shell.deploy()["outputs"], shell.folder / "gates-nist")
    queue = shell.cloud.client("sqs").get_queue_attributes(
        QueueUrl=stack.outputs["DeadLetterQueueUrl"], AttributeNames=["KmsMasterKeyId"]
    )
    assert queue["Attributes"]["KmsMasterKeyId"] == key["Arn"]
    run = stack.start({"replicas": 1, "entrypoint": ["python", "-c", "print(1)"]}, "encrypted")
    assert run.wait()["status"] == "SUCCEEDED"
