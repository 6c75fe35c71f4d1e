"""Source code that is delivered to a stock image: the folder, and the two channels that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated

from pydantic import Field

from muster.contract.document import Document
from muster.contract.errors import Problem
from muster.contract.run.source_delivery import ARCHIVE_SUFFIX, BOOTSTRAP, PACKAGE_CHANNEL, SOURCE_CHANNEL
from muster.contract.training.channels import CHANNELS_MAX, Channel, DataSource, S3DataSource
from muster.contract.training.values import LINE, S3_URI_MAX, Says

_DELIVERED = (SOURCE_CHANNEL, PACKAGE_CHANNEL)
_ENTRYPOINT_MAX = 100 - len(BOOTSTRAP)  # CreateTrainingJob: ContainerEntrypoint has at most 100 items


class SourceFields(Document):
    """The user's code."""

    source_dir: Annotated[
        str | None,
        Field(min_length=1, max_length=S3_URI_MAX, pattern=LINE),
        Says("a folder, or s3://bucket/source/….tar.gz"),
    ] = Field(
        default=None,
        description="a folder that `muster launch` packs and uploads; its `requirements.txt` is installed in the "
        "container. A spec that is not launched from a machine names the archive: `s3://….tar.gz`",
    )

    @property
    def delivered(self) -> bool:
        """Whether the source lies in S3 already."""
        return self.source_dir is not None and self.source_dir.startswith("s3://")

    def source_problems(
        self, channels: Iterable[Channel], entrypoint: list[str] | None, *, algorithm: bool
    ) -> Iterator[Problem]:
        """What a delivery of code does not go together with."""
        if self.source_dir is None:
            return
        if self.delivered and not self.source_dir.endswith(ARCHIVE_SUFFIX):
            yield Problem("source_dir", repr(self.source_dir), "name the archive itself", f"s3://…{ARCHIVE_SUFFIX}")
        if algorithm:
            yield Problem("source_dir", "algorithm_name as well", "leave one of the two out", "code needs an image")
        if entrypoint is not None and len(entrypoint) > _ENTRYPOINT_MAX:
            allowed = f"at most {_ENTRYPOINT_MAX} entries with source_dir, whose own start takes the rest"
            yield Problem("entrypoint", f"{len(entrypoint)} entries", "move some into arguments", allowed)
        names = [channel.channel_name for channel in channels]
        for name in _DELIVERED:
            if name in names:
                yield Problem("input_data_config", f"a channel named {name}", "rename it", "source_dir brings its own")
        if len(names) > CHANNELS_MAX - len(_DELIVERED):
            allowed = f"at most {CHANNELS_MAX - len(_DELIVERED)} with source_dir, which takes two"
            yield Problem("input_data_config", f"{len(names)} channels", "leave some out", allowed)


def delivery_channels(source_uri: str, package_uri: str) -> list[Channel]:
    """The channels that bring the code: one archive each, downloaded before the program starts."""
    uris = {SOURCE_CHANNEL: source_uri, PACKAGE_CHANNEL: package_uri}
    return [
        # Not validated: in a dry run the places are not known yet.
        Channel.model_construct(
            channel_name=name,
            data_source=DataSource(s3_data_source=S3DataSource.model_construct(s3_data_type="S3Prefix", s3_uri=uri)),
            input_mode="File",
        )
        for name, uri in uris.items()
    ]
