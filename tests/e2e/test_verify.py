"""`muster verify` against the embedded cloud: all of it holds, what is broken is found, and Ctrl-C cleans up."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from muster import Muster
from muster.contract.errors import SpecError
from muster.options.verify.client.check_outcomes import Check, CheckOutcome, Verification
from muster.options.verify.client.verification import NoImageError, Verifier
from tests.support import client_stack
from tests.support.command_server import CommandServer
from tests.support.deployed import Deployed
from tests.support.waiting import wait_until
from tests.support.workshop import Workshop, turn_to

# The embedded cloud has no Price List API, and not the subnet of the stack.
NOT_THERE = {"prices", "route-to-s3"}
INFO = {"subscriptions", "image", "objects-left"}


@pytest.fixture
def verify(stack: Deployed, commands: CommandServer) -> Callable[..., Verification]:
    """`muster verify --json`, which ends with `code`; the document that it prints."""

    def run(*arguments: str, code: int) -> Verification:
        ended = commands.run(("verify", "--json", *arguments), Path.cwd(), stack.cloud.environment())
        assert ended.returncode == code, ended.stdout + ended.stderr
        return Verification.model_validate_json(ended.stdout)

    return run


def named(found: Verification | list[Check], outcome: CheckOutcome) -> dict[str, Check]:
    checks = found if isinstance(found, list) else found.checks
    return {check.name: check for check in checks if check.outcome is outcome}


def test_all_of_it_holds_on_the_embedded_cloud_and_nothing_is_left(
    stack: Deployed, verify: Callable[..., Verification]
) -> None:
    found = verify(code=0)
    assert named(found, CheckOutcome.FAILED) == {}
    assert named(found, CheckOutcome.UNCHECKED).keys() == NOT_THERE
    assert named(found, CheckOutcome.INFO).keys() == INFO
    assert found.promise is not None
    assert found.promise.usd is not None
    assert found.promise.usd < 0.10
    assert found.run is not None
    assert stack.cloud.running_jobs() == []
    pages = stack.s3.get_paginator("list_objects_v2").paginate(Bucket=stack.bucket)
    keys = [item["Key"] for page in pages for item in page.get("Contents", []) if found.run in item["Key"]]
    assert {key.split("/")[0] for key in keys} == {"control", "runs"}
    # The run stays readable.
    assert stack.run(found.run).result().verdict == "succeeded"
    assert stack.cloud.client("scheduler").list_schedules(NamePrefix=f"{stack.prefix}-{found.run}")["Schedules"] == []


@pytest.fixture
def broken(stack: Deployed) -> Iterator[dict[str, str]]:
    """The stack with three faults, and a run beyond its quota; words that each check must say."""
    events, iam = (stack.cloud.client(name) for name in ("events", "iam"))
    rule = next(name for rule in events.list_rules()["Rules"] if "JobEvents" in (name := rule["Name"]))
    pages = iam.get_paginator("list_roles").paginate()
    launcher = next(role["RoleName"] for page in pages for role in page["Roles"] if "LauncherRole" in role["RoleName"])
    [policy_name] = iam.list_role_policies(RoleName=launcher)["PolicyNames"]
    policy = iam.get_role_policy(RoleName=launcher, PolicyName=policy_name)["PolicyDocument"]
    smaller = [item for item in policy["Statement"] if "sagemaker:CreateTrainingJob" not in item["Action"]]
    events.disable_rule(Name=rule)
    iam.put_role_policy(
        RoleName=launcher, PolicyName=policy_name, PolicyDocument=json.dumps({**policy, "Statement": smaller})
    )
    stack.letters.send("an event that was not handled")
    yield {
        "event-rules": rf"the rule {rule} is disabled",
        "permissions-launcher": "the role Launcher may not .*sagemaker:CreateTrainingJob on",
        "dead-letters": "about 1 events",
        "quota": "ml.m5.large for training job usage: 101 needed, 100 granted",
    }
    events.enable_rule(Name=rule)
    iam.put_role_policy(RoleName=launcher, PolicyName=policy_name, PolicyDocument=json.dumps(policy))
    stack.letters.purge()


def test_what_is_broken_in_the_stack_is_found_and_named(
    verify: Callable[..., Verification], broken: dict[str, str], tmp_path: Path
) -> None:
    spec = tmp_path / "run.json"
    spec.write_text(json.dumps({"replicas": 101, "entrypoint": ["true"], "instance_type": "ml.m5.large"}))
    found = verify("--no-run", str(spec), code=1)
    failed = named(found, CheckOutcome.FAILED)
    assert failed.keys() == broken.keys()
    for name, words in broken.items():
        assert re.search(words, failed[name].seen), failed[name].seen
    remedy = failed["permissions-launcher"].remedy
    statement, _ = json.JSONDecoder().raw_decode(remedy, remedy.index("{"))
    assert "sagemaker:CreateTrainingJob" in statement["Action"]
    assert found.run is None


def test_what_the_caller_may_not_ask_is_unchecked_and_what_the_stack_lacks_is_named(
    stack: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_to(monkeypatch, stack.cloud)
    workshop = Workshop(stack.cloud)
    key = workshop.access_key([{"Effect": "Allow", "Action": ["cloudformation:DescribeStacks"], "Resource": ["*"]}])
    muster = Muster(session=boto3.Session(key["AccessKeyId"], key["SecretAccessKey"]))
    found = list(Verifier(muster, run=False).checks(lambda _: None))
    assert named(found, CheckOutcome.FAILED) == {}
    assert named(found, CheckOutcome.OK).keys() == {"credentials", "stack", "version"}
    unchecked = named(found, CheckOutcome.UNCHECKED)
    assert json.loads(unchecked["quota"].remedy)["Action"] == ["servicequotas:ListServiceQuotas"]
    assert "cloudformation:GetTemplate" in unchecked["permissions"].seen
    # Without the run no image is needed, and what is missing is named.
    bare = Muster(client_stack.deploy(workshop))
    with pytest.raises(NoImageError, match="--image"):
        Verifier(bare)
    with pytest.raises(SpecError, match="instance_type"):
        Verifier(muster, instance_type="m5.large")
    failed = named(list(Verifier(bare, run=False).checks(lambda _: None)), CheckOutcome.FAILED)
    assert "ReplicaRoleArn" in failed["stack"].seen
    assert "event-rules" in failed


def test_ctrl_c_cancels_the_run_and_waits_until_no_job_is_left(stack: Deployed, commands: CommandServer) -> None:
    command = commands.start(("verify", "--yes"), Path.cwd(), stack.cloud.environment())
    wait_until("a job of the verification", lambda: [job for job in stack.cloud.running_jobs() if "-verify-" in job])
    command.send_signal(signal.SIGINT)
    ended = command.finish()
    assert ended.returncode == 130, ended.stdout + ended.stderr
    assert "ok         nothing-runs: no training job and no execution of the run is left." in ended.stdout
    assert stack.cloud.running_jobs() == []


def test_a_terminal_is_asked_before_the_run_is_started(stack: Deployed) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "muster.client.cli.program", "verify"]
    os.write(master, b"n\n")
    with os.fdopen(master, "wb"), os.fdopen(slave) as terminal:
        ended = subprocess.run(
            command,
            env=stack.cloud.environment(),
            stdin=terminal,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert ended.returncode == 130, ended.stderr
    assert re.match(r"The run costs at most \$0\.0\d\d: .*\nStart\?", ended.stdout), ended.stdout
    assert "credentials" not in ended.stdout
