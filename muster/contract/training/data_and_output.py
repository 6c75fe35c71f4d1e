"""InputDataConfig, OutputDataConfig and CheckpointConfig: what a replica reads, and where its results go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from muster.contract import names
from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.input_channels import CHANNELS_MAX, Channel
from muster.contract.training.values import S3_URI_MAX, KmsKeyId, Path, RequestPart, S3Uri, Section

CHECKPOINT_DIR = "/opt/ml/checkpoints"  # CheckpointConfig: the default of LocalPath
# The replica's own folder is appended to a checkpoint prefix: no two replicas may write the same one.
_FOLDER_MAX = len(f"/{'r' * names.RUN_MAX}/r{names.REPLICAS_MAX - 1}/")
_RANK = "{rank}"  # in an exact prefix
# SageMaker fills, uploads or archives these itself.
_MANAGED = ("/opt/ml/input", "/opt/ml/model", "/opt/ml/output")


class OutputDataConfig(Section):
    """Where SageMaker puts the model and the output of each job."""

    s3_output_path: S3Uri | None = Field(
        default=None, description="prefix of the jobs' folders; default a prefix of the run, in the stack's bucket"
    )
    kms_key_id: KmsKeyId | None = Field(default=None, description="key of the model's objects; default the bucket's")
    compression_type: Literal["GZIP", "NONE"] | None = Field(
        default=None, description="`NONE` leaves the model uncompressed"
    )


class CheckpointConfig(Section):
    """Where SageMaker keeps the checkpoints of a running replica."""

    s3_uri: Annotated[S3Uri, Field(max_length=S3_URI_MAX - _FOLDER_MAX)] | None = Field(
        default=None, description="prefix, to which the run and the rank are appended; default a prefix of the run"
    )
    local_path: Path | None = Field(default=None, description=f"the container's directory; default {CHECKPOINT_DIR}")


class StorageFields(Document):
    """Input and output."""

    input_data_config: list[Channel] = Field(
        default_factory=list, max_length=CHANNELS_MAX, description="the channels that every replica reads"
    )
    output_data_config: OutputDataConfig = Field(
        default_factory=OutputDataConfig, description="where the jobs' results go"
    )
    checkpoint_config: CheckpointConfig = Field(
        default_factory=CheckpointConfig, description="where the replicas' checkpoints go"
    )
    checkpoint_uri_exact: bool = Field(
        default=False,
        description="use `checkpoint_config.s3_uri` as it is, without the run and the rank; with several replicas it "
        "contains `{rank}/`",
    )

    def storage_problems(self, *, trainer: bool, replicas: int) -> Iterator[Problem]:
        """Problems between the fields of input and output."""
        path = self.checkpoint_config.local_path
        managed = next((top for top in _MANAGED if path is not None and f"{path}/".startswith(f"{top}/")), None)
        if managed is not None:
            allowed = f"SageMaker itself fills or uploads {managed}"
            yield Problem(
                "checkpoint_config.local_path",
                repr(path),
                f"choose another directory, such as {CHECKPOINT_DIR}",
                allowed,
            )
        yield from self._exact_problems(replicas)
        if trainer and self.checkpoint_config != CheckpointConfig():
            allowed = "Muster decides where a trainer's checkpoints are; the run's result shows it"
            yield StatedProblem("checkpoint_config", "set together with trainer", "leave it out", allowed)

    def _exact_problems(self, replicas: int) -> Iterator[Problem]:
        """An exact prefix that is none, or that several replicas would share: each restores what it finds there."""
        uri = self.checkpoint_config.s3_uri
        named = uri is not None and _RANK in uri
        if not self.checkpoint_uri_exact and named:
            remedy = "set checkpoint_uri_exact: true, or leave it out: the rank is appended"
            yield StatedProblem("checkpoint_config.s3_uri", f"{_RANK} is not filled in", remedy)
        elif self.checkpoint_uri_exact and uri is None:
            remedy = "name the prefix in checkpoint_config.s3_uri"
            yield StatedProblem("checkpoint_uri_exact", "true without a prefix", remedy)
        elif uri is not None and self.checkpoint_uri_exact and replicas > 1 and f"{_RANK}/" not in uri:
            allowed = f"with several replicas a prefix that contains {_RANK}/"
            yield Problem("checkpoint_config.s3_uri", repr(uri), "give each rank a folder of its own", allowed)

    def output_request(self, default_uri: str) -> RequestPart:
        """OutputDataConfig."""
        return {"S3OutputPath": default_uri, **self.output_data_config.request()}

    def checkpoint_request(self, default_uri: str, run: str, rank: int) -> RequestPart:
        """CheckpointConfig. Run and rank separate the replica's checkpoints from others below a prefix of the user.

        The URI ends in a slash: SageMaker takes it literally, and the prefix r1 would also restore r10.
        """
        prefix = self.checkpoint_config.s3_uri
        if prefix is None:
            uri = default_uri
        elif self.checkpoint_uri_exact:
            uri = prefix.replace(_RANK, str(rank))
        else:
            uri = f"{prefix.rstrip('/')}/{run}/r{rank}/"
        return {"S3Uri": uri, "LocalPath": self.checkpoint_config.local_path or CHECKPOINT_DIR}
