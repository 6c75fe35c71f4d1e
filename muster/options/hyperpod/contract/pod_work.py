"""What the first process of a pod does: what SageMaker does round the container of a training job.

Mounted in every pod are shared memory, and the folders below /opt/ml that are written.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from muster.contract.document import StoredDocument, StoredPart
from muster.contract.run.notices import NOTICES
from muster.contract.training.source_delivery import DEFAULT_BASE_DIR

ENV_POD_WORK = "MUSTER_POD_WORK"
"""The environment variable of a pod that holds its `PodWork` as JSON."""
# Linux: one text of a process's environment has at most 128 KiB (MAX_ARG_STRLEN), its name included.
POD_WORK_BYTES_MAX = 128 * 1024 - len(ENV_POD_WORK) - 2


MEMORY_VOLUME, TREE_VOLUME = "dshm", "opt-ml"
MEMORY_PATH = "/dev/shm"  # noqa: S108 # the container's own, which PyTorch fills
# Folder by folder, as SageMaker does: an image may have its code in /opt/ml/code.
_FOLDERS = ("input", "model", "output", "checkpoints")
_LOCAL_STATES = "local-states"

OWN_PATHS = (MEMORY_PATH, *(f"{DEFAULT_BASE_DIR}/{folder}" for folder in _FOLDERS))
"""Paths that no volume of a spec may hide."""
TREE_PATHS = {f"{DEFAULT_BASE_DIR}/{folder}": folder for folder in (*_FOLDERS, _LOCAL_STATES)}
"""The paths of the tree with their folders in its volume. A volume of a spec may keep the local states instead."""


_Uri = Annotated[str, Field(pattern="^s3://[^/]")]


class PodChannel(StoredPart):
    """An input channel: what lies under `uri` is copied to input/data/`name` before the program starts."""

    name: str = Field(pattern="^[A-Za-z0-9._-]{1,64}$")
    uri: _Uri


class PodWork(StoredDocument):
    """The program of a pod, and what is copied before and after it.

    The tree below /opt/ml is that of a training job: input/data, input/config (hyperparameters.json,
    resourceconfig.json), checkpoints (restored and kept in S3), model and output/data (archives in S3 after the end),
    output/failure (the reason in the end notice).
    """

    job: str = Field(pattern="^.+-r(0|[1-9][0-9]{0,3})-a[1-9][0-9]{0,2}$")
    program: tuple[str, ...] = Field(min_length=1)
    channels: tuple[PodChannel, ...] = ()
    hyper_parameters: dict[str, str] = Field(default_factory=dict)
    checkpoints_uri: _Uri = Field(description="s3://…/checkpoints/{run}/r{rank}/")
    output_uri: _Uri = Field(description="below it the archives of {job}/output/ are written")
    notices_uri: str = Field(pattern=f"^s3://[^/]+/{NOTICES}[^/]+/$", description="s3://…/notices/{run}/")
    instances: int = Field(ge=1, description="instances of the job when it starts")
