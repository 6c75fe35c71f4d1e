"""The embedded cloud itself: commands, its start and end, faults on demand, and the count of calls."""

import json
import os
import signal
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from muster.local import LocalCloud
from muster.local.call_rates import CallRate
from muster.local.cloud_errors import AlreadyRunningError, DeadCloudError, NotRunningError, PortInUseError
from tests.support.cloud_processes import alive
from tests.support.command_server import CommandServer
from tests.support.waiting import wait_until
from tests.support.workshop import Workshop, fast_settings

LOCAL = [sys.executable, "-m", "muster.client.cli.program", "local"]
WHO = "import boto3; print(boto3.client('sts').get_caller_identity()['Arn'])"
ROOT = "arn:aws:iam::123456789012:root\n"


# --- commands -------------------------------------------------------------------------------------


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    """The only line that a refused command says."""
    assert result.returncode == 3, result
    assert result.stdout == ""
    [line] = result.stderr.strip().splitlines()
    return line


def test_a_cloud_from_up_to_down(commands: CommandServer, tmp_path: Path) -> None:
    elsewhere = {"AWS_CA_BUNDLE": "/nowhere/ca.pem", "AWS_ENDPOINT_URL_STS": "https://sts.amazonaws.com"}
    shell = {**os.environ, **elsewhere, "AWS_PROFILE": "production", "AWS_SESSION_TOKEN": "real"}

    def local(*arguments: str) -> subprocess.CompletedProcess[str]:
        return commands.run(["local", *arguments], tmp_path, shell)

    for command in (("status",), ("down",), ("env",), ("exec", "--", "true")):
        assert "muster local up" in one_line(local(*command))
    up = local("up", "--port", "0")
    assert up.returncode == 0, up.stderr
    file = tmp_path / ".muster" / "local.json"
    state = json.loads(file.read_text())
    try:
        status = local("status", "--json").stdout
        shown = json.loads(status)
        assert (shown["endpoint"], shown["pid"], shown["running_jobs"]) == (state["endpoint"], state["pid"], [])
        assert state["secret_access_key"] not in status
        asked = local("exec", "--", sys.executable, "-c", WHO)
        assert asked.stdout == ROOT, asked.stderr
        assert "no-such-program" in one_line(local("exec", "--", "no-such-program"))
        assert "muster local down" in one_line(local("up", "--port", "0"))
    finally:
        down = local("down")
    assert down.returncode == 0
    assert not alive(state["pid"])
    assert not file.exists()


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


# --- start and end --------------------------------------------------------------------------------


def test_a_port_in_use_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"{port} .* --port"):
            LocalCloud.start(tmp_path, fast_settings(port=port))
    with pytest.raises(NotRunningError):
        LocalCloud.attach(tmp_path)


def child_of(workshop: Workshop, job: str) -> int:
    """The process that a stubborn job has started; both ignore SIGTERM."""
    workshop.until_logged(job, "ready")
    child = int(workshop.log(job)[0][0].removeprefix("child="))
    assert alive(child)
    return child


def test_it_ends_what_does_not_end_by_itself_keeps_its_keys_and_refuses_a_second_one(tmp_path: Path) -> None:
    settings = fast_settings(stop_grace_seconds=0.1)
    with LocalCloud.start(tmp_path, settings) as first:
        assert LocalCloud.attach(tmp_path).endpoint == first.endpoint
        with pytest.raises(AlreadyRunningError):
            LocalCloud.start(tmp_path, settings)
        workshop = Workshop(first)
        stopped, left = workshop.start("stubborn"), workshop.start("stubborn")
        children = [child_of(workshop, job) for job in (stopped, left)]
        workshop.sagemaker.stop_training_job(TrainingJobName=stopped)
        assert workshop.end(stopped)["TrainingJobStatus"] == "Stopped"
        wait_until("the end of the process", lambda: not alive(children[0]))
        assert first.running_jobs() == [left]
    assert not alive(children[1])
    assert not first.directory.scratch.exists()
    with LocalCloud.start(tmp_path, settings) as second:
        assert second.state.access_key_id == first.state.access_key_id
        assert second.state.admin_token != first.state.admin_token
        assert second.state.ca_file.read_bytes() == first.state.ca_file.read_bytes()


def test_a_killed_service_takes_its_jobs_and_functions_with_it(tmp_path: Path) -> None:
    cloud = LocalCloud.start(tmp_path, fast_settings())
    try:
        workshop = Workshop(cloud)
        child = child_of(workshop, workshop.start("stubborn"))
        name, _ = workshop.make_function("import os\ndef handler(event, context): return os.getpid()\n")
        worker = workshop.invoke(name)
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


def test_a_service_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom muster.local import LocalCloud, Settings\n"
        "cloud = LocalCloud.start(Path(sys.argv[1]), Settings(port=0, end_with_parent=True))\n"
        "print(cloud.state.pid, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    started = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    wait_until("the end of the process", lambda: not alive(int(started.stdout)))


# --- what a test may look at and move -------------------------------------------------------------


def test_calls_are_counted_by_service_operation_and_caller(workshop: Workshop) -> None:
    # A user and a role of its own: what another test left behind may call at any time.
    key, statement = workshop.name("counted"), {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    user, role = workshop.access_key([statement]), workshop.make_role([statement])
    secret = {"aws_access_key_id": user["AccessKeyId"], "aws_secret_access_key": user["SecretAccessKey"]}
    s3 = workshop.cloud.client("s3", **secret)
    workshop.cloud.calls.reset()
    workshop.run("writer", workshop.bucket, f"{key}/a", RoleArn=role)
    place = {"Bucket": workshop.bucket, "Key": f"{key}/b"}
    s3.copy_object(**place, CopySource={"Bucket": workshop.bucket, "Key": f"{key}/a"})
    s3.head_object(**place)
    upload = s3.create_multipart_upload(**place)["UploadId"]
    s3.upload_part(**place, UploadId=upload, PartNumber=1, Body=b"part")
    s3.abort_multipart_upload(**place, UploadId=upload)
    s3.list_buckets()
    names = {f"user/{user['UserName']}": "user", role.rpartition("/")[2]: "role"}
    counted = {
        (names[row.caller], row.service, row.operation): row.count
        for row in workshop.cloud.calls.report()
        if row.caller in names
    }
    own = ("CopyObject", "HeadObject", "CreateMultipartUpload", "UploadPart", "AbortMultipartUpload", "ListBuckets")
    assert counted == {
        ("role", "s3", "PutObject"): 1,
        ("role", "sts", "GetCallerIdentity"): 1,
        **{("user", "s3", operation): 1 for operation in own},
    }


def test_the_rate_of_a_call_holds_for_users_and_not_for_a_test_that_looks_on(workshop: Workshop) -> None:
    cloud, options = workshop.cloud, {"config": Config(retries={"total_max_attempts": 1})}
    user = cloud.session().client("sagemaker", **options, **cloud.client_options())
    cloud.rates.set(CallRate(service="sagemaker", operation="ListTrainingJobs", per_second=0.001, burst=2))
    try:
        for _ in range(2):
            user.list_training_jobs()
        with pytest.raises(ClientError, match="ThrottlingException"):
            user.list_training_jobs()
        for _ in range(5):
            workshop.sagemaker.list_training_jobs()
    finally:
        cloud.rates.reset()


def test_objects_below_a_prefix_expire_after_their_days_at_midnight_and_incomplete_uploads_too(
    workshop: Workshop,
) -> None:
    bucket = workshop.name("bucket")
    workshop.s3.create_bucket(Bucket=bucket)
    rules: list[dict[str, Any]] = [
        {"ID": "old", "Filter": {"Prefix": "old/"}, "Expiration": {"Days": 3}, "Status": "Enabled"},
        {"ID": "off", "Filter": {"Prefix": "off/"}, "Expiration": {"Days": 1}, "Status": "Disabled"},
    ]
    aborts = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3}}
    rules.append({"ID": "half", "Filter": {"Prefix": "half/"}, "Status": "Enabled", **aborts})
    workshop.s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    for key in ("old/a", "off/a", "half/whole", "other"):
        workshop.s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    workshop.s3.create_multipart_upload(Bucket=bucket, Key="half/a")

    def gone_after(days: float) -> set[str]:
        gone = workshop.cloud.clock.advance(timedelta(days=days))
        return {name for name in gone if name.startswith(f"{bucket}/")}

    assert gone_after(2.9) == set()
    assert gone_after(1.2) == {f"{bucket}/half/a", f"{bucket}/old/a"}
    left = workshop.s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert [one["Key"] for one in left] == ["half/whole", "off/a", "other"]
    assert "Uploads" not in workshop.s3.list_multipart_uploads(Bucket=bucket)
