"""The embedded cloud itself: commands, its end, who may reach what, functions, and the count of calls."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.local import LocalCloud
from muster.local.cloud_errors import AlreadyRunningError, DeadCloudError, NotRunningError, PortInUseError
from muster.local.faults import LostInstance
from tests.support.waiting import wait_until
from tests.support.workshop import Workshop, fast_settings

LOCAL = [sys.executable, "-m", "muster.client.cli.program", "local"]


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LOCAL, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """The only line that a refused command says."""
    assert result.returncode == 3, result
    assert result.stdout == ""
    [line] = result.stderr.strip().splitlines()
    return line


# --- commands -------------------------------------------------------------------------------------


def test_a_cloud_from_up_to_down(tmp_path: Path) -> None:
    shell = {
        "AWS_PROFILE": "production",
        "AWS_CA_BUNDLE": "/nowhere/ca.pem",
        "AWS_ENDPOINT_URL_STS": "https://sts.amazonaws.com",
        "AWS_SESSION_TOKEN": "real",
        "AWS_ACCESS_KEY_ID": "AKIAREAL",
        "REQUESTS_CA_BUNDLE": "/nowhere/ca.pem",
    }
    up = run("up", "--port", "0", cwd=tmp_path, **shell)
    assert up.returncode == 0, up.stderr
    state = json.loads((tmp_path / ".muster" / "local.json").read_text())
    try:
        assert (tmp_path / ".muster" / "local.json").stat().st_mode & 0o777 == 0o600
        status = run("status", "--json", cwd=tmp_path, **shell)
        shown = json.loads(status.stdout)
        assert (shown["endpoint"], shown["pid"], shown["running_jobs"]) == (state["endpoint"], state["pid"], [])
        assert state["secret_access_key"] not in status.stdout
        who = "import boto3; print(boto3.client('sts').get_caller_identity()['Arn'])"
        asked = run("exec", "--", sys.executable, "-c", who, cwd=tmp_path, **shell)
        assert asked.stdout == "arn:aws:iam::123456789012:root\n", asked.stderr
        script = f'eval "$({" ".join(LOCAL)} env)"; exec {sys.executable} -c "{who}"'
        sourced = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, **shell},
            capture_output=True,
            text=True,
            check=False,
        )
        assert sourced.stdout == "arn:aws:iam::123456789012:root\n", sourced.stderr
        missing = run("exec", "--", "no-such-program", cwd=tmp_path)
        assert "no-such-program" in one_line(missing)
        second = run("up", "--port", "0", cwd=tmp_path)
        assert "is already running" in one_line(second)
        assert "muster local down" in second.stderr
    finally:
        down = run("down", cwd=tmp_path)
    assert down.returncode == 0
    assert not alive(state["pid"])
    assert not (tmp_path / ".muster" / "local.json").exists()
    for command in (("status",), ("down",), ("env",), ("exec", "--", "true")):
        assert "muster local up" in one_line(run(*command, cwd=tmp_path))


def test_a_cloud_in_the_foreground_ends_with_the_interrupt(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*LOCAL, "up", "--port", "0", "--foreground"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as output:
        assert "runs at" in output.readline()
        service = json.loads((tmp_path / ".muster" / "local.json").read_text())["pid"]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    assert not alive(service)


def test_faults_from_the_command_line(workshop: Workshop, faults: Any) -> None:
    state = ("--state", str(workshop.cloud.directory.root))
    command = [sys.executable, "-c", "from muster.local.commands.fault_commands import app; app()"]

    def faulty(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments, *state], capture_output=True, text=True, check=False)

    job = workshop.start("counter")
    assert faulty("lost-instance", job).returncode == 0
    assert workshop.end(job)["FailureReason"].startswith("InternalServerError")
    assert faulty("throttle", "--count", "2", "CreateTrainingJob").returncode == 0
    listed = json.loads(faulty("list", "--json").stdout)["faults"]
    assert [(entry["fault"]["kind"], entry["fired"]) for entry in listed] == [("lost-instance", 1), ("call-error", 0)]
    assert faulty("event", "mangle", job).returncode == 2
    assert faulty("clear").returncode == 0
    assert faulty("list").stdout == "No faults.\n"


# --- start and end --------------------------------------------------------------------------------


def test_a_port_in_use_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"Port {port} .* --port"):
            LocalCloud.start(tmp_path, fast_settings(port=port))
    with pytest.raises(NotRunningError):
        LocalCloud.attach(tmp_path)


def test_it_starts_keeps_its_keys_and_refuses_a_second_one(tmp_path: Path) -> None:
    with LocalCloud.start(tmp_path, fast_settings()) as first:
        assert LocalCloud.attach(tmp_path).endpoint == first.endpoint
        with pytest.raises(AlreadyRunningError):
            LocalCloud.start(tmp_path, fast_settings())
    with LocalCloud.start(tmp_path, fast_settings()) as second:
        assert second.state.access_key_id == first.state.access_key_id
        assert second.state.admin_token != first.state.admin_token
        assert second.state.ca_file.read_bytes() == first.state.ca_file.read_bytes()


def test_a_killed_service_takes_its_jobs_and_functions_with_it(tmp_path: Path) -> None:
    cloud = LocalCloud.start(tmp_path, fast_settings())
    try:
        workshop = Workshop(cloud)
        job = workshop.start("stubborn")
        workshop.until_logged(job, "ready")
        child = int(workshop.log(job)[0][0].removeprefix("child="))
        function = make_function(workshop, "import os\ndef handler(event, context): return os.getpid()\n")
        worker = invoke(cloud, function)
        assert alive(child)
        assert alive(worker)
        os.kill(cloud.state.pid, signal.SIGKILL)
        wait_until("the end of both processes", lambda: not (alive(child) or alive(worker)))
        with pytest.raises(DeadCloudError, match="muster local down"):
            LocalCloud.attach(tmp_path)
        # What a dead one left is no obstacle to the next.
        with LocalCloud.start(tmp_path, fast_settings()) as again:
            assert again.running_jobs() == []
    finally:
        cloud.stop()


def test_down_ends_running_jobs(tmp_path: Path) -> None:
    with LocalCloud.start(tmp_path, fast_settings()) as cloud:
        workshop = Workshop(cloud)
        job = workshop.start("stubborn")
        workshop.until_logged(job, "ready")
        assert cloud.running_jobs() == [job]
        child = int(workshop.log(job)[0][0].removeprefix("child="))
    assert not alive(child)
    assert not (cloud.directory.scratch).exists()


def test_a_service_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom muster.local import LocalCloud, Settings\n"
        "cloud = LocalCloud.start(Path(sys.argv[1]), Settings(port=0, end_with_parent=True))\n"
        "print(cloud.state.pid, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    started = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    wait_until("the end of the process", lambda: not alive(int(started.stdout)))


# --- what is on it --------------------------------------------------------------------------------


def make_function(workshop: Workshop, source: str, statements: list[dict[str, Any]] | None = None) -> str:
    """A function with a role of its own."""
    trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    role = workshop.make_role(statements or [{"Effect": "Allow", "Action": "logs:*", "Resource": "*"}], trust)
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("index.py", source)
    name = workshop.name("function")
    workshop.cloud.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role=role,
        Handler="index.handler",
        Code={"ZipFile": code.getvalue()},
        Timeout=30,
    )
    return name


def invoke(cloud: LocalCloud, name: str) -> Any:
    return json.loads(cloud.client("lambda").invoke(FunctionName=name)["Payload"].read())


def test_a_function_reaches_the_cloud_as_its_role_and_sees_nothing_of_the_host(workshop: Workshop) -> None:
    source = (
        "import boto3, os\n"
        "def handler(event, context):\n"
        "    return {'who': boto3.client('sts').get_caller_identity()['Arn'], 'environment': dict(os.environ)}\n"
    )
    answer = invoke(workshop.cloud, make_function(workshop, source))
    assert ":assumed-role/role-" in answer["who"]
    state = workshop.cloud.state
    values = answer["environment"].values()
    assert not any(secret in value for value in values for secret in (state.secret_access_key, state.admin_token))
    assert answer["environment"]["AWS_ENDPOINT_URL_S3"] == workshop.cloud.endpoint
    assert answer["environment"]["HOME"].startswith(str(workshop.cloud.directory.root))
    assert "PYTEST_CURRENT_TEST" not in answer["environment"]


def test_no_event_is_lost_when_functions_are_busy(workshop: Workshop) -> None:
    # More events at once than functions may run: the others wait for their turn.
    source = (
        "import time\ndef handler(event, context):\n    time.sleep(0.05)\n    print('number', event['detail']['n'])\n"
    )
    name = make_function(workshop, source)
    workshop.logs.create_log_group(logGroupName=f"/aws/lambda/{name}")
    events, rule = workshop.cloud.client("events"), workshop.name("rule")
    arn = workshop.cloud.client("lambda").get_function(FunctionName=name)["Configuration"]["FunctionArn"]
    events.put_rule(Name=rule, EventPattern=json.dumps({"source": ["test.busy"]}))
    events.put_targets(Rule=rule, Targets=[{"Id": "function", "Arn": arn}])
    numbers = [str(number) for number in range(20)]
    for half in (numbers[:10], numbers[10:]):
        entries = [{"Source": "test.busy", "DetailType": "n", "Detail": json.dumps({"n": number})} for number in half]
        assert events.put_events(Entries=entries)["FailedEntryCount"] == 0

    # Small pages: a function's lines have identities of which a page's token is made.
    paginator, pages = workshop.logs.get_paginator("filter_log_events"), {"PageSize": 7}

    def seen() -> list[str]:
        found = paginator.paginate(logGroupName=f"/aws/lambda/{name}", PaginationConfig=pages)
        messages = (event["message"].split() for page in found for event in page["events"])
        return sorted((words[1] for words in messages if words and words[0] == "number"), key=int)

    wait_until("every message", lambda: seen() == numbers)
    events.remove_targets(Rule=rule, Ids=["function"])


def test_a_bucket_that_demands_tls_is_served(workshop: Workshop) -> None:
    bucket = workshop.name("tls")
    workshop.s3.create_bucket(Bucket=bucket)
    deny = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    workshop.s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
    workshop.s3.put_object(Bucket=bucket, Key="a", Body=b"a")
    user = workshop.client_as("s3", [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}])
    assert user.get_object(Bucket=bucket, Key="a")["Body"].read() == b"a"


def test_conditional_writes_lose_as_on_aws(workshop: Workshop) -> None:
    key = workshop.name("key")
    etag = workshop.s3.put_object(Bucket=workshop.bucket, Key=key, Body=b"1", IfNoneMatch="*")["ETag"]
    for condition in ({"IfNoneMatch": "*"}, {"IfMatch": '"stale"'}):
        with pytest.raises(ClientError) as caught:
            workshop.s3.put_object(Bucket=workshop.bucket, Key=key, Body=b"2", **condition)
        assert caught.value.response["Error"]["Code"] == "PreconditionFailed"
    workshop.s3.put_object(Bucket=workshop.bucket, Key=key, Body=b"2", IfMatch=etag)
    assert workshop.read(key) == b"2"


def test_calls_are_counted_by_service_operation_and_caller(tmp_path: Path) -> None:
    # A cloud of its own: on the session's, what another test left behind would be counted, too.
    with LocalCloud.start(tmp_path, fast_settings()) as cloud:
        workshop = Workshop(cloud)
        cloud.calls.reset()
        job = workshop.run("writer", workshop.bucket, "counted/a")["TrainingJobName"]
        workshop.s3.copy_object(
            Bucket=workshop.bucket, Key="counted/b", CopySource={"Bucket": workshop.bucket, "Key": "counted/a"}
        )
        workshop.s3.head_object(Bucket=workshop.bucket, Key="counted/b")
        upload = workshop.s3.create_multipart_upload(Bucket=workshop.bucket, Key="counted/c")["UploadId"]
        workshop.s3.upload_part(Bucket=workshop.bucket, Key="counted/c", UploadId=upload, PartNumber=1, Body=b"part")
        workshop.s3.abort_multipart_upload(Bucket=workshop.bucket, Key="counted/c", UploadId=upload)
        workshop.s3.list_buckets()
        role = workshop.role.rsplit("/", 1)[-1]
        counted = {(row.service, row.operation, row.caller): row.count for row in cloud.calls.report()}
        assert counted.pop(("sagemaker", "DescribeTrainingJob", "root")) >= 1
        assert counted == {
            ("sagemaker", "CreateTrainingJob", "root"): 1,
            ("s3", "PutObject", role): 1,
            ("s3", "PutObject", "sagemaker.amazonaws.com"): 1,
            ("sts", "GetCallerIdentity", role): 1,
            ("s3", "CopyObject", "root"): 1,
            ("s3", "HeadObject", "root"): 1,
            ("s3", "CreateMultipartUpload", "root"): 1,
            ("s3", "UploadPart", "root"): 1,
            ("s3", "AbortMultipartUpload", "root"): 1,
            ("s3", "ListBuckets", "root"): 1,
        }
        assert workshop.describe(job)["TrainingJobStatus"] == "Completed"


def test_a_fault_that_fires_can_be_waited_for(workshop: Workshop, faults: Any) -> None:
    job = workshop.start("counter")
    fault = faults.add(LostInstance(job=job))
    fault.wait()
    assert fault.fired == 1
    with pytest.raises(TimeoutError, match="fired 1 times"):
        fault.wait(fired=2, timeout_seconds=0.1)
    workshop.end(job)
