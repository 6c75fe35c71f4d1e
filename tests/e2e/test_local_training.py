"""Training jobs on the embedded cloud, through boto3 as everybody calls it."""

import io
import itertools
import json
import os
import tarfile
from pathlib import Path
from typing import Any

from muster.local.faults import SlowStart
from tests.support.waiting import wait_until
from tests.support.workshop import PROGRAMS, Workshop, statuses


def archive(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]


def report_of(workshop: Workshop, job: str) -> dict[str, Any]:
    return dict(json.loads(archive(workshop.read(f"output/{job}/output/output.tar.gz"))["report.json"]))


def test_a_job_runs_to_its_end_and_leaves_its_artifacts(workshop: Workshop) -> None:
    shown = workshop.run("report", HyperParameters={"lr": "0.1"})
    job = shown["TrainingJobName"]
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Completed", "Completed")
    assert statuses(shown) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    steps = shown["SecondaryStatusTransitions"]
    assert all(one["EndTime"] <= following["StartTime"] for one, following in itertools.pairwise(steps))
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


# What SageMaker documents of a container's environment, what a request adds, what an image may set, and what is ours.
DOCUMENTED = {"TRAINING_JOB_NAME", "TRAINING_JOB_ARN"}
OF_AN_IMAGE = {
    *("PATH", "LANG", "LC_CTYPE", "HOME", "TMPDIR", "PYTHONPATH", "PYTHONUNBUFFERED"),
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
}
OURS = {
    *("SAGEMAKER_BASE_DIR", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "SSL_CERT_FILE"),
    *("REQUESTS_CA_BUNDLE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_EC2_METADATA_DISABLED"),
}


def test_a_process_sees_its_job_and_nothing_of_the_host(workshop: Workshop) -> None:
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
    # Without a region, too.
    assert environment.keys() - OF_AN_IMAGE == DOCUMENTED | OURS | {"RANK"}
    assert environment["HOME"] != os.path.expanduser("~")  # noqa: PTH111
    assert environment["HOME"].startswith(str(workshop.cloud.directory.root))


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


def test_uncompressed_output_lies_loose(workshop: Workshop) -> None:
    output = {"S3OutputPath": f"s3://{workshop.bucket}/loose/", "CompressionType": "NONE"}
    shown = workshop.run("report", OutputDataConfig=output)
    base = f"loose/{shown['TrainingJobName']}/output"
    assert workshop.keys("loose/") == [f"{base}/model/weights", f"{base}/output/report.json"]
    assert shown["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{workshop.bucket}/{base}/model/"


def test_what_does_not_exist_fails_the_job(workshop: Workshop) -> None:
    foreign = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1"
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{workshop.bucket}/nothing/"}
    channel = {"ChannelName": "train", "DataSource": {"S3DataSource": source}}
    program, image, inputs = (workshop.request("report") for _ in range(3))
    program["AlgorithmSpecification"]["ContainerEntrypoint"] = ["no-such-program"]
    image["AlgorithmSpecification"]["TrainingImage"] = foreign
    inputs["InputDataConfig"] = [channel]
    for request in (program, image, inputs):
        workshop.sagemaker.create_training_job(**request)
    shown = [workshop.end(request["TrainingJobName"]) for request in (program, image, inputs)]
    of_program, of_image, of_inputs = (one["FailureReason"] for one in shown)
    assert "no-such-program" in of_program
    assert of_program.endswith("exit code: 127")
    assert of_image.startswith(f"ClientError: Cannot find image {foreign}")
    assert of_inputs.startswith("ClientError: Data download failed:")
    assert statuses(shown[2]) == ["Starting", "Downloading", "Failed"]


def test_checkpoints_are_synced_while_the_job_runs_and_restored_to_the_next_one(workshop: Workshop) -> None:
    place = f"checkpoints/{workshop.name()}"
    config = {"S3Uri": f"s3://{workshop.bucket}/{place}", "LocalPath": "/opt/ml/checkpoints"}
    first = workshop.start("counter", CheckpointConfig=config)
    wait_until("the checkpoint", lambda: workshop.keys(place))
    assert workshop.describe(first)["SecondaryStatus"] == "Training"
    # A process that is stopped has time to say goodbye.
    workshop.until_logged(first, "count=1")
    workshop.sagemaker.stop_training_job(TrainingJobName=first)
    assert workshop.describe(first)["TrainingJobStatus"] in {"Stopping", "Stopped"}
    assert statuses(workshop.end(first)) == ["Starting", "Downloading", "Training", "Stopping", "Uploading", "Stopped"]
    assert workshop.keys(place) == [f"{place}/count", f"{place}/goodbye-1"]
    assert workshop.keys(f"output/{first}/") == [f"output/{first}/output/model.tar.gz"]
    second = workshop.run("counter", "2", CheckpointConfig=config)
    assert second["TrainingJobStatus"] == "Completed"
    assert workshop.log(second["TrainingJobName"]) == [["count=2"]]
    assert workshop.read(f"{place}/count") == b"2"


def start_lines(workshop: Workshop, *lines: str, **changes: Any) -> str:
    """A job that runs these lines in its checkpoint folder."""
    here = "import os, pathlib; here = pathlib.Path(os.environ['SAGEMAKER_BASE_DIR'], 'checkpoints')"
    request = workshop.request("report", **changes)
    request["AlgorithmSpecification"]["ContainerEntrypoint"] = ["python", "-c", "; ".join([here, *lines])]
    workshop.sagemaker.create_training_job(**request)
    return str(request["TrainingJobName"])


def test_what_a_container_deletes_is_deleted_with_the_rights_of_the_role(workshop: Workshop) -> None:
    jobs, left = {}, {"Allow": ["kept"], "Deny": ["deep/deleted", "deleted", "kept"]}
    for effect in left:
        place = f"checkpoints/{workshop.name()}"
        for key in ("kept", "deleted", "deep/deleted"):
            workshop.s3.put_object(Bucket=workshop.bucket, Key=f"{place}/{key}", Body=b"x")
        rights = [{"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket", "s3:PutObject"], "Resource": "*"}]
        own = f"arn:aws:s3:::{workshop.bucket}/{place}/*"
        jobs[effect, place] = start_lines(
            workshop,
            "(here / 'deleted').unlink()",
            "(here / 'deep' / 'deleted').unlink()",
            RoleArn=workshop.make_role([*rights, {"Effect": effect, "Action": "s3:DeleteObject", "Resource": own}]),
            CheckpointConfig={"S3Uri": f"s3://{workshop.bucket}/{place}/"},
        )
    for (effect, place), job in jobs.items():
        assert workshop.end(job)["TrainingJobStatus"] == "Completed"
        assert workshop.keys(place) == [f"{place}/{key}" for key in left[effect]], effect


def test_a_checkpoint_prefix_is_taken_literally(workshop: Workshop) -> None:
    place = f"checkpoints/{workshop.name()}"
    for key in ("r1/own", "r10/other"):
        workshop.s3.put_object(Bucket=workshop.bucket, Key=f"{place}/{key}", Body=b"")
    found = "sorted(path.relative_to(here).as_posix() for path in here.rglob('*') if path.is_file())"
    jobs = {
        start_lines(
            workshop, f"print({found})", CheckpointConfig={"S3Uri": f"s3://{workshop.bucket}/{place}/r1{end}"}
        ): seen
        for end, seen in (("", ["own", "r10/other"]), ("/", ["own"]))
    }
    assert [workshop.end(job)["TrainingJobStatus"] for job in jobs] == ["Completed"] * 2
    assert {job: workshop.log(job) for job in jobs} == {job: [[str(seen)]] for job, seen in jobs.items()}


def test_a_denied_upload_of_a_checkpoint_or_an_artifact_fails_the_job(workshop: Workshop) -> None:
    everything = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    closed = {"Effect": "Deny", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{workshop.bucket}/closed/*"}
    no_checkpoint = workshop.make_role([everything, closed])
    no_artifact = workshop.make_role([{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}])
    checkpoints = {"S3Uri": f"s3://{workshop.bucket}/closed"}
    jobs = {
        workshop.start("counter", RoleArn=no_checkpoint, CheckpointConfig=checkpoints): no_checkpoint,
        workshop.start("report", RoleArn=no_artifact): no_artifact,
    }
    for job, role in jobs.items():
        reason = workshop.end(job)["FailureReason"]
        assert reason.startswith("ClientError: Artifact upload failed:")
        assert role in reason


def test_a_job_that_is_stopped_before_it_trains_never_trains(workshop: Workshop, faults: Any) -> None:
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


# --- jobs of several instances --------------------------------------------------------------------


def on_instances(count: int) -> dict[str, Any]:
    return {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 1}}


def test_instances_reach_each_other_by_name_and_leave_one_model(workshop: Workshop) -> None:
    shown = workshop.run("instances", "meet", **on_instances(3))
    job = shown["TrainingJobName"]
    assert shown["TrainingJobStatus"] == "Completed", shown.get("FailureReason")
    assert workshop.log(job) == [[], ["hello algo-2"], ["hello algo-3"]]
    hosts = ["algo-1", "algo-2", "algo-3"]
    assert archive(workshop.read(f"output/{job}/output/model.tar.gz")) == dict.fromkeys(hosts, b"weights")
    output = archive(workshop.read(f"output/{job}/output/output.tar.gz"))
    configs = {name: json.loads(content) for name, content in output.items()}
    assert {name: config["current_host"] for name, config in configs.items()} == {
        f"{host}.json": host for host in hosts
    }
    assert all(config["hosts"] == hosts for config in configs.values())


def test_the_failure_of_one_instance_fails_the_job_at_once(workshop: Workshop) -> None:
    shown = workshop.run("instances", "fail", "algo-2", "7", **on_instances(2))
    assert shown["FailureReason"] == "AlgorithmError: algo-2 has no data, exit code: 7"
    pids = [int(line) for lines in workshop.log(shown["TrainingJobName"]) for line in lines]
    assert [pid for pid in pids if Path("/proc", str(pid)).exists()] == []
