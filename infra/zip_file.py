"""Zip files that depend on what they hold alone."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

_OLDEST_TIME = (1980, 1, 1, 0, 0, 0)


def write_zip(files: Mapping[str, Path], archive: Path, comment: str = "") -> None:
    """All `files` in the order of their names, with one time and one mode; there whole, or not at all."""
    partial = archive.with_name(f"{archive.name}.{os.getpid()}")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as output:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _OLDEST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            output.writestr(entry, files[name].read_bytes())
        output.comment = comment.encode()
    partial.replace(archive)
