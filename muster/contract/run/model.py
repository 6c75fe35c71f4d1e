"""The model that a run leaves: the manifest beside its files, and what the result of the run says about it.

A replica writes the manifest last, so a model exists once its manifest does. It is `RunLayout.model_manifest`; the
first one of a round is valid. User code runs in the same container, so readers treat both documents as untrusted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from muster.contract.document import StoredDocument, StoredPart, else_unknown
from muster.contract.names import RUN_MAX
from muster.contract.run.round_values import ROUND_MAX, Metrics

FILES_MAX = 10_000
"""How many files a model has at most: its weights, its index, and what the trainer puts beside them."""
_NAME_MAX = 512
_FILE_BYTES_MAX = 50 * 2**40
"""S3: of an object."""
MANIFEST_BYTES_MAX = 8 * 1024 * 1024
"""The largest manifest of a model that is read: of `FILES_MAX` files with names of usual lengths."""
EVALUATION_BYTES_MAX = 64 * 1024
"""The largest evaluation of a model that is read."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _relative(name: str) -> str:
    """`name` if it is a path below a folder: clients write the file there."""
    parts = name.split("/")
    if not name.isprintable() or "\\" in name or any(part in {"", ".", ".."} for part in parts) or ":" in parts[0]:
        message = f"{name!a} is not a relative path"
        raise ValueError(message)
    return name


class ModelKind(StrEnum):
    """What the weights are: of the whole model, or of an adapter of a model that is stored elsewhere."""

    MODEL = "model"
    ADAPTER = "adapter"
    UNKNOWN = "unknown"  # of a newer version of Muster


class ModelFile(StoredPart):
    """One file of a model."""

    name: Annotated[str, Field(min_length=1, max_length=_NAME_MAX), AfterValidator(_relative)]
    bytes: int = Field(ge=0, le=_FILE_BYTES_MAX)
    sha256: Sha256


class ModelManifest(StoredDocument):
    """The files of a model, of which each can be checked alone."""

    run: str = Field(max_length=RUN_MAX)
    round: int = Field(ge=0, le=ROUND_MAX, description="the round whose global parameters it has")
    kind: Annotated[ModelKind, else_unknown(ModelKind.UNKNOWN)]
    checksum: str = Field(max_length=64, description="SHA-256 of the global parameters, as the replicas report it")
    rank: int = Field(ge=0, description="the replica that wrote it")
    files: tuple[ModelFile, ...] = Field(min_length=1, max_length=FILES_MAX)

    @field_validator("files", mode="after")
    @classmethod
    def _one_folder(cls, files: tuple[ModelFile, ...]) -> tuple[ModelFile, ...]:
        names = [file.name for file in files]
        known = set(names)
        folders = {
            "/".join(parts[:end]) for parts in (name.split("/") for name in known) for end in range(1, len(parts))
        }
        if len(known) < len(names) or known & folders:
            message = "a name is there twice, or is also that of a folder"
            raise ValueError(message)
        return files

    @property
    def total_bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.files)


class ModelEvaluation(StoredDocument):
    """What the trainer's `evaluate` has measured on the model."""

    run: str = Field(max_length=RUN_MAX)
    round: int = Field(ge=0, le=ROUND_MAX, description="the round of the model")
    metrics: Metrics = Field(default_factory=dict)


class ModelResult(StoredPart):
    """The model of a run in its result."""

    uri: str = Field(description="the folder with its files; `muster model RUN` fetches them")
    kind: Annotated[ModelKind, else_unknown(ModelKind.UNKNOWN)]
    round: int = Field(ge=0, description="the round whose global parameters it has")
    bytes: int = Field(ge=0, description="of all files together")
    files: int = Field(ge=0, description="how many files it has")
    checksum: str = Field(description="SHA-256 of the global parameters, as the replicas report it")
    manifest: str = Field(description="the URI of the list of the files, with the SHA-256 of each")
    manifest_sha256: Sha256 = Field(description="of that list")
    evaluation: Metrics = Field(default_factory=dict, description="what the trainer measured on the model, by name")
