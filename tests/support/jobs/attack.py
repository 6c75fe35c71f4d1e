"""Trainers of two runs side by side: one goes its way, the other does to the first run what its rights allow."""

import io
import json
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import boto3
import numpy as np
from botocore.exceptions import ClientError

from muster.replica.context import Context
from muster.replica.frontends.array_diloco import DiLoCo
from tests.support.jobs import gated
from tests.support.peers import gradient_of

COUNT = 300
REPORT = "report.json"
DENIED = {"AccessDenied", "AccessDeniedException", "403"}
"""The answers that refuse."""
_REGION = "us-east-1"  # a container is not told its region


def report_in(archive: bytes) -> dict[str, Any]:
    """What an attack was answered, from the outputs of its job."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        member = files.extractfile(REPORT)
        assert member is not None
        return dict(json.loads(member.read()))


def train_past(context: Context, *, rounds: int, gate: str, **_: Any) -> None:
    """Half of the rounds, a checkpoint, and the rest once the gate is open. Gradients depend on rank and round."""
    parameters = np.zeros(COUNT, np.float32)
    outer = DiLoCo(context.rendezvous, {"weights": parameters})
    while outer.round < rounds:
        if outer.round == rounds // 2:
            (context.checkpoint_dir / "state").write_bytes(b"of the victim")
            gated.wait(Path(gate))
        parameters -= gradient_of(context.rank, outer.round + 1, COUNT)
        outer.step()


def attack(context: Context, *, bucket: str, victim: Sequence[str], own: Sequence[str], job: str) -> None:
    """Try everything on the keys of the victim, then the same on its own; what was answered is in the output folder."""
    assailant = _Assailant(bucket, context.run)
    answers = {
        "victim": [assailant.on_key(key) for key in victim],
        "own": [assailant.on_key(key) for key in own],
        "listings": assailant.listings(victim),
        "own_listings": assailant.listings(own),
        "elsewhere": assailant.elsewhere(job),
    }
    DiLoCo(context.rendezvous, np.zeros(3, np.float32)).step()
    (context.output_dir / REPORT).write_text(json.dumps(answers))


def attack_places(context: Context, *, targets: Sequence[tuple[str, str, Sequence[str]]], roles: Sequence[str]) -> None:
    """Try everything on keys of buckets in several regions, and to become the roles of others."""
    answers = {}
    for bucket, region, keys in targets:
        assailant = _Assailant(bucket, context.run, region)
        answers[bucket] = {"keys": [assailant.on_key(key) for key in keys], "listings": assailant.listings(keys)}
    DiLoCo(context.rendezvous, np.zeros(3, np.float32)).step()
    (context.output_dir / REPORT).write_text(json.dumps({"buckets": answers, "roles": [*map(_assumed, roles)]}))


def _assumed(role: str) -> str:
    sts = boto3.client("sts", region_name=_REGION)
    stated = {"RoleArn": role, "RoleSessionName": "attack"}
    answers = {
        _answer(lambda: sts.assume_role(**stated)),
        _answer(lambda: sts.assume_role(**stated, ExternalId="Muster/muster/oregon")),
        _answer(lambda: sts.assume_role(**stated, ExternalId="Muster/muster/tokyo")),
    }
    return " ".join(sorted(answers))


class _Assailant:
    """Calls with the credentials of the job's role."""

    def __init__(self, bucket: str, run: str, region: str = _REGION) -> None:
        self._bucket = bucket
        self._run = run
        self._s3 = boto3.client("s3", region_name=region)

    def on_key(self, key: str) -> dict[str, str]:
        """What an attack on one object gets, by attack."""
        s3, bucket = self._s3, self._bucket
        place = {"Bucket": bucket, "Key": key}
        booty = f"rendezvous/{self._run}/booty"
        return {
            "key": key,
            "read": _answer(lambda: s3.get_object(**place)),
            "head": _answer(lambda: s3.head_object(**place)),
            "copy away": _answer(lambda: s3.copy_object(Bucket=bucket, Key=booty, CopySource=place)),
            "create": _answer(lambda: s3.put_object(**place, Body=b"forged", IfNoneMatch="*")),
            "create a new one": _answer(lambda: s3.put_object(Bucket=bucket, Key=f"{key}.new", Body=b"forged")),
            "begin an upload": _answer(lambda: s3.create_multipart_upload(Bucket=bucket, Key=f"{key}.new")),
            "overwrite": _answer(lambda: s3.put_object(**place, Body=b"forged")),
            "delete": _answer(lambda: s3.delete_object(**place)),
            "delete many": _answer(lambda: _delete_many(s3, bucket, key)),
        }

    def listings(self, keys: Sequence[str]) -> dict[str, str]:
        """What looks for the keys get."""
        s3, bucket = self._s3, self._bucket
        folders = {key.rpartition("/")[0] + "/" for key in keys} | {"/".join(key.split("/")[:2]) for key in keys}
        answers = {f: _answer(lambda f=f: s3.list_objects_v2(Bucket=bucket, Prefix=f)) for f in sorted(folders)}
        return {
            **answers,
            "the whole bucket": _answer(lambda: s3.list_objects_v2(Bucket=bucket)),
            "the whole bucket, version 1": _answer(lambda: s3.list_objects(Bucket=bucket)),
            "prefix ''": _answer(lambda: s3.list_objects_v2(Bucket=bucket, Prefix="")),
            "versions": _answer(lambda: s3.list_object_versions(Bucket=bucket)),
            "uploads": _answer(lambda: s3.list_multipart_uploads(Bucket=bucket)),
            "source/": _answer(lambda: s3.list_objects_v2(Bucket=bucket, Prefix="source/")),
        }

    def elsewhere(self, job: str) -> dict[str, str]:
        """What attacks by way of other services get; `job` is one of the victim's."""
        logs, group = boto3.client("logs", region_name=_REGION), "/aws/sagemaker/TrainingJobs"
        cloudwatch, stream = boto3.client("cloudwatch", region_name=_REGION), f"{job}/algo-1-{time.time_ns() // 10**6}"
        datum = [{"MetricName": "RerunsWithinHour", "Value": 99.0}]
        event = [{"timestamp": time.time_ns() // 10**6, "message": "forged"}]
        return {
            "log stream": _answer(lambda: logs.create_log_stream(logGroupName=group, logStreamName=stream)),
            "log line": _answer(lambda: logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=event)),
            "alarm": _answer(lambda: cloudwatch.put_metric_data(Namespace="Muster", MetricData=datum)),
        }


def _answer(call: Callable[[], object]) -> str:
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "done"


def _delete_many(s3: Any, bucket: str, key: str) -> None:
    answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}]})
    for error in answer.get("Errors", []):
        raise ClientError({"Error": {"Code": error["Code"], "Message": ""}}, "DeleteObjects")
