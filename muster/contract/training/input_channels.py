"""InputDataConfig: the channels through which a replica reads its data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.algorithm_specification import InputMode
from muster.contract.training.values import LINE, S3Uri, Section, Wording

CHANNELS_MAX = 20  # CreateTrainingJob: InputDataConfig has 1-20 channels
_LONG_MAX = 2**63 - 1


class ModelAccessConfig(Section):
    """Access to a gated model."""

    accept_eula: bool = Field(description="whether the model's licence is accepted")


class HubAccessConfig(Section):
    """A model of a private hub."""

    hub_content_arn: Annotated[str, Field(max_length=255, pattern=LINE), Wording("one line, without a line break")] = (
        Field(description="ARN of the hub's content")
    )


class S3DataSource(Section):
    """Objects in S3."""

    s3_data_type: Literal["S3Prefix", "ManifestFile", "AugmentedManifestFile", "Converse"] = Field(
        default="S3Prefix", description="what `s3_uri` is; `Converse`: a place of conversations in that format"
    )
    s3_uri: S3Uri = Field(description="a prefix, or the manifest's object; in the stack's region")
    attribute_names: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=256, pattern=LINE), Wording("one line")]] | None,
        Field(min_length=1, max_length=16),
    ] = Field(default=None, description="attributes to read from an augmented manifest")
    model_access_config: ModelAccessConfig | None = Field(default=None, description="access to a gated model")
    hub_access_config: HubAccessConfig | None = Field(default=None, description="a model of a private hub")


class FileSystemDataSource(Section):
    """A directory of EFS or FSx for Lustre, mounted."""

    file_system_id: Annotated[
        str,
        Field(min_length=11, max_length=21, pattern=r"^fs-[0-9a-f]{8,}$"),
        Wording("fs- and 8 to 18 hexadecimal digits"),
    ] = Field(description="the file system")
    file_system_type: Literal["EFS", "FSxLustre"] = Field(description="its kind")
    file_system_access_mode: Literal["ro", "rw"] = Field(default="ro", description="read-only, or read and write")
    directory_path: Annotated[
        str, Field(max_length=4_096, pattern=r"^/[^\n\r\u0085\u2028\u2029]*$"), Wording("an absolute path")
    ] = Field(description="the directory to mount")


class DataSource(Section):
    """Where a channel's data is: one of the two."""

    s3_data_source: S3DataSource | None = Field(default=None, description="objects in S3")
    file_system_data_source: FileSystemDataSource | None = Field(default=None, description="a directory of EFS or FSx")


class ShuffleConfig(Section):
    """The order of a channel's objects."""

    seed: int = Field(ge=-_LONG_MAX - 1, le=_LONG_MAX, description="determines the order")


class Channel(Section):
    """One channel: `/opt/ml/input/data/{channel_name}` in the container."""

    channel_name: Annotated[
        str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9.\-_]+$"), Wording("letters, digits and . - _")
    ] = Field(description="its name, unique in the spec")
    data_source: DataSource = Field(description="where the data is")
    input_mode: InputMode | None = Field(default=None, description="how the data is read; default training_input_mode")
    content_type: Annotated[
        str | None, Field(max_length=256, pattern=LINE), Wording("one line, without a line break")
    ] = Field(default=None, description="MIME type of the data")
    compression_type: Literal["None", "Gzip"] | None = Field(default=None, description="`Gzip` only in Pipe mode")
    record_wrapper_type: Literal["None", "RecordIO"] | None = Field(
        default=None, description="`RecordIO` only in Pipe mode"
    )
    shuffle_config: ShuffleConfig | None = Field(default=None, description="shuffles the objects, by a seed")


def channel_problems(channels: Sequence[Channel], default_mode: str, field: str, *, vpc: bool) -> Iterator[Problem]:
    """Problems between the channels of one replica, their input modes and the network."""
    for name, count in Counter(channel.channel_name for channel in channels).items():
        if count > 1:
            yield Problem(field, f"{count} channels named {name!r}", "rename all but one", "names must be unique")
    for index, channel in enumerate(channels):
        where = f"{field}.{index}"
        if channel.channel_name in {".", ".."}:
            allowed = "a channel is a folder below /opt/ml/input/data"
            yield Problem(f"{where}.channel_name", repr(channel.channel_name), "rename it", allowed)
        yield from _source_problems(channel, where, vpc=vpc)
        yield from _mode_problems(channel, channel.input_mode or default_mode, where)


def _source_problems(channel: Channel, where: str, *, vpc: bool) -> Iterator[Problem]:
    source = channel.data_source
    s3, files = source.s3_data_source, source.file_system_data_source
    if (s3 is None) == (files is None):
        statement = "no source is set" if s3 is None else "two sources are set"
        yield StatedProblem(f"{where}.data_source", statement, "set one of s3_data_source and file_system_data_source")
    if files is not None and not vpc:
        yield StatedProblem(
            f"{where}.data_source.file_system_data_source",
            "set without vpc_config",
            "set the VPC of the file system in vpc_config",
            "a file system can be reached only from its VPC",
        )
    if files is not None and channel.shuffle_config is not None:
        yield StatedProblem(
            f"{where}.shuffle_config", "set for a file system", "leave it out", "only objects in S3 can be shuffled"
        )
    if s3 is None:
        return
    augmented = s3.s3_data_type == "AugmentedManifestFile"
    if augmented != (s3.attribute_names is not None):
        yield StatedProblem(
            f"{where}.data_source.s3_data_source.attribute_names",
            "missing" if augmented else f"set with s3_data_type {s3.s3_data_type}",
            "name the attributes to read" if augmented else "leave it out",
            "AugmentedManifestFile requires it" if augmented else "allowed only with AugmentedManifestFile",
        )


def _mode_problems(channel: Channel, mode: str, where: str) -> Iterator[Problem]:
    """Channel, S3DataSource: members that the documentation allows in one input mode only."""
    s3 = channel.data_source.s3_data_source
    if s3 is None and mode != "File":
        yield Problem(f"{where}.input_mode", repr(mode), "write File", "a file system is always mounted")
    if s3 is not None and s3.s3_data_type == "AugmentedManifestFile" and mode != "Pipe":
        yield Problem(f"{where}.input_mode", repr(mode), "write Pipe", "AugmentedManifestFile requires Pipe mode")
    if mode == "Pipe":
        return
    for name in ("compression_type", "record_wrapper_type"):
        value = getattr(channel, name)
        if value not in {None, "None"}:
            yield Problem(f"{where}.{name}", repr(value), "leave it out", "allowed only in Pipe mode")
