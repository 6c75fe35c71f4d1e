"""Finding manifest.json in an output.tar.gz that a user's code wrote, without unpacking anything.

tarfile keeps every member, and reads headers that extend a member (pax, GNU long names, sparse maps) whole, whatever
their size: with a malicious archive a few kilobytes of gzip could fill the memory. So this module reads the blocks one
at a time and uses tarfile only to parse a single header.
"""

from __future__ import annotations

import gzip
import io
import posixpath
import tarfile
import zlib
from typing import NoReturn, Protocol

from muster.control.manifest.manifest_errors import (
    KIB,
    BeyondLimitsError,
    Limits,
    ManifestError,
    ManifestProblem,
    check,
)
from muster.control.runtime.clock import TimeBudget

MANIFEST = "manifest.json"

_BLOCK = tarfile.BLOCKSIZE
_SKIP = 256 * KIB
_PAX = {tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE}
_EXTENDED = {b"path", b"size"}
_REGULAR = {tarfile.REGTYPE, tarfile.AREGTYPE}
# No data follows these headers, whatever their size field contains.
_BARE = {
    tarfile.LNKTYPE,
    tarfile.SYMTYPE,
    tarfile.CHRTYPE,
    tarfile.BLKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
}
# The positions in a GNU sparse header, and in each block that continues it, of the flag for another block.
_SPARSE_MORE, _SPARSE_MORE_NEXT = 482, 504


def manifest_member(packed: io.BufferedReader, uri: str, limits: Limits, budget: TimeBudget) -> bytes | None:
    """The content of the first root member `manifest.json` of a gzipped tar, or None when there is none.

    Reads no further than that member. A later manifest.json, which would replace it when unpacked, is ignored.

    Raises:
        ManifestError: the archive is damaged, ends early or exceeds the limits, or its manifest is not a plain file
            at the root (a link, a device, a directory, an absolute path, a path with `..`).
    """
    with gzip.GzipFile(fileobj=packed, mode="rb") as unpacked:
        return _Walk(unpacked, uri, limits, budget).manifest()


class _Unpacked(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Walk:
    """One pass over an archive's blocks."""

    def __init__(self, unpacked: _Unpacked, uri: str, limits: Limits, budget: TimeBudget) -> None:
        self._unpacked, self._uri, self._limits, self._budget = unpacked, uri, limits, budget
        self._count = 0

    def manifest(self) -> bytes | None:
        extension: dict[bytes, bytes] = {}
        for _ in range(self._limits.headers):
            block = self._read(_BLOCK)
            if not any(block):
                return None
            header = self._header(block)
            if header.type in _PAX:
                extension |= self._pax_records(self._extension(header.size))
                continue
            if header.type == tarfile.GNUTYPE_LONGNAME:
                extension[b"path"] = self._extension(header.size).partition(b"\0")[0]
                continue
            if header.type in {tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK}:
                self._skip(header.size)
                continue
            name, size = self._extended(header, extension)
            extension = {}
            if _claims_to_be_manifest(name):
                self._refuse_unsafe(name, header)
                return self._payload("manifest", size, self._limits.manifest_bytes)
            self._skip_sparse_map(header, block)
            self._skip(0 if header.type in _BARE else size)
        detail = f"no manifest among the first {self._limits.headers:,} headers of the archive; write it first"
        raise BeyondLimitsError(self._uri, detail)

    def _header(self, block: bytes) -> tarfile.TarInfo:
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            self._damaged(f"not a tar header ({error})")
        if header.size < 0:
            self._damaged("a member of negative size")
        return header

    def _extended(self, header: tarfile.TarInfo, extension: dict[bytes, bytes]) -> tuple[str, int]:
        name, size = header.name, header.size
        if b"path" in extension:
            name = extension[b"path"].decode("utf-8", "surrogateescape")
        if b"size" in extension:
            digits = extension[b"size"]
            # 20 digits hold every size that 64 bits can.
            if not digits.isdigit() or len(digits) > 20:
                self._damaged("a pax size that is not a number")
            size = int(digits)
        return name, size

    def _pax_records(self, data: bytes) -> dict[bytes, bytes]:
        """Name and size of a member in a pax header, whose records have the form `<length> <key>=<value>\\n`."""
        records: dict[bytes, bytes] = {}
        position = 0
        while position < len(data):
            digits, space, _ = data[position : position + 20].partition(b" ")
            end = position + int(digits) if digits.isdigit() and space else 0
            record = data[position + len(digits) + 1 : end]
            key, equals, value = record.partition(b"=")
            if end > len(data) or not equals or not value.endswith(b"\n"):
                self._damaged("an invalid pax header")
            if key in _EXTENDED:
                records[key] = value[:-1]
            position = end
        return records

    def _refuse_unsafe(self, name: str, header: tarfile.TarInfo) -> None:
        if name.startswith("/") or ".." in name.split("/"):
            detail = f"the member {_show(name)} points outside the archive; only {MANIFEST} at its root is read"
            raise ManifestError(ManifestProblem.UNSAFE_PATH, self._uri, detail)
        if header.type not in _REGULAR or name.endswith("/"):
            detail = f"the member {_show(name)} is not a regular file (tar type {header.type!r})"
            raise ManifestError(ManifestProblem.UNSAFE_PATH, self._uri, detail)

    def _extension(self, size: int) -> bytes:
        return self._payload("header", size, self._limits.header_bytes)

    def _payload(self, what: str, size: int, most: int) -> bytes:
        if size > most:
            detail = f"a {what} of {size:,} bytes; at most {most:,} are allowed"
            raise ManifestError(ManifestProblem.OVERSIZE, self._uri, detail)
        return self._read(_padded(size))[:size]

    def _skip_sparse_map(self, header: tarfile.TarInfo, block: bytes) -> None:
        more = header.type == tarfile.GNUTYPE_SPARSE and block[_SPARSE_MORE] != 0
        while more:
            more = self._read(_BLOCK)[_SPARSE_MORE_NEXT] != 0

    def _skip(self, size: int) -> None:
        left = _padded(size)
        while left:
            left -= len(self._read(min(left, _SKIP)))

    def _read(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        check(self._budget, self._uri)
        self._count += size
        if self._count > self._limits.unpacked_bytes:
            detail = f"no manifest in the first {self._limits.unpacked_bytes:,} unpacked bytes; write it first"
            raise BeyondLimitsError(self._uri, detail)
        try:
            data = self._unpacked.read(size)
        except EOFError:
            data = b""
        except (gzip.BadGzipFile, zlib.error) as error:
            self._damaged(f"not gzip ({error})")
        if len(data) < size:
            detail = "the archive ends before its end marker; the upload was cut short"
            raise ManifestError(ManifestProblem.TRUNCATED, self._uri, detail)
        return data

    def _damaged(self, detail: str) -> NoReturn:
        detail = f"{detail}; a gzipped tar archive is expected"
        raise ManifestError(ManifestProblem.DAMAGED, self._uri, detail) from None


def _claims_to_be_manifest(name: str) -> bool:
    """Whether this member would become /manifest.json if the archive were unpacked at /."""
    return posixpath.normpath("/" + name.lstrip("/")) == f"/{MANIFEST}"


def _padded(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _show(name: str) -> str:
    return ascii(name if len(name) <= 80 else f"{name[:77]}...")
