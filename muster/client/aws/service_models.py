"""botocore's descriptions of the services, found and parsed in less time.

botocore looks into the folders of all its 400 services before it opens one, and makes ordered dictionaries of what
dictionaries keep in order by themselves. A command would pay for both with each client.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic_core
from botocore.loaders import JSONFileLoader, Loader, create_loader

_GZIP = zlib.MAX_WBITS | 16
"""zlib's number for data with a header of gzip."""


class _FileLoader(JSONFileLoader):
    def _load_file(self, full_path: str, open_method: Callable[..., Any]) -> Any:
        try:
            body = Path(full_path).read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            return None
        if open_method is gzip.open:
            # At once: a gzip file that is read as a stream takes twice as long.
            body = zlib.decompress(body, _GZIP)
        return pydantic_core.from_json(body)


class ServiceModels(Loader):
    """Reads the files that botocore's own loader reads, from the same folders."""

    FILE_LOADER_CLASS = _FileLoader

    def __init__(self, data_path: str | None) -> None:
        """`data_path`: the folders that the user's configuration adds, as botocore writes them."""
        folders = create_loader(data_path).search_paths
        super().__init__(extra_search_paths=folders, include_default_search_paths=False)

    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002 - botocore's interface
        """The services that have a folder. Whether it holds this type of model shows when the model is loaded."""
        folders = (Path(path) for path in self.search_paths)
        return sorted({service.name for folder in folders if folder.is_dir() for service in folder.iterdir()})
