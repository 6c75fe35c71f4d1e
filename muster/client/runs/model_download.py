"""Fetching the model of a run: resumable, verified, and nothing that exists is overwritten."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from pydantic import Field

from muster.client.aws.cloud import Cloud
from muster.client.client_errors import (
    DamagedModelError,
    ModelFileError,
    ModelFolderError,
    os_reason,
)
from muster.contract.document import Document
from muster.contract.errors import DocumentError
from muster.contract.layout import split_s3_uri
from muster.contract.run.model import MANIFEST_BYTES_MAX, ModelFile, ModelKind, ModelManifest, ModelResult

# One connection to S3 carries about 85 MB/s.
FILES_AT_ONCE = 8
# A broken connection costs at most one of these.
PIECE_BYTES = 64 * 2**20
_READ_BYTES = 2**20
UNFINISHED = ".part"

Progress = Callable[[int], None]
"""Called with the number of bytes that have just become ready."""


class FetchedModel(Document):
    """A run's model in a folder."""

    run: str = Field(description="the run that has written it: the one that was named, or one that continues it")
    uri: str
    folder: str
    kind: ModelKind
    round: int
    bytes: int
    files: tuple[str, ...] = Field(description="below the folder")
    fetched_bytes: int = Field(description="how many bytes were not there yet")


@dataclass(frozen=True)
class _Wanted:
    """A file, where it goes, and how many bytes of it are there."""

    file: ModelFile
    path: Path
    present: int

    @property
    def unfinished(self) -> Path:
        return self.path.with_name(self.path.name + UNFINISHED)

    @property
    def missing(self) -> int:
        return self.file.bytes - self.present


class ModelDownload:
    """The download of one model into one folder. It can be broken off at any time, and begun again."""

    def __init__(self, cloud: Cloud, run: str, model: ModelResult, folder: Path) -> None:
        """Compare the folder with the list of the model's files.

        Raises:
            DamagedModelError: the list cannot be read, or is not the one of the run's result.
            ModelFolderError: the folder has other files of these names, or its disk is too small.
        """
        self._cloud, self._run, self._model, self._folder = cloud, run, model, folder
        self._key = split_s3_uri(model.uri)[1]
        self._stop = Event()
        self._files = self._manifest().files
        self._wanted = self._compared(self._files)
        self._begun = False

    @property
    def present_bytes(self) -> int:
        """How many bytes are in the folder already."""
        return sum(wanted.present for wanted in self._wanted)

    @property
    def total_bytes(self) -> int:
        """The size of all files."""
        return sum(wanted.file.bytes for wanted in self._wanted)

    def fetch(self, progress: Progress = lambda _: None) -> FetchedModel:
        """Fetch what is missing, and verify every file. After an error it can be called again.

        Raises:
            DamagedModelError: a file in the bucket is not the one of the list.
            ModelFolderError: the folder has changed since an earlier call, and cannot be used any more.
            ModelFileError: a file cannot be written; what was fetched stays.
            ClientError: AWS cannot be reached or refuses; what was fetched stays.
        """
        if self._begun:
            self._stop.clear()
            self._wanted = self._compared(self._files)
        self._begun = True
        with ThreadPoolExecutor(FILES_AT_ONCE, "model") as pool:
            # The largest last would leave the others' connections idle.
            longest = sorted(self._wanted, key=lambda wanted: -wanted.missing)
            futures = [pool.submit(self._fetch, wanted, progress) for wanted in longest]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        model = self._model
        return FetchedModel(
            run=self._run,
            uri=model.uri,
            folder=str(self._folder),
            kind=model.kind,
            round=model.round,
            bytes=self.total_bytes,
            files=tuple(wanted.file.name for wanted in self._wanted),
            fetched_bytes=sum(wanted.missing for wanted in self._wanted),
        )

    def _manifest(self) -> ModelManifest:
        uri = self._model.manifest
        body = self._cloud.objects.read_bounded(split_s3_uri(uri)[1], MANIFEST_BYTES_MAX)
        if body is None:
            raise DamagedModelError(self._run, f"{uri} does not exist")
        if hashlib.sha256(body).hexdigest() != self._model.manifest_sha256:
            raise DamagedModelError(self._run, f"{uri} is not the list of the run's result")
        try:
            return ModelManifest.from_json(body, uri)
        except DocumentError as error:
            raise DamagedModelError(self._run, str(error)) from None

    def _compared(self, files: Sequence[ModelFile]) -> list[_Wanted]:
        """What is there of each file: a whole one is compared by its checksum, which takes about a second per GB."""
        try:
            with ThreadPoolExecutor() as pool:
                found = list(pool.map(self._present, files))
        except OSError as error:
            raise ModelFolderError(str(self._folder), os_reason(error)) from error
        different = [str(wanted.path) for wanted in found if wanted.present < 0]
        if different:
            raise ModelFolderError(str(self._folder), f"{', '.join(different)} exists and is not the file of the model")
        needed = sum(wanted.missing for wanted in found)
        free = shutil.disk_usage(_existing(self._folder)).free
        if needed > free:
            problem = f"{needed:,} bytes are missing, and its disk has {free:,} bytes free"
            raise ModelFolderError(str(self._folder), problem)
        return found

    def _present(self, file: ModelFile) -> _Wanted:
        wanted = _Wanted(file, self._folder / file.name, 0)
        if wanted.path.exists():
            same = wanted.path.stat().st_size == file.bytes and _sha256(wanted.path) == file.sha256
            return _Wanted(file, wanted.path, file.bytes if same else -1)
        if wanted.unfinished.exists():
            return _Wanted(file, wanted.path, min(wanted.unfinished.stat().st_size, file.bytes))
        return wanted

    def _fetch(self, wanted: _Wanted, progress: Progress) -> None:
        if wanted.path.exists():
            return
        try:
            wanted.path.parent.mkdir(parents=True, exist_ok=True)
            checksum = self._continued(wanted, progress)
            if self._stop.is_set():
                return
            if checksum != wanted.file.sha256:
                wanted.unfinished.unlink()
                detail = (
                    f"{self._model.uri}{wanted.file.name} has another checksum. Repeat the command to fetch it again"
                )
                raise DamagedModelError(self._run, detail)
            wanted.unfinished.rename(wanted.path)
        except DocumentError as error:
            raise DamagedModelError(self._run, str(error).rstrip(".")) from None
        except OSError as error:
            raise ModelFileError(str(wanted.path), os_reason(error)) from error

    def _continued(self, wanted: _Wanted, progress: Progress) -> str:
        """Append what is missing to the unfinished file; returns the checksum of the whole."""
        checksum = hashlib.sha256()
        with wanted.unfinished.open("a+b") as target:
            target.truncate(wanted.present)
            target.seek(0)
            while piece := target.read(_READ_BYTES):
                checksum.update(piece)
            for piece in self._pieces(wanted):
                target.write(piece)
                checksum.update(piece)
                progress(len(piece))
                if self._stop.is_set():
                    break
        return checksum.hexdigest()

    def _pieces(self, wanted: _Wanted) -> Iterator[bytes]:
        key = self._key + wanted.file.name
        for start in range(wanted.present, wanted.file.bytes, PIECE_BYTES):
            stop = min(start + PIECE_BYTES, wanted.file.bytes)
            yield from self._cloud.objects.read_range(key, start, stop, _READ_BYTES)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
