"""The platform's transfers between S3 and a job's tree, with the credentials of the job's role."""

from __future__ import annotations

import json
import logging
import os
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError

from muster.contract.layout import path_in_channel, split_s3_uri

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker.type_defs import ChannelUnionTypeDef

_log = logging.getLogger(__name__)

# Within a job one transfer at a time: dozens of jobs share two cores.
_TRANSFER = TransferConfig(use_threads=False)
# Level 1: the archive crosses the loopback interface only.
_COMPRESSION_LEVEL = 1


class DownloadError(Exception):
    """Input could not be downloaded; worded as by SageMaker."""


class UploadError(Exception):
    """Artifacts or checkpoints could not be uploaded; worded as by SageMaker."""


class JobStorage:
    """The platform's side of a job's data."""

    def __init__(self, client: S3Client, role_arn: str) -> None:
        self._client = client
        self._role_arn = role_arn

    def download_channel(self, channel: ChannelUnionTypeDef, target: Path) -> None:
        """Download an input channel.

        Raises:
            DownloadError: it is empty, or the role may not read it.
        """
        target.mkdir(parents=True, exist_ok=True)
        source = channel["DataSource"].get("S3DataSource")
        if source is None:
            message = f"channel {channel['ChannelName']} has no S3 source: the embedded cloud has no file systems"
            raise DownloadError(message)
        if channel.get("InputMode") == "Pipe" or source["S3DataType"] == "AugmentedManifestFile":
            message = (
                f"channel {channel['ChannelName']}: the embedded cloud reads no AugmentedManifestFile and no Pipe mode"
            )
            raise DownloadError(message)
        uri = source["S3Uri"]
        try:
            found = list(self._manifest(uri) if source["S3DataType"] == "ManifestFile" else self._prefix(uri))
            for bucket, key, relative in found:
                self._download(bucket, key, _inside(target, relative))
        except (ClientError, BotoCoreError) as error:
            message = f"Failed to download data. {error}. Please ensure that the role {self._role_arn} may read {uri}."
            raise DownloadError(message) from error
        if not found:
            message = (
                f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that the bucket '
                f"exists in the selected region, that objects exist under that S3 prefix, and that the role "
                f'"{self._role_arn}" has "s3:ListBucket" permissions on bucket "{split_s3_uri(uri)[0]}".'
            )
            raise DownloadError(message)

    def restore_checkpoints(self, uri: str, target: Path) -> None:
        """Download the checkpoints that earlier processes of the job stored at `uri`.

        Raises:
            DownloadError: the role may not read it.
        """
        target.mkdir(parents=True, exist_ok=True)
        try:
            # SageMaker takes the prefix literally: one that ends in r1 also finds the objects of r10.
            for bucket, key, relative in self._prefix(uri):
                self._download(bucket, key, _inside(target, relative))
        except (ClientError, BotoCoreError) as error:
            message = f"Failed to download checkpoints from {uri}. {error}"
            raise DownloadError(message) from error

    def upload(self, source: Path, uri: str) -> None:
        """Store one file.

        Raises:
            UploadError: the role may not write there.
            FileNotFoundError: the file was removed.
        """
        bucket, key = split_s3_uri(uri)
        try:
            if source.stat().st_size < _TRANSFER.multipart_threshold:
                self._client.put_object(Bucket=bucket, Key=key, Body=source.read_bytes())
            else:
                with source.open("rb") as stream:  # of a path, boto3 gives a refusal another type
                    self._client.upload_fileobj(stream, bucket, key, Config=_TRANSFER)
        except (ClientError, BotoCoreError) as error:
            message = f"Please ensure that the role {self._role_arn} may write to {uri}. Error message from S3: {error}"
            raise UploadError(message) from error

    def delete(self, uri: str) -> None:
        """Delete one object. What is not allowed is not done, and is written to the service's log.

        That the platform deletes at all, and that a denial does not end the job, is not known of SageMaker but assumed.
        """
        bucket, key = split_s3_uri(uri)
        try:
            self._client.delete_object(Bucket=bucket, Key=key)
        except (ClientError, BotoCoreError) as error:
            _log.warning("The checkpoint %s was removed in its container, but not in S3: %s", uri, error)

    def upload_directory(self, source: Path, uri: str) -> None:
        """Store every file under `source` as an object of its own."""
        for path in files_under(source):
            self.upload(path, f"{uri}/{path.relative_to(source).as_posix()}")

    def upload_archive(self, sources: Sequence[Path], uri: str) -> None:
        """Store the content of `sources` as one gzip-compressed tar, members of each sorted by name."""
        with tempfile.NamedTemporaryFile(suffix=".tar.gz") as archive:
            with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=_COMPRESSION_LEVEL) as tar:
                for path in (path for source in sources for path in sorted(source.iterdir())):
                    tar.add(path, arcname=path.name)
            archive.flush()
            self.upload(Path(archive.name), uri)

    def _prefix(self, uri: str) -> Iterator[tuple[str, str, str]]:
        """Bucket, key and path relative to the channel for every object under a prefix."""
        bucket, prefix = split_s3_uri(uri)
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for entry in page.get("Contents", []):
                key = entry["Key"]
                if not key.endswith("/"):
                    yield bucket, key, path_in_channel(key, prefix)

    def _manifest(self, uri: str) -> Iterator[tuple[str, str, str]]:
        """The objects in a manifest: `[{"prefix": "s3://..."}, "name", ...]`."""
        bucket, key = split_s3_uri(uri)
        entries = json.loads(self._client.get_object(Bucket=bucket, Key=key)["Body"].read())
        base = entries[0]["prefix"]
        for name in entries[1:]:
            yield (*split_s3_uri(base + name), name)

    def _download(self, bucket: str, key: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        self._client.download_file(bucket, key, str(target), Config=_TRANSFER)


class CheckpointSync:
    """Brings the changes in a directory to S3, as SageMaker does while a job runs: what is removed is removed there."""

    def __init__(self, storage: JobStorage, directory: Path, uri: str) -> None:
        self._storage = storage
        self._directory = directory
        self._uri = uri
        self._seen: dict[Path, tuple[int, int]] = {}

    def restore(self) -> None:
        """Download the checkpoints; none is uploaded again."""
        self._storage.restore_checkpoints(self._uri, self._directory)
        self._seen = {path: _version(path) for path in files_under(self._directory)}

    def push(self) -> None:
        """Upload every file that is new or changed, then delete what was removed.

        Raises:
            UploadError: the role may not write there.
        """
        found = files_under(self._directory)
        for path in found:
            # The job may replace or remove a file at any time: the next push uploads the new one.
            try:
                version = _version(path)
                if self._seen.get(path) != version:
                    self._storage.upload(path, self._place(path))
                    self._seen[path] = version
            except FileNotFoundError:
                continue
        for path in self._seen.keys() - set(found):
            self._storage.delete(self._place(path))
            del self._seen[path]

    def _place(self, path: Path) -> str:
        return f"{self._uri.rstrip('/')}/{path.relative_to(self._directory).as_posix()}"


def check_names_differ(directories: Sequence[Path]) -> None:
    """Return if no two of the containers' directories have a file of the same name.

    Raises:
        UploadError: two have. The documentation warns of it, and does not say what follows.
    """
    seen: set[Path] = set()
    for directory in directories:
        for path in files_under(directory):
            name = path.relative_to(directory)
            if name in seen:
                message = f"File names clash: two containers of the job have written {name}."
                raise UploadError(message)
            seen.add(name)


def files_under(directory: Path) -> list[Path]:
    """All regular files below `directory`, sorted; none if it is missing."""
    return sorted(Path(place, name) for place, _, names in os.walk(directory) for name in names)


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def _inside(directory: Path, relative: str) -> Path:
    """`directory/relative`, which must not leave the directory."""
    target = (directory / relative).resolve()
    if not target.is_relative_to(directory.resolve()):
        message = f"the object name {relative!r} leaves the directory of its channel"
        raise DownloadError(message)
    return target
