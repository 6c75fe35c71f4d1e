"""The code of functions, unpacked once: MiniStack unpacks it anew for every process, ten megabytes at a time."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import IO


class CodeCache:
    """Unpacked archives by their content. Functions share them: on AWS, too, their code is read-only."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()

    def unpacked(self, archive: IO[bytes]) -> Path:
        """The folder with what `archive` (a zip) holds."""
        archive.seek(0)
        folder = self._root / hashlib.sha256(archive.read()).hexdigest()
        with self._lock:
            if not folder.exists():
                self._root.mkdir(parents=True, exist_ok=True)
                fresh = Path(tempfile.mkdtemp(dir=self._root))
                with zipfile.ZipFile(archive) as content:
                    content.extractall(fresh)
                fresh.rename(folder)
        return folder

    def zipfile_module(self) -> SimpleNamespace:
        """Stands in for the module `zipfile` where code is unpacked: a whole archive becomes a link to the cache."""
        cache = self

        class LinkingZipFile(zipfile.ZipFile):
            """Answers `extractall` into an empty folder with a link in that folder's place."""

            def extractall(
                self, path: str | os.PathLike[str] | None = None, members: object = None, pwd: bytes | None = None
            ) -> None:
                if path is None or members is not None or pwd is not None or self.fp is None:
                    message = "only whole archives are unpacked here, into a folder that is named"
                    raise NotImplementedError(message)
                target = Path(path)
                shutil.rmtree(target)
                target.symlink_to(cache.unpacked(self.fp), target_is_directory=True)

        return SimpleNamespace(ZipFile=LinkingZipFile, BadZipFile=zipfile.BadZipFile, LargeZipFile=zipfile.LargeZipFile)
