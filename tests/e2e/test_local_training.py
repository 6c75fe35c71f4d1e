"""Training jobs on the embedded cloud, through boto3 as everybody calls it."""

from __future__ import annotations

import io
import itertools
import json
import os
import tarfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.local import LocalCloud
from tests.support.waiting import wait_until
from tests.support.workshop import PROGRAMS, Workshop, fast_settings, statuses

# On one line, in at most 256 characters.
LIST_CHECKPOINTS = "; ".join(
    [
        "import os, pathlib",
        "folder = pathlib.Path(os.environ['SAGEMAKER_BASE_DIR'], 'checkpoints')",
        "print(sorted(path.relative_to(folder).as_posix() for path in folder.rglob('*') if path.is_file()))",
    ]
)


def archive(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]


def report_of(workshop: Workshop, job: str) -> dict[str, Any]:
    return dict(json.loads(archive(workshop.read(f"output/{job}/output/output.tar.gz"))["report.json"]))


def code_of(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_job_runs_to_its_end_and_leaves_its_artifacts(workshop: Workshop) -> None:
    shown = workshop.run("report", HyperParameters={"lr": "0.1"})
    job = shown["TrainingJobName"]
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Completed", "Completed")
    assert statuses(shown) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert all(one["EndTime"] <= next_["StartTime"] for one, next_ in _pairs(shown["SecondaryStatusTransitions"]))
    model = f"output/{job}/output/model.tar.gz"
    assert shown["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{workshop.bucket}/{model}"
    assert archive(workshop.read(model)) == {"weights": b"weights"}
    assert shown["CreationTime"] <= shown["TrainingStartTime"] <= shown["TrainingEndTime"]
    assert shown["BillableTimeInSeconds"] == shown["TrainingTimeInSeconds"]
    assert shown["HyperParameters"] == {"lr": "0.1"}
    config = report_of(workshop, job)["config"]
    assert config["hyperparameters.json"] == {"lr": "0.1"}
    assert config["resourceconfig.json"]["current_host"] == "algo-1"
    assert config["resourceconfig.json"]["hosts"] == ["algo-1"]
    assert config["resourceconfig.json"]["current_instance_type"] == "ml.m5.large"


def _pairs(entries: list[Any]) -> list[tuple[Any, Any]]:
    return list(itertools.pairwise(entries))


def test_a_process_sees_its_job_and_nothing_of_the_host(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = workshop.run("report", "--flag", "a b", Environment={"RANK": "3", "OMP_NUM_THREADS": "2"})
    report = report_of(workshop, shown["TrainingJobName"])
    environment = report["environment"]
    assert report["arguments"] == ["--flag", "a b"]
    assert report["cwd"] == str(PROGRAMS)
    assert environment["RANK"] == "3"
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["TRAINING_JOB_NAME"] == shown["TrainingJobName"]
    assert environment["TRAINING_JOB_ARN"] == shown["TrainingJobArn"]
    assert environment["AWS_ENDPOINT_URL"] == workshop.cloud.endpoint
    root = workshop.cloud.state
    secrets = (root.secret_access_key, root.admin_token, root.access_key_id)
    assert not any(secret in value for value in environment.values() for secret in secrets)
    assert not {"USER", "LOGNAME", "VIRTUAL_ENV", "AWS_PROFILE"} & environment.keys()
    assert environment["HOME"] != os.path.expanduser("~")  # noqa: PTH111
    assert environment["HOME"].startswith(str(workshop.cloud.directory.root))


# What SageMaker documents of a container's environment, what a request adds, what an image may set, and what is ours.
DOCUMENTED = {"TRAINING_JOB_NAME", "TRAINING_JOB_ARN"}
OF_AN_IMAGE = {
    *("PATH", "LANG", "LC_CTYPE", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"),
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
}
OURS = {
    *("SAGEMAKER_BASE_DIR", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "SSL_CERT_FILE"),
    *("REQUESTS_CA_BUNDLE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_EC2_METADATA_DISABLED"),
}


def test_a_container_has_the_documented_environment_and_no_region(workshop: Workshop) -> None:
    shown = workshop.run("report", Environment={"SOME": "value"})
    environment = report_of(workshop, shown["TrainingJobName"])["environment"]
    assert environment.keys() - OF_AN_IMAGE == DOCUMENTED | OURS | {"SOME"}


def test_a_process_has_the_rights_of_its_role_and_no_more(workshop: Workshop) -> None:
    role = workshop.make_role(
        [
            {"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{workshop.bucket}/mine/*"},
            {"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{workshop.bucket}/output/*"},
            {"Effect": "Allow", "Action": "logs:*", "Resource": "*"},
        ]
    )
    inside = workshop.run("writer", workshop.bucket, "mine/a", RoleArn=role)["TrainingJobName"]
    outside = workshop.run("writer", workshop.bucket, "theirs/a", RoleArn=role)["TrainingJobName"]
    session = f"arn:aws:sts::123456789012:assumed-role/{role.rsplit('/', 1)[-1]}/SageMaker"
    assert workshop.log(inside) == [["written", session]]
    assert workshop.log(outside) == [["AccessDenied", session]]


def test_input_channels_come_from_a_prefix_and_from_a_manifest(workshop: Workshop) -> None:
    for key in ("data/train/a.txt", "data/train/deep/b.txt", "data/train-2.txt", "other/c.txt"):
        workshop.s3.put_object(Bucket=workshop.bucket, Key=key, Body=key.encode())
    manifest = [{"prefix": f"s3://{workshop.bucket}/"}, "other/c.txt", "data/train/a.txt"]
    workshop.s3.put_object(Bucket=workshop.bucket, Key="manifest", Body=json.dumps(manifest).encode())

    def channel(name: str, kind: str, uri: str) -> dict[str, Any]:
        return {"ChannelName": name, "DataSource": {"S3DataSource": {"S3DataType": kind, "S3Uri": uri}}}

    shown = workshop.run(
        "report",
        InputDataConfig=[
            channel("folder", "S3Prefix", f"s3://{workshop.bucket}/data/train/"),
            channel("stem", "S3Prefix", f"s3://{workshop.bucket}/data/train-"),
            channel("listed", "ManifestFile", f"s3://{workshop.bucket}/manifest"),
        ],
    )
    report = report_of(workshop, shown["TrainingJobName"])
    assert sorted(report["inputs"]) == [
        "folder/a.txt",
        "folder/deep/b.txt",
        "listed/data/train/a.txt",
        "listed/other/c.txt",
        "stem/train-2.txt",
    ]
    assert report["config"]["inputdataconfig.json"]["folder"]["TrainingInputMode"] == "File"


def test_input_that_is_not_there_fails_the_job(workshop: Workshop) -> None:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{workshop.bucket}/nothing/"}
    channel = {"ChannelName": "train", "DataSource": {"S3DataSource": source}}
    shown = workshop.run("report", InputDataConfig=[channel])
    assert shown["TrainingJobStatus"] == "Failed"
    assert shown["FailureReason"].startswith("ClientError: Data download failed:No S3 objects found")
    assert statuses(shown) == ["Starting", "Downloading", "Failed"]


def test_uncompressed_output_lies_loose(workshop: Workshop) -> None:
    output = {"S3OutputPath": f"s3://{workshop.bucket}/loose/", "CompressionType": "NONE"}
    shown = workshop.run("report", OutputDataConfig=output)
    base = f"loose/{shown['TrainingJobName']}/output"
    assert workshop.keys("loose/") == [f"{base}/model/weights", f"{base}/output/report.json"]
    assert shown["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{workshop.bucket}/{base}/model/"


def test_output_and_error_go_to_the_log_and_metrics_are_read_from_it(workshop: Workshop) -> None:
    request = workshop.request("report")
    request["AlgorithmSpecification"]["MetricDefinitions"] = [{"Name": "loss", "Regex": r"loss=([0-9.]+)"}]
    workshop.sagemaker.create_training_job(**request)
    shown = workshop.end(request["TrainingJobName"])
    assert workshop.log(request["TrainingJobName"]) == [["step=1 loss=0.75", "step=2 loss=0.25"]]
    [metric] = shown["FinalMetricDataList"]
    assert (metric["MetricName"], metric["Value"]) == ("loss", 0.25)


def test_the_log_is_there_while_the_job_runs(workshop: Workshop) -> None:
    job = workshop.start("counter")
    workshop.until_logged(job, "count=1")
    assert workshop.describe(job)["SecondaryStatus"] == "Training"
    workshop.sagemaker.stop_training_job(TrainingJobName=job)
    workshop.end(job)


def test_a_role_without_log_rights_trains_without_a_log(workshop: Workshop) -> None:
    role = workshop.make_role([{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}])
    shown = workshop.run("report", RoleArn=role)
    assert shown["TrainingJobStatus"] == "Completed"
    assert workshop.log(shown["TrainingJobName"]) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("3",), "AlgorithmError: , exit code: 3"),
        (("4", "lost the thread", "1"), "AlgorithmError: lost the thread, exit code: 4"),
        (("1", "x", "5000"), f"AlgorithmError: {'x' * 1008}"),
    ],
)
def test_a_failing_process_fails_the_job_with_its_reason(
    workshop: Workshop, arguments: tuple[str, ...], reason: str
) -> None:
    shown = workshop.run("failing", *arguments)
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Failed", "Failed")
    assert shown["FailureReason"] == reason
    output = f"output/{shown['TrainingJobName']}/output/output.tar.gz"
    assert archive(workshop.read(output)) == {"partial": b"what there is"}


def test_a_program_that_does_not_exist_fails_with_127(workshop: Workshop) -> None:
    request = workshop.request("report")
    request["AlgorithmSpecification"]["ContainerEntrypoint"] = ["no-such-program"]
    workshop.sagemaker.create_training_job(**request)
    shown = workshop.end(request["TrainingJobName"])
    assert shown["TrainingJobStatus"] == "Failed"
    assert "no-such-program" in shown["FailureReason"]
    assert shown["FailureReason"].endswith("exit code: 127")


def test_an_image_that_does_not_exist_fails_the_job(workshop: Workshop) -> None:
    request = workshop.request("report")
    request["AlgorithmSpecification"]["TrainingImage"] = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1"
    workshop.sagemaker.create_training_job(**request)
    shown = workshop.end(request["TrainingJobName"])
    assert shown["TrainingJobStatus"] == "Failed"
    assert shown["FailureReason"].startswith("ClientError: Cannot find image 123456789012.dkr.ecr")


def test_checkpoints_are_synced_while_the_job_runs_and_restored_to_the_next_one(workshop: Workshop) -> None:
    config = {"S3Uri": f"s3://{workshop.bucket}/checkpoints/shared", "LocalPath": "/opt/ml/checkpoints"}
    first = workshop.start("counter", CheckpointConfig=config)
    wait_until("the checkpoint", lambda: workshop.keys("checkpoints/shared"))
    assert workshop.describe(first)["SecondaryStatus"] == "Training"
    workshop.sagemaker.stop_training_job(TrainingJobName=first)
    assert workshop.end(first)["TrainingJobStatus"] == "Stopped"
    assert workshop.keys("checkpoints/shared") == ["checkpoints/shared/count", "checkpoints/shared/goodbye-1"]
    second = workshop.run("counter", "2", CheckpointConfig=config)
    assert second["TrainingJobStatus"] == "Completed"
    assert workshop.log(second["TrainingJobName"]) == [["count=2"]]
    assert workshop.read("checkpoints/shared/count") == b"2"


def run_lines(workshop: Workshop, *lines: str, **changes: Any) -> dict[str, Any]:
    """The end of a job that runs these lines in its checkpoint folder."""
    here = "import os, pathlib, time; here = pathlib.Path(os.environ['SAGEMAKER_BASE_DIR'], 'checkpoints')"
    request = workshop.request("report", **changes)
    request["AlgorithmSpecification"]["ContainerEntrypoint"] = ["python", "-c", "; ".join([here, *lines])]
    workshop.sagemaker.create_training_job(**request)
    return workshop.end(request["TrainingJobName"])


@pytest.mark.parametrize("allowed", [True, False])
def test_what_a_container_deletes_is_deleted_with_the_rights_of_the_role(workshop: Workshop, allowed: bool) -> None:
    place = f"checkpoints/{workshop.name()}"
    for key in ("kept", "deleted", "deep/deleted"):
        workshop.s3.put_object(Bucket=workshop.bucket, Key=f"{place}/{key}", Body=b"x")
    effect = "Allow" if allowed else "Deny"
    role = workshop.make_role(
        [
            {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket", "s3:PutObject"], "Resource": "*"},
            {"Effect": effect, "Action": "s3:DeleteObject", "Resource": f"arn:aws:s3:::{workshop.bucket}/{place}/*"},
        ]
    )
    shown = run_lines(
        workshop,
        "(here / 'deleted').unlink()",
        "(here / 'deep' / 'deleted').unlink()",
        RoleArn=role,
        CheckpointConfig={"S3Uri": f"s3://{workshop.bucket}/{place}/"},
    )
    assert shown["TrainingJobStatus"] == "Completed"
    left = ["kept"] if allowed else ["deep/deleted", "deleted", "kept"]
    assert workshop.keys(place) == [f"{place}/{key}" for key in left]


@pytest.mark.parametrize(("end", "found"), [("", ["own", "r10/other"]), ("/", ["own"])])
def test_a_checkpoint_prefix_is_taken_literally(workshop: Workshop, end: str, found: list[str]) -> None:
    place = f"checkpoints/{workshop.name()}"
    for key in ("r1/own", "r10/other"):
        workshop.s3.put_object(Bucket=workshop.bucket, Key=f"{place}/{key}", Body=b"")
    request = workshop.request("counter", CheckpointConfig={"S3Uri": f"s3://{workshop.bucket}/{place}/r1{end}"})
    request["AlgorithmSpecification"]["ContainerEntrypoint"] = ["python", "-c", LIST_CHECKPOINTS]
    job = request["TrainingJobName"]
    workshop.sagemaker.create_training_job(**request)
    assert workshop.end(job)["TrainingJobStatus"] == "Completed"
    assert workshop.log(job) == [[str(found)]]


def test_a_checkpoint_path_of_the_host_is_never_touched(workshop: Workshop, tmp_path: Path) -> None:
    config = {"S3Uri": f"s3://{workshop.bucket}/checkpoints/host", "LocalPath": str(tmp_path)}
    shown = workshop.run("counter", CheckpointConfig=config)
    assert shown["TrainingJobStatus"] == "Failed"
    assert f"{tmp_path} is not below /opt/ml" in shown["FailureReason"]


def test_a_denied_checkpoint_upload_fails_the_job(workshop: Workshop) -> None:
    role = workshop.make_role(
        [
            {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
            {"Effect": "Deny", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{workshop.bucket}/closed/*"},
        ]
    )
    shown = workshop.run("counter", RoleArn=role, CheckpointConfig={"S3Uri": f"s3://{workshop.bucket}/closed"})
    assert shown["TrainingJobStatus"] == "Failed"
    assert shown["FailureReason"].startswith("ClientError: Artifact upload failed:")


def test_a_denied_artifact_upload_fails_the_job(workshop: Workshop) -> None:
    role = workshop.make_role([{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}])
    shown = workshop.run("report", RoleArn=role)
    assert shown["TrainingJobStatus"] == "Failed"
    assert shown["FailureReason"].startswith("ClientError: Artifact upload failed:")
    assert role in shown["FailureReason"]


def test_stop_gives_a_process_time_to_say_goodbye_and_keeps_its_work(workshop: Workshop) -> None:
    config = {"S3Uri": f"s3://{workshop.bucket}/checkpoints/{workshop.name()}"}
    job = workshop.start("counter", CheckpointConfig=config)
    workshop.until(job, "Training")
    workshop.until_logged(job, "count=1")
    workshop.sagemaker.stop_training_job(TrainingJobName=job)
    assert workshop.describe(job)["TrainingJobStatus"] in {"Stopping", "Stopped"}
    shown = workshop.end(job)
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Stopped", "Stopped")
    assert statuses(shown) == ["Starting", "Downloading", "Training", "Stopping", "Uploading", "Stopped"]
    assert any(key.endswith("goodbye-1") for key in workshop.keys(config["S3Uri"].split("/", 3)[3]))
    assert workshop.keys(f"output/{job}/") == [f"output/{job}/output/model.tar.gz"]


def test_a_process_that_does_not_listen_ends_with_the_signal(tmp_path: Path) -> None:
    # Nobody here would wait for the end of this grace.
    with LocalCloud.start(tmp_path, fast_settings(stop_grace_seconds=600)) as patient:
        workshop = Workshop(patient)
        request = workshop.request("report")
        request["AlgorithmSpecification"]["ContainerEntrypoint"] = ["sleep", "600"]
        workshop.sagemaker.create_training_job(**request)
        workshop.until(request["TrainingJobName"], "Training")
        workshop.sagemaker.stop_training_job(TrainingJobName=request["TrainingJobName"])
        assert workshop.end(request["TrainingJobName"])["TrainingJobStatus"] == "Stopped"


def test_a_process_that_ignores_the_signal_is_killed_with_its_children(tmp_path: Path) -> None:
    with LocalCloud.start(tmp_path, fast_settings(stop_grace_seconds=0.1)) as impatient:
        workshop = Workshop(impatient)
        job = workshop.start("stubborn")
        workshop.until_logged(job, "ready")
        [[child, _]] = workshop.log(job)
        pid = int(child.removeprefix("child="))
        assert alive(pid)
        workshop.sagemaker.stop_training_job(TrainingJobName=job)
        shown = workshop.end(job)
        assert shown["TrainingJobStatus"] == "Stopped"
        wait_until("the end of the process", lambda: not alive(pid))


def test_a_job_that_is_stopped_before_it_trains_never_trains(workshop: Workshop, faults: Any) -> None:
    from muster.local.faults import SlowStart  # noqa: PLC0415

    request = workshop.request("report")
    faults.add(SlowStart(job=request["TrainingJobName"], seconds=60))
    workshop.sagemaker.create_training_job(**request)
    workshop.sagemaker.stop_training_job(TrainingJobName=request["TrainingJobName"])
    shown = workshop.end(request["TrainingJobName"])
    assert statuses(shown) == ["Starting", "Stopping", "Stopped"]
    assert "TrainingStartTime" not in shown


def test_a_job_that_runs_too_long_is_stopped_by_the_service(workshop: Workshop) -> None:
    shown = workshop.run("counter", StoppingCondition={"MaxRuntimeInSeconds": 1})
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")
    assert "Uploading" in statuses(shown)


def test_names_are_unique_for_ever_and_whatever_their_case(workshop: Workshop) -> None:
    request = workshop.request("report")
    workshop.sagemaker.create_training_job(**request)
    workshop.end(request["TrainingJobName"])
    for name in (request["TrainingJobName"], request["TrainingJobName"].upper()):
        with pytest.raises(workshop.sagemaker.exceptions.ResourceInUse):
            workshop.sagemaker.create_training_job(**{**request, "TrainingJobName": name})


def test_a_job_that_does_not_exist_is_a_validation_exception(workshop: Workshop) -> None:
    for call in (workshop.sagemaker.describe_training_job, workshop.sagemaker.stop_training_job):
        with pytest.raises(ClientError) as caught:
            call(TrainingJobName="nobody")
        assert code_of(caught) == "ValidationException"


def test_a_job_that_ended_cannot_be_stopped(workshop: Workshop) -> None:
    shown = workshop.run("failing", "0")
    with pytest.raises(ClientError) as caught:
        workshop.sagemaker.stop_training_job(TrainingJobName=shown["TrainingJobName"])
    assert code_of(caught) == "ValidationException"
    assert workshop.describe(shown["TrainingJobName"])["TrainingJobStatus"] == "Completed"


def test_tags_can_be_added_and_listed(workshop: Workshop) -> None:
    job = workshop.start("failing", "0", Tags=[{"Key": "run", "Value": "one"}])
    arn = workshop.describe(job)["TrainingJobArn"]
    workshop.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "rank", "Value": "0"}, {"Key": "run", "Value": "two"}])
    listed = workshop.sagemaker.list_tags(ResourceArn=arn)["Tags"]
    assert {tag["Key"]: tag["Value"] for tag in listed} == {"run": "two", "rank": "0"}
    workshop.end(job)


def test_listing_filters_sorts_and_pages(workshop: Workshop) -> None:
    stem = workshop.name("list")
    names = [f"{stem}-{letter}" for letter in "cab"]
    for name in names:
        workshop.start("failing", "1" if name.endswith("b") else "0", TrainingJobName=name)
    ends = [workshop.end(name) for name in names]

    def listed(**filters: Any) -> list[str]:
        pages = workshop.sagemaker.get_paginator("list_training_jobs").paginate(
            NameContains=stem, PaginationConfig={"PageSize": 2}, **filters
        )
        return [row["TrainingJobName"] for page in pages for row in page["TrainingJobSummaries"]]

    assert listed() == names
    assert listed(SortOrder="Descending") == list(reversed(names))
    assert listed(SortBy="Name", SortOrder="Ascending") == sorted(names)
    assert listed(StatusEquals="Failed") == [f"{stem}-b"]
    assert listed(StatusEquals="InProgress") == []
    # botocore sends whole seconds.
    earlier, later = (ends[0]["CreationTime"] + timedelta(seconds=seconds) for seconds in (-2, 60))
    assert (len(listed(CreationTimeAfter=earlier)), listed(CreationTimeAfter=later)) == (3, [])
    assert (len(listed(CreationTimeBefore=later)), listed(CreationTimeBefore=earlier)) == (3, [])
    assert (len(listed(LastModifiedTimeAfter=earlier)), listed(LastModifiedTimeAfter=later)) == (3, [])
    assert (len(listed(LastModifiedTimeBefore=later)), listed(LastModifiedTimeBefore=earlier)) == (3, [])
    [summary] = workshop.sagemaker.list_training_jobs(NameContains=names[0])["TrainingJobSummaries"]
    assert summary["TrainingEndTime"] == ends[0]["TrainingEndTime"]
    with pytest.raises(ClientError) as caught:
        workshop.sagemaker.list_training_jobs(NextToken="made-up")
    assert code_of(caught) == "ValidationException"


def test_every_violation_is_told_at_once_and_nothing_is_created(workshop: Workshop) -> None:
    request = workshop.request("report", "x" * 257)
    request["TrainingJobName"] = "trailing-"
    with pytest.raises(ClientError) as caught:
        workshop.sagemaker.create_training_job(**request)
    assert code_of(caught) == "ValidationException"
    message = caught.value.response["Error"]["Message"]
    assert message.startswith("2 validation errors detected: ")
    assert "'trainingJobName'" in message
    assert "'algorithmSpecification.containerArguments.1.member'" in message
    assert workshop.sagemaker.list_training_jobs(NameContains="trailing-")["TrainingJobSummaries"] == []
