"""SageMaker's folders in the container, and the files that a replica leaves there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from muster.contract.exits import failure_text
from muster.contract.run.run_document import Manifest
from muster.replica.model.departure import Result


@dataclass(frozen=True)
class Tree:
    """The folders below `base` (/opt/ml)."""

    base: Path

    @property
    def input_data(self) -> Path:
        """One folder per input channel."""
        return self.base / "input" / "data"

    @property
    def checkpoints(self) -> Path:
        """Synced to S3 while the job runs, restored when it starts."""
        return self.base / "checkpoints"

    @property
    def model(self) -> Path:
        """Becomes model.tar.gz."""
        return self.base / "model"

    @property
    def output_data(self) -> Path:
        """Becomes output.tar.gz."""
        return self.base / "output" / "data"

    def prepare(self) -> None:
        """Create missing folders."""
        for folder in (self.checkpoints, self.model, self.output_data):
            folder.mkdir(parents=True, exist_ok=True)

    def write_failure(self, reason: str) -> None:
        """Write the reason where SageMaker reads it. Outside a container (no base folder) nothing is written."""
        if not self.base.is_dir():
            return
        failure = self.base / "output" / "failure"
        failure.parent.mkdir(exist_ok=True)
        failure.write_text(failure_text(reason))

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest, which SageMaker packs into output.tar.gz."""
        (self.output_data / "manifest.json").write_bytes(manifest.to_json())


def manifest_of(uri: str, result: Result, metrics: dict[str, float], ended: str = "") -> Manifest:
    """The manifest of a finished replica; `uri` is the folder of the run's model. `ended`: see `Manifest`."""
    return Manifest(
        checkpoint_s3_bucket=uri, round=result.round, checksum=result.checksum, metrics=metrics, ended=ended
    )
