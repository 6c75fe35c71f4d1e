"""The deployed stack with outposts in two more regions, one of another account, for benchmarks of runs over places."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from bench.deployed_stack import Stack
from muster.contract import timestamps
from muster.contract.layout import RunLayout
from muster.contract.run.attempt import Attempt
from muster.contract.run.commit import Commit
from muster.local import LocalCloud, Settings
from muster.options.places.local.link_settings import LinkSettings
from muster.options.places.local.place_settings import PlacesSettings
from muster.replica.wire.rendezvous_keys import contribution

OREGON, TOKYO = "oregon", "tokyo"
LINK = LinkSettings(latency_seconds=0.150, bytes_per_second=2.5e9 / 8)
"""Between all regions, in each direction."""
REPLICA: dict[str, Any] = {"source_dir": None, "instance_type": "ml.m5.large", "max_runtime_seconds": 3600}

_ROOT = Path(__file__).resolve().parents[1]
_ADDED = [f"{OREGON}=us-west-2", f"{TOKYO}=ap-northeast-1/210987654321"]


class PlacedStack(Stack):
    """The stack, its runs' commits and its jobs in all places."""

    def commit(self, run: str, number: int) -> Commit | None:
        """The commit of a round; None if there is none yet."""
        key = f"{RunLayout(run).commits}{number:08d}.json"
        try:
            body = self._s3.get_object(Bucket=self.outputs["BucketName"], Key=key)["Body"].read()
        except ClientError:
            return None
        return Commit.from_json(body, key)

    def has_next(self, before: Commit, place: str) -> bool:
        """Whether the replicas of a place have contributed to the round that follows."""
        prefix = RunLayout(before.run).rendezvous
        keys = [contribution(before.round + 1, one.rank, one.epoch) for one in before.members if one.place == place]
        bucket = self.outputs["BucketName"]
        return all(self._s3.list_objects_v2(Bucket=bucket, Prefix=prefix + key)["KeyCount"] for key in keys)

    def created(self, attempt: Attempt) -> float:
        """When its job was created; of a request that was refused, when the answer had come."""
        return self._time(attempt, "CreationTime")

    def ended(self, attempt: Attempt) -> float:
        """When its job ended; of a request that was refused, when the answer had come."""
        return self._time(attempt, "LastModifiedTime")

    @cached_property
    def _s3(self) -> Any:
        return self.cloud.client("s3")

    def _time(self, attempt: Attempt, which: str) -> float:
        assert attempt.where is not None
        assert attempt.ended_at is not None
        if not attempt.was_created:
            return timestamps.parse(attempt.ended_at).timestamp()
        at = self.cloud if attempt.where.is_home else self.cloud.at(attempt.where.place)
        job = at.client("sagemaker").describe_training_job(TrainingJobName=attempt.job)
        return float(job[which].timestamp())


@contextmanager
def open_placed_stack() -> Iterator[PlacedStack]:
    """Start a cloud with places, deploy with `muster deploy`; stop it and remove its state afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        services = {"places": PlacesSettings(add=_ADDED, links=(LINK,))}
        settings = Settings(port=0, end_with_parent=True, services=services, code=(_ROOT,))
        with LocalCloud.start(Path(folder, "cloud"), settings) as cloud:
            cloud_seconds = time.monotonic() - began
            program = str(Path(sys.executable).with_name("muster"))
            # The variables of the cloud name its places.
            done = subprocess.run(
                [program, "deploy", "--json", "--yes", "--target", "local"],
                cwd=folder,
                env=cloud.environment(),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            yield PlacedStack(cloud, json.loads(done.stdout.splitlines()[-1])["outputs"], cloud_seconds)
