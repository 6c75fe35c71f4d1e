"""Unpacks an archive of source code: within size limits, below one folder, and checked against its digest."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from muster.contract.training.source_delivery import (
    ARCHIVE_SUFFIX,
    SOURCE_BYTES_MAX,
    SOURCE_DEPTH_MAX,
    SOURCE_FILES_MAX,
)

# The tar format's overhead: a header of 512 bytes and up to 511 of padding per file, long names, the last record.
_STREAM_MAX = SOURCE_BYTES_MAX + SOURCE_FILES_MAX * 4_096 + 1_048_576
_PIECE = 1_048_576
_NAME_SHOWN, _CAUSE_SHOWN = 80, 200


class ArchiveError(Exception):
    """The archive cannot be unpacked: it is damaged or too large, or a name points outside the folder."""


class _Bounded(io.RawIOBase):
    """An archive's decompressed bytes, up to a limit, with the digest of all that was read."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        super().__init__()
        self._stream = stream
        self._left = _STREAM_MAX
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(_PIECE if size < 0 else size)
        self._left -= len(piece)
        if self._left < 0:
            message = f"it holds more than {SOURCE_BYTES_MAX:,} bytes"
            raise ArchiveError(message)
        self.digest.update(piece)
        return piece


def unpack(archive: Path, target: Path) -> None:
    """Unpack a `.tar.gz` into the new folder `target`: regular files and folders only, none of them sparse.

    If the archive's name is a SHA-256, it must be the digest of its tar stream.

    Raises:
        ArchiveError: it cannot be unpacked; says why.
    """
    target.mkdir(parents=True)
    try:
        with gzip.open(archive) as stream:
            bounded = _Bounded(stream)
            folders: set[PurePosixPath] = set()
            with tarfile.open(fileobj=bounded, mode="r|") as tar:
                for count, member in enumerate(tar, start=1):
                    if count > SOURCE_FILES_MAX:
                        message = f"it holds more than {SOURCE_FILES_MAX:,} entries"
                        raise ArchiveError(message)
                    _extract(tar, member, target, folders)
            while bounded.read():
                pass
    # tarfile raises a ValueError for some headers; open() does so for a name with a null character.
    except (OSError, EOFError, ValueError, OverflowError, zlib.error, tarfile.TarError) as error:
        message = f"it is damaged: {str(error)[:_CAUSE_SHOWN]}"
        raise ArchiveError(message) from None
    promised = archive.name[: -len(ARCHIVE_SUFFIX)]
    if re.fullmatch(r"[0-9a-f]{64}", promised) and bounded.digest.hexdigest() != promised:
        message = "its digest is not the one in its name"
        raise ArchiveError(message)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, folders: set[PurePosixPath]) -> None:
    """Write one member below `target`; `folders` are those that members need, of the members before too."""
    name, shown = PurePosixPath(member.name), ascii(member.name[:_NAME_SHOWN])
    if name.is_absolute() or ".." in name.parts or "\\" in member.name:
        message = f"the name {shown} points outside the folder"
        raise ArchiveError(message)
    # A few bytes of a sparse file stand for any number of them.
    if member.issparse() or any(key.startswith("GNU.sparse.") for key in member.pax_headers):
        message = f"{shown} is sparse; pack it without holes"
        raise ArchiveError(message)
    if len(name.parts) > SOURCE_DEPTH_MAX:
        message = f"{shown} has {len(name.parts):,} parts; at most {SOURCE_DEPTH_MAX} are allowed"
        raise ArchiveError(message)
    path = target / name
    folders.update([name] if member.isdir() else [], list(name.parents)[:-1])
    if len(folders) > SOURCE_FILES_MAX:
        message = f"it holds more than {SOURCE_FILES_MAX:,} folders"
        raise ArchiveError(message)
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    content = tar.extractfile(member) if member.isreg() else None
    if content is None:
        message = f"{shown} is neither a file nor a folder"
        raise ArchiveError(message)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while piece := content.read(_PIECE):
            file.write(piece)
    path.chmod(0o755 if member.mode & 0o100 else 0o644)
