"""model.tar.gz and output.tar.gz: what the program leaves below model and output/data, as SageMaker packs it."""

from __future__ import annotations

import os
import tarfile
import tempfile
from pathlib import Path

from muster.replica.pod.objects import Objects

# Weights hardly become smaller, and the program's end waits for this.
_LEVEL = 1


def upload_archives(objects: Objects, base: Path, output_uri: str, job: str) -> list[str]:
    """Store the archives of a job's program; returns their URIs. An empty folder has none.

    Raises:
        StoreDeniedError, StoreUnavailableError
    """
    place = f"{output_uri.rstrip('/')}/{job}/output"
    folders = {"model": base / "model", "output": base / "output" / "data"}
    stored = []
    for name, folder in folders.items():
        if folder.is_dir() and any(folder.iterdir()):
            uri = f"{place}/{name}.tar.gz"
            _upload(objects, folder, uri)
            stored.append(uri)
    return stored


def _upload(objects: Objects, folder: Path, uri: str) -> None:
    with tempfile.TemporaryFile(dir=folder.parent) as archive:
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=_LEVEL) as tar:
            for path in sorted(folder.iterdir()):
                tar.add(path, arcname=path.name)
        archive.flush()
        objects.upload(archive, archive.seek(0, os.SEEK_CUR), uri, lambda: True)
