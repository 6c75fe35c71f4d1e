"""Recipes in files and folders of this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from muster.client.errors import os_reason
from muster.contract.recipe.places import PlaceError
from muster.contract.recipe.recipe_reader import CHECKOUT_FILES_MAX


class LocalFiles:
    """The part of a `RecipeReader` that needs no AWS."""

    def read_text(self, place: str, limit: int) -> str:
        """The text of a file.

        Raises:
            PlaceError: it cannot be read, or has more than `limit` bytes.
        """
        return _text(Path(place), place, limit)

    def checkout(self, folder: str) -> LocalCheckout:
        """The checkout in a folder."""
        return LocalCheckout(folder)


class LocalCheckout:
    """A `Checkout` in a folder of this machine."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def files(self) -> Sequence[str]:
        """The paths of the folder's YAML files; hidden folders and links are left out.

        Raises:
            PlaceError: there is no such folder, or it has more than CHECKOUT_FILES_MAX files.
        """
        if not Path(self._folder).is_dir():
            _refuse(f"{self._folder} is not a folder", "clone the public recipes, and name the folder")
        found: list[str] = []
        for above, folders, names in os.walk(self._folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths = [Path(above, name) for name in names if name.endswith((".yaml", ".yml"))]
            found += [path.relative_to(self._folder).as_posix() for path in paths if not path.is_symlink()]
            if len(found) > CHECKOUT_FILES_MAX:
                statement = f"{self._folder} has more than {CHECKOUT_FILES_MAX:,} YAML files"
                _refuse(statement, "name the folder of the clone alone")
        return found

    def read(self, path: str, limit: int) -> str:
        """The text of one of `files()`.

        Raises:
            PlaceError: it cannot be read, or has more than `limit` bytes.
        """
        return _text(Path(self._folder, path), path, limit)


def _text(path: Path, place: str, limit: int) -> str:
    try:
        with path.open("rb") as file:
            body = file.read(limit + 1)
    except OSError as error:
        _refuse(f"{place} cannot be read: {os_reason(error)}", "name a file that can be read")
    if len(body) > limit:
        _refuse(f"{place} has more than {limit:,} bytes", "name a recipe, which is smaller")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        _refuse(f"{place} is not UTF-8 text", "write it as YAML")


def _refuse(statement: str, remedy: str) -> NoReturn:
    raise PlaceError(statement, remedy)
