"""Cloud assemblies for the embedded cloud, kept by all that they are made from: the same inputs are synthesized once.

A synthesis starts node, loads the CDK and takes five seconds of CPU time; a copy takes a tenth of one. An assembly for
AWS is always synthesized, and validated.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from muster.infra.build_places import PACKAGE, build_folder
from muster.infra.settings.stack_settings import StackSettings

_MAKERS = ("aws-cdk-lib", "constructs", "jsii")
_KEPT_MAX = 6  # of 13 MB each, nearly all of it the functions' bundle


class KeptAssembly:
    """The assembly of one set of inputs: there, or to be kept once it is made."""

    def __init__(
        self,
        settings: StackSettings,
        context: Mapping[str, Any],
        *,
        package: Path = PACKAGE,
        folder: Path | None = None,
    ) -> None:
        """Find its place.

        Args:
            settings: of the stack.
            context: what the CDK app reads besides.
            package: the folder of the package `muster` that makes the assembly and is deployed by it.
            folder: of all that are kept; by default in the build folder.
        """
        self._folder = build_folder() / "assemblies" if folder is None else folder
        made_from = {
            "settings": settings.tables,
            "context": dict(context),
            "makers": {name: version(name) for name in _MAKERS},
            "python": sys.version,
        }
        state = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode())
        state.update(_content(package))
        self._place = self._folder / state.hexdigest()[:32]

    def restore(self, outdir: Path) -> bool:
        """Copy it to `outdir`, a folder that is new; False where none is kept."""
        try:
            # A newer use: what was not used for the longest time is removed first.
            os.utime(self._place)
            shutil.copytree(self._place, outdir, dirs_exist_ok=True)
        except OSError:
            # Another process may have removed it in the middle. The CDK would leave a part of a file as it is.
            shutil.rmtree(outdir, ignore_errors=True)
            return False
        return True

    def keep(self, outdir: Path) -> None:
        """Keep what was written to `outdir`. An assembly is kept whole or not at all; that it is not is no failure."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._folder, prefix=".") as staging:
                made = Path(staging) / "assembly"
                shutil.copytree(outdir, made)
                with suppress(OSError):  # another process was faster, with the same result
                    made.rename(self._place)
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        kept = sorted(self._folder.glob("[!.]*"), key=lambda place: place.stat().st_mtime)
        for place in kept[:-_KEPT_MAX]:
            # Moved first: no other process copies a part of it.
            with tempfile.TemporaryDirectory(dir=self._folder, prefix=".") as staging:
                place.rename(Path(staging) / "removed")


def _content(package: Path) -> bytes:
    """A digest of all files of the package, with their names; in a clone some of its folders are links."""
    state = hashlib.sha256()
    for folder, inner, files in os.walk(package, followlinks=True):
        inner[:] = sorted(name for name in inner if name != "__pycache__")
        for name in sorted(files):
            path = Path(folder, name)
            body = path.read_bytes()
            state.update(f"{path.relative_to(package).as_posix()} {len(body)} ".encode())
            state.update(body)
    return state.digest()
