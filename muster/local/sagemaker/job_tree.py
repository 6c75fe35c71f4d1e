"""The /opt/ml-shaped tree of one container of a job."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from muster.local.sagemaker.job_hosts import LOOPBACK

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import (
        ChannelUnionTypeDef,
        CreateTrainingJobRequestTypeDef,
        ResourceConfigUnionTypeDef,
    )

CONTAINER_ROOT = PurePosixPath("/opt/ml")
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own blocks are
_FAILURE_BYTES = 1024  # SageMaker shows the first 1,024 bytes of output/failure


@dataclass(frozen=True)
class JobTree:
    """The tree whose root stands for /opt/ml; beside it are the container's own home and temporary directory."""

    place: Path

    @property
    def root(self) -> Path:
        """The value of SAGEMAKER_BASE_DIR."""
        return self.place / "ml"

    @property
    def home(self) -> Path:
        """HOME."""
        return self.place / "home"

    @property
    def temporary(self) -> Path:
        """TMPDIR."""
        return self.place / "tmp"

    @property
    def log(self) -> Path:
        """Standard output and error."""
        return self.place / "log"

    @property
    def credentials_token(self) -> Path:
        """The file with the token for the process's credentials."""
        return self.place / "credentials-token"

    @property
    def model(self) -> Path:
        """The content of model.tar.gz."""
        return self.root / "model"

    @property
    def output(self) -> Path:
        """The content of output.tar.gz."""
        return self.root / "output" / "data"

    def used_bytes(self) -> int:
        """Bytes that the process's files occupy: /opt/ml and its temporary directory are on the volume."""
        total = 0
        for top in (self.root, self.temporary):
            for place, _, names in os.walk(top):
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        total += os.lstat(Path(place, name)).st_blocks * _BLOCK_BYTES
        return total

    def channel(self, name: str) -> Path:
        """The data of an input channel."""
        return self.root / "input" / "data" / name

    def local(self, path: str) -> Path | None:
        """The place of a container's `path`: below the root instead of /opt/ml; None for all other paths."""
        container = PurePosixPath(path)
        if not container.is_relative_to(CONTAINER_ROOT) or ".." in container.parts:
            return None
        return self.root / container.relative_to(CONTAINER_ROOT)

    def make(self, request: CreateTrainingJobRequestTypeDef, hosts: Sequence[str], current: str) -> None:
        """Create the directories and the three configuration files of `current`, one of the job's `hosts`."""
        config = self.root / "input" / "config"
        for directory in (config, self.model, self.output, self.root / "code", self.home, self.temporary):
            directory.mkdir(parents=True)
        documents: dict[str, object] = {
            "hyperparameters.json": request.get("HyperParameters", {}),
            "resourceconfig.json": _resource_config(request["ResourceConfig"], hosts, current),
            "inputdataconfig.json": {
                channel["ChannelName"]: _channel_config(channel) for channel in request.get("InputDataConfig", [])
            },
        }
        for name, document in documents.items():
            (config / name).write_text(json.dumps(document))

    def failure(self) -> str:
        """The content of output/failure; empty if there is none."""
        try:
            with (self.root / "output" / "failure").open("rb") as stream:
                return stream.read(_FAILURE_BYTES).decode("utf-8", errors="replace")
        except (FileNotFoundError, IsADirectoryError):
            return ""


def instance_type(resources: ResourceConfigUnionTypeDef) -> str:
    """The type that the job gets: the first preference if there are several."""
    preferences = resources.get("InstancePreferences")
    return str(preferences[0]["InstanceType"] if preferences else resources.get("InstanceType"))


def _resource_config(resources: ResourceConfigUnionTypeDef, hosts: Sequence[str], current: str) -> dict[str, object]:
    kind = instance_type(resources)
    group = {"instance_group_name": "homogeneousCluster", "instance_type": kind, "hosts": [*hosts]}
    return {
        "current_host": current,
        "current_instance_type": kind,
        "current_group_name": "homogeneousCluster",
        # Documented: sorted as text.
        "hosts": sorted(hosts),
        "instance_groups": [group],
        # On SageMaker eth0, for example; the interface on which this machine has the instances' addresses.
        "network_interface_name": LOOPBACK,
    }


def _channel_config(channel: ChannelUnionTypeDef) -> dict[str, str]:
    source = channel["DataSource"].get("S3DataSource")
    shown: dict[str, str] = {
        "TrainingInputMode": channel.get("InputMode", "File"),
        "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated") if source else "FullyReplicated",
        "RecordWrapperType": channel.get("RecordWrapperType", "None"),
    }
    if "ContentType" in channel:
        shown["ContentType"] = channel["ContentType"]
    return shown
