"""The pod's checkpoints folder and its copy in S3: restored before the program starts, kept while it runs.

As SageMaker does it: file by file, only what has changed, at any time. What a program replaces by renaming is whole in
S3, too; a file that changes while it is read is left for the next look. All pods of a job share one prefix, and the
files of their processes have different names. A restart may find newer files in its folder than in S3 (the pod was
killed before they were copied) or newer ones in S3 than in its folder (another pod had this place in the group since).
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

from muster.contract.errors import MusterError
from muster.contract.layout import split_s3_uri
from muster.options.hyperpod.replica.channels import Transfer, fetch, name_problems, plan_transfers
from muster.options.hyperpod.replica.folder import write_json
from muster.options.hyperpod.replica.objects import UNFINISHED, Objects
from muster.replica.replica_errors import InputError

KEEP_SECONDS = 5.0

log = logging.getLogger("muster.replica")


@dataclass(frozen=True)
class _Copy:
    """A file as it was when it was the same as an object: the object's ETag, the file's time and bytes."""

    etag: str
    modified_ns: int
    size: int


class KeptCheckpoints:
    """The checkpoints in `place`, copied to `uri`. `folder` remembers what is the same in both."""

    def __init__(self, objects: Objects, place: Path, uri: str, folder: Path) -> None:
        self._objects = objects
        self._place = place
        self._uri = uri.rstrip("/") + "/"
        self._ledger = folder / "checkpoints.json"
        self._same = self._read()
        self._lock = threading.Lock()
        self._has_warned = False

    def restore(self) -> int:
        """Bring to the folder what is newer in S3, or only there; returns how many files.

        Raises:
            InputError: an object's name cannot be a file's.
            StoreDeniedError, StoreUnavailableError, ObjectMissingError, StoppedError
        """
        self._place.mkdir(parents=True, exist_ok=True)
        found = self._objects.below(self._uri)
        transfers = plan_transfers(found, split_s3_uri(self._uri)[1], self._place)
        if problems := name_problems(transfers, self._place):
            raise InputError([f"the checkpoints: {problem}" for problem in problems])
        wanted = [item for item in transfers if self._is_newer(item)]
        fetch(self._objects, wanted, self._restored)
        self._write()
        return len(wanted)

    def _is_newer(self, item: Transfer) -> bool:
        """Whether the object is newer than the file."""
        here = _version(item.path)
        if here is None:
            return True
        same = self._same.get(self._name(item.path))
        if same is not None and (same.modified_ns, same.size) == here:
            return same.etag != item.found.etag
        if same is not None and same.etag == item.found.etag:
            return False  # the file has changed, and the object has not
        return item.found.modified > here[0] / 1e9

    def _restored(self, item: Transfer, etag: str) -> None:
        here = _version(item.path)
        if here is not None:
            with self._lock:
                self._same[self._name(item.path)] = _Copy(etag, *here)

    def keep(self) -> int:
        """Copy every file that is new or changed to S3, and delete there what was removed here; returns how many.

        Raises:
            StoreDeniedError, StoreUnavailableError
        """
        changed = 0
        found = dict(self._files())
        for name, path in found.items():
            here = _version(path)
            same = self._same.get(name)
            if here is None or (same is not None and (same.modified_ns, same.size) == here):
                continue
            etag = self._copy(path, f"{self._uri}{name}", here)
            if etag is not None:
                self._same[name] = _Copy(etag, *here)
                changed += 1
        for name in self._same.keys() - found.keys():
            self._objects.delete(f"{self._uri}{name}")
            del self._same[name]
            changed += 1
        if changed:
            self._write()
        return changed

    def keep_until(self, end: threading.Event) -> None:
        """Keep them until `end` is set."""
        while not end.wait(KEEP_SECONDS):
            self.try_to_keep()

    def try_to_keep(self) -> None:
        """Keep them; what fails is tried again with the next look, and logged for the first time."""
        try:
            self.keep()
            self._has_warned = False
        except (MusterError, OSError) as error:
            if not self._has_warned:
                log.warning("event=checkpoints-not-kept reason=%r", str(error))
            self._has_warned = True

    def _copy(self, path: Path, uri: str, here: tuple[int, int]) -> str | None:
        try:
            with path.open("rb") as file:
                if _of(os.fstat(file.fileno())) != here:
                    return None
                return self._objects.upload(file, here[1], uri, lambda: _of(os.fstat(file.fileno())) == here)
        except FileNotFoundError:
            return None

    def _files(self) -> Iterator[tuple[str, Path]]:
        for folder, _, names in os.walk(self._place):
            for name in names:
                path = Path(folder, name)
                if not name.endswith(UNFINISHED) and path.is_file():
                    yield self._name(path), path

    def _name(self, path: Path) -> str:
        return path.relative_to(self._place).as_posix()

    def _read(self) -> dict[str, _Copy]:
        try:
            return {name: _Copy(*copy) for name, copy in json.loads(self._ledger.read_text()).items()}
        except (OSError, ValueError, TypeError):
            return {}

    def _write(self) -> None:
        write_json(self._ledger, {name: astuple(copy) for name, copy in self._same.items()})


def _version(path: Path) -> tuple[int, int] | None:
    try:
        return _of(path.stat())
    except FileNotFoundError:
        return None


def _of(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_size
