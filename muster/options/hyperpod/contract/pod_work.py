"""What the first process of a pod does: what SageMaker does round the container of a training job.

Mounted in every pod are shared memory, and the folders below /opt/ml that are written.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator
from pydantic_core import PydanticCustomError

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


def _wrong(words: str) -> PydanticCustomError:
    """An error of exactly these words."""
    return PydanticCustomError("wrong", "{words}", {"words": words})


def _like(pattern: str, allowed: str) -> AfterValidator:
    """Refuses a text that the pattern does not match as a whole, in words for people."""

    def check(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            words = f"found {text!r}; allowed: {allowed}"
            raise _wrong(words)
        return text

    return AfterValidator(check)


_Uri = Annotated[str, _like("(?s)s3://[^/].*", "s3://bucket/prefix")]


class PodChannel(StoredPart):
    """An input channel: what lies under `uri` is copied to input/data/`name` before the program starts."""

    name: Annotated[
        str,
        _like(
            r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}",
            "1 to 64 letters, digits, dots, hyphens and underscores, but not . or ..",
        ),
    ]
    uri: _Uri


class PodWork(StoredDocument):
    """The program of a pod, and what is copied before and after it.

    The tree below /opt/ml is that of a training job: input/data, input/config (hyperparameters.json,
    resourceconfig.json), checkpoints (restored and kept in S3), model and output/data (archives in S3 after the end),
    output/failure (the reason in the end notice).
    """

    job: Annotated[
        str, _like(".+-r(0|[1-9][0-9]{0,3})-a[1-9][0-9]{0,2}", "a name that ends with -r0-a1 (rank, attempt)")
    ]
    program: tuple[str, ...] = Field(min_length=1)
    channels: tuple[PodChannel, ...] = ()
    hyper_parameters: dict[str, str] = Field(default_factory=dict)
    checkpoints_uri: _Uri = Field(description="s3://…/checkpoints/{run}/r{rank}/")
    output_uri: _Uri = Field(description="below it the archives of {job}/output/ are written")
    notices_uri: Annotated[str, _like(f"s3://[^/]+/{NOTICES}[^/]+/", f"s3://bucket/{NOTICES}RUN/")] = Field(
        description="s3://…/notices/{run}/"
    )
    instances: int = Field(ge=1, description="instances of the job when it starts")

    @field_validator("channels")
    @classmethod
    def _have_names_of_their_own(cls, channels: tuple[PodChannel, ...]) -> tuple[PodChannel, ...]:
        counts = Counter(channel.name for channel in channels)
        repeated = [f"{count} have the name {name!r}" for name, count in counts.items() if count > 1]
        if repeated:
            words = f"{', '.join(repeated)}; allowed: one"
            raise _wrong(words)
        return channels
