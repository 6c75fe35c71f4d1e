"""A store in a local directory, for tests and for replicas on one machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from muster.replica.store.transport import (
    Bytes,
    ObjectExistsError,
    ObjectMissingError,
    ObjectRange,
    ObjectWriter,
    Store,
    StoreDeniedError,
    StoreUnavailableError,
)

STREAM_BYTES = 2**18


class LocalStore(Store):
    """Objects are files below `root`. `os.link` refuses an existing name, which makes `create` exclusive."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, key: str, body: Bytes) -> None:
        """Write a temporary file, then link it: readers never see half a file."""
        path = self._root / key
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(body)
                Path(path).hardlink_to(name)
            finally:
                Path(name).unlink()
        except FileExistsError:
            raise ObjectExistsError(self.uri(key)) from None
        except PermissionError as error:
            raise StoreDeniedError(self.uri(key), str(error)) from None
        except OSError as error:
            raise StoreUnavailableError(self.uri(key), 1, str(error)) from None

    def writer(self, key: str, size: int | None = None) -> ObjectWriter:  # noqa: ARG002 - the system holds files
        """A temporary file, which replaces the object when it is closed."""
        return _FileWriter(self._root / key, self.uri(key))

    def read(self, key: str, start: int = 0, stop: int | None = None) -> ObjectRange:
        """Seek and read."""
        with self._open(key) as file:
            status = os.fstat(file.fileno())
            size = status.st_size
            file.seek(start)
            body = file.read(max(0, (size if stop is None else min(stop, size)) - start))
        return ObjectRange(memoryview(body), size, status.st_mtime)

    def stream(self, key: str, start: int, stop: int, *, sizes: tuple[int, int] = (0, 0)) -> Iterator[memoryview]:
        """Seek and read piece by piece."""
        wanted = sizes[0] or sizes[1]
        with self._open(key) as file:
            file.seek(start)
            while start < stop and (piece := file.read(min(stop - start, wanted or STREAM_BYTES))):
                wanted = sizes[1]
                start += len(piece)
                yield memoryview(piece)

    @contextmanager
    def _open(self, key: str) -> Iterator[BinaryIO]:
        try:
            with (self._root / key).open("rb") as file:
                yield file
        except (FileNotFoundError, NotADirectoryError):
            raise ObjectMissingError(self.uri(key)) from None
        except PermissionError as error:
            raise StoreDeniedError(self.uri(key), str(error)) from None
        except OSError as error:
            raise StoreUnavailableError(self.uri(key), 1, str(error)) from None

    def exists(self, key: str) -> bool:
        """Whether the file is there."""
        return (self._root / key).is_file()

    def keys(self, folder: str, stop: str, over: int = -1) -> list[str]:
        """All files below, except those that are still being written."""
        files = (path for path in (self._root / folder).rglob("*") if _file_bytes(path) > over)
        found = sorted(path.relative_to(self._root).as_posix() for path in files if not path.name.startswith("."))
        return [key for key in found if key < stop]

    def delete(self, keys: Sequence[str]) -> None:
        """Unlink."""
        for key in keys:
            try:
                (self._root / key).unlink(missing_ok=True)
            except PermissionError as error:
                raise StoreDeniedError(self.uri(key), str(error)) from None

    def uri(self, key: str) -> str:
        """`file:///…`."""
        return (self._root / key).absolute().as_uri()


def _file_bytes(path: Path) -> int:
    """-1 if it is no file, or none any more."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return -1
    return found.st_size if S_ISREG(found.st_mode) else -1


class _FileWriter(ObjectWriter):
    def __init__(self, path: Path, uri: str) -> None:
        self._path, self._uri = path, uri
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        except OSError as error:
            raise self._failed(error) from None
        self._unfinished, self._file = Path(name), os.fdopen(descriptor, "wb")

    def write(self, body: Bytes) -> None:
        try:
            self._file.write(body)
        except OSError as error:
            raise self._failed(error) from None

    def close(self) -> None:
        try:
            self._file.close()
            os.replace(self._unfinished, self._path)  # noqa: PTH105
        except OSError as error:
            raise self._failed(error) from None

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._unfinished.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> StoreDeniedError | StoreUnavailableError:
        if isinstance(error, PermissionError):
            return StoreDeniedError(self._uri, str(error))
        return StoreUnavailableError(self._uri, 1, str(error))
