"""The /opt/ml-shaped tree of one process of a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

CONTAINER_ROOT = PurePosixPath("/opt/ml")
_HOST = "algo-1"
_FAILURE_BYTES = 1024  # SageMaker shows the first 1,024 bytes of output/failure


@dataclass(frozen=True)
class JobTree:
    """The tree whose root stands for /opt/ml; beside it a home and a temporary directory of the process's own."""

    place: Path

    @property
    def root(self) -> Path:
        """What SAGEMAKER_BASE_DIR names."""
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
    def model(self) -> Path:
        """What becomes model.tar.gz."""
        return self.root / "model"

    @property
    def output(self) -> Path:
        """What becomes output.tar.gz."""
        return self.root / "output" / "data"

    def channel(self, name: str) -> Path:
        """The data of an input channel."""
        return self.root / "input" / "data" / name

    def local(self, path: str) -> Path | None:
        """Where a container's `path` lies: under our root instead of /opt/ml; None for all other paths."""
        container = PurePosixPath(path)
        if not container.is_relative_to(CONTAINER_ROOT) or ".." in container.parts:
            return None
        return self.root / container.relative_to(CONTAINER_ROOT)

    def make(self, request: Mapping[str, Any]) -> None:
        """Make the directories and the three configuration files."""
        config = self.root / "input" / "config"
        for directory in (config, self.model, self.output, self.root / "code", self.home, self.temporary):
            directory.mkdir(parents=True)
        documents = {
            "hyperparameters.json": request.get("HyperParameters", {}),
            "resourceconfig.json": _resource_config(request["ResourceConfig"]),
            "inputdataconfig.json": {
                channel["ChannelName"]: _channel_config(channel) for channel in request.get("InputDataConfig", [])
            },
        }
        for name, document in documents.items():
            (config / name).write_text(json.dumps(document))

    def failure(self) -> str:
        """What the process left in output/failure, empty when nothing."""
        try:
            with (self.root / "output" / "failure").open("rb") as stream:
                return stream.read(_FAILURE_BYTES).decode("utf-8", errors="replace")
        except (FileNotFoundError, IsADirectoryError):
            return ""


def instance_type(resources: Mapping[str, Any]) -> str:
    """The type that the job gets: the first preference when there are several."""
    return str(resources.get("InstanceType") or (resources.get("InstancePreferences") or [{}])[0].get("InstanceType"))


def _resource_config(resources: Mapping[str, Any]) -> dict[str, Any]:
    kind = instance_type(resources)
    group = {"instance_group_name": "homogeneousCluster", "instance_type": kind, "hosts": [_HOST]}
    return {
        "current_host": _HOST,
        "current_instance_type": kind,
        "current_group_name": "homogeneousCluster",
        "hosts": [_HOST],
        "instance_groups": [group],
        "network_interface_name": "eth0",
    }


def _channel_config(channel: Mapping[str, Any]) -> dict[str, str]:
    source = channel["DataSource"].get("S3DataSource", {})
    shown = {
        "TrainingInputMode": channel.get("InputMode", "File"),
        "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
        "RecordWrapperType": channel.get("RecordWrapperType", "None"),
    }
    if "ContentType" in channel:
        shown["ContentType"] = channel["ContentType"]
    return shown
