"""Source code for a stock image: the folder, and the two channels that deliver it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.input_channels import Channel, DataSource, S3DataSource
from muster.contract.training.source_delivery import (
    ARCHIVE_SUFFIX,
    BOOTSTRAP,
    BOOTSTRAP_NAME,
    PACKAGE_CHANNEL,
    SOURCE_CHANNEL,
)
from muster.contract.training.values import LINE, S3_URI_MAX, Wording

_START = len((*BOOTSTRAP, BOOTSTRAP_NAME))
_ENTRYPOINT_MAX = 100 - _START  # CreateTrainingJob: ContainerEntrypoint has at most 100 items


class SourceFields(Document):
    """The user's code."""

    source_dir: Annotated[
        str | None,
        Field(min_length=1, max_length=S3_URI_MAX, pattern=LINE),
        Wording("a folder, or s3://bucket/source/….tar.gz"),
    ] = Field(
        default=None,
        description="a folder that `muster launch` packs and uploads; its `requirements.txt` is installed in the "
        "container. A spec that is not started by `muster launch` gives the archive instead: `s3://….tar.gz`",
    )

    @property
    def delivered(self) -> bool:
        """Whether the source is in S3 already."""
        return self.source_dir is not None and self.source_dir.startswith("s3://")

    def source_problems(self, entrypoint: list[str] | None, *, algorithm: bool) -> Iterator[Problem]:
        """Problems between the source and the other fields."""
        if self.source_dir is None:
            return
        if self.delivered and not self.source_dir.endswith(ARCHIVE_SUFFIX):
            yield Problem("source_dir", repr(self.source_dir), "give the URI of the archive", f"s3://…{ARCHIVE_SUFFIX}")
        if algorithm:
            yield StatedProblem(
                "source_dir",
                "set together with algorithm_name",
                "leave one of the two out",
                "source code needs an image",
            )
        if entrypoint is not None and len(entrypoint) > _ENTRYPOINT_MAX:
            allowed = f"at most {_ENTRYPOINT_MAX} with source_dir: Muster's start command takes {_START} of the 100"
            yield Problem("entrypoint", f"{len(entrypoint)} entries", "move some into arguments", allowed)


def delivery_channels(source_uri: str, package_uri: str) -> list[Channel]:
    """The channels that deliver the code: one archive each, downloaded before the program starts."""
    uris = {SOURCE_CHANNEL: source_uri, PACKAGE_CHANNEL: package_uri}
    return [delivered_channel(name, uri) for name, uri in uris.items()]


def delivered_channel(name: str, uri: str) -> Channel:
    """A channel of Muster's own, downloaded before the program starts. `uri` is a prefix or an object."""
    # Not validated: in a dry run the bucket is not known yet.
    source = S3DataSource.model_construct(s3_data_type="S3Prefix", s3_uri=uri)
    return Channel.model_construct(channel_name=name, data_source=DataSource(s3_data_source=source), input_mode="File")
