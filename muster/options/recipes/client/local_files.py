"""Recipes in files and folders of this machine."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from muster.client.client_errors import os_reason
from muster.options.recipes.contract.places import refuse
from muster.options.recipes.contract.recipe_reader import CHECKOUT_FILES_MAX

_NAMES_MAX = 1_000  # of a folder, when the nearest one is looked for


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
            refuse(f"{self._folder} is not a folder", "clone the public recipes, and name the folder")
        found: list[str] = []
        for above, folders, names in os.walk(self._folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths = [Path(above, name) for name in names if name.endswith((".yaml", ".yml"))]
            found += [path.relative_to(self._folder).as_posix() for path in paths if not path.is_symlink()]
            if len(found) > CHECKOUT_FILES_MAX:
                statement = f"{self._folder} has more than {CHECKOUT_FILES_MAX:,} YAML files"
                refuse(statement, "name the folder of the clone alone")
        return found

    def read(self, path: str, limit: int) -> str:
        """The text of one of `files()`.

        Raises:
            PlaceError: it cannot be read, or has more than `limit` bytes.
        """
        return _text(Path(self._folder, path), path, limit)


def _text(path: Path, place: str, limit: int) -> str:
    if "\0" in place:
        refuse(f"{place!r} is no path", "correct it")
    try:
        if path.exists() and not path.is_file():
            refuse(f"{place} is {'a folder' if path.is_dir() else 'not a file'}", "name a file")
        with path.open("rb") as file:
            body = file.read(limit + 1)
    except FileNotFoundError:
        refuse(f"{place} does not exist", _instead_of(path))
    except OSError as error:
        refuse(f"{place} cannot be read: {os_reason(error)}", "name a file that can be read")
    if len(body) > limit:
        refuse(f"{place} has more than {limit:,} bytes", "name a recipe, which is smaller")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        refuse(f"{place} is not UTF-8 text", "write it as YAML")


def _instead_of(path: Path) -> str:
    """What to do about a file that does not exist: the nearest name in its folder."""
    try:
        names = [entry.name for entry in islice(os.scandir(path.parent), _NAMES_MAX)]
    except OSError:
        return f"{path.parent} does not exist either; correct the path"
    near = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f"did you mean {path.with_name(near[0])}?" if near else "correct the path"
