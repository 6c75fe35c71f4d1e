"""A recipe in a checkout of the public recipes: where its path begins, and of which files it is composed."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Sequence

from muster.options.recipes.contract.hydra_defaults import composed
from muster.options.recipes.contract.recipe_reader import RecipeReader
from muster.options.recipes.contract.recipe_text import recipe_yaml
from muster.options.recipes.contract.resolved_recipe import SourceText
from muster.options.recipes.contract.text_places import PlaceError, refuse

ROOTS = ("recipes_collection/recipes/", "hyperpod_recipes/recipes_src/", "recipes/")
"""The folders in which the public recipes' versions keep their recipes."""
_PARTS = "hydra_config"
"""The folder, in a root's folders, of the files that recipes are composed of."""
_SUFFIXES = (".yaml", ".yml")


def checkout_recipe(reader: RecipeReader, folder: str, files: Sequence[str], base: str) -> SourceText:
    """The recipe named `base` in a checkout with these `files`, with everything that its `defaults:` list names.

    Raises:
        PlaceError: there is no such recipe, or it cannot be composed.
    """
    path, known = _found(files, folder, base), frozenset(files)
    root = next((root for root in ROOTS if path.startswith(root)), "")
    folders = posixpath.dirname(path), root + path[len(root) :].partition("/")[0]

    def read(path: str) -> str:
        return reader.read_text(posixpath.join(folder, path))

    def find(config: str) -> tuple[str, str] | None:
        name = config if config.endswith(_SUFFIXES) else f"{config}.yaml"
        paths = [posixpath.normpath(posixpath.join(above, name)) for above in folders]
        return next(((path, read(path)) for path in paths if path in known), None)

    text = read(path)
    values = composed(path, text, find)
    place = posixpath.join(folder, path)
    return SourceText(place=place, text=text if values is None else recipe_yaml(values))


def _found(files: Sequence[str], folder: str, base: str) -> str:
    parts = base.split("/")
    if base.startswith("/") or ".." in parts or "\\" in base:
        statement = f"{base!r} is not a path below the checkout"
        refuse(statement, f"write it as it is below {ROOTS[0]}, such as fine-tuning/llama/…")
    name = posixpath.normpath(base)
    known = frozenset(files)
    for root in (*ROOTS, ""):
        for suffix in ("", *_SUFFIXES):
            if (path := f"{root}{name}{suffix}") in known:
                return path
    near = _nearest(name, list(recipe_names(files, folder)))
    remedy = f"did you mean {near}?" if near else "`muster recipe list` shows the recipes of a checkout"
    statement = f"there is no recipe {base!r} in {folder}"
    raise PlaceError(statement, remedy)


def recipe_names(files: Sequence[str], folder: str) -> dict[str, str]:
    """The recipes by their names; of several of one name the one that is found.

    Raises:
        PlaceError: there is none.
    """
    found: dict[str, str] = {}
    for root in ROOTS:
        for path in files:
            if path.startswith(root) and f"/{_PARTS}/" not in path:
                found.setdefault(path[len(root) :].removesuffix(".yaml").removesuffix(".yml"), path)
    if not found:
        statement = f"{folder} has no recipes: there is none of {', '.join(ROOTS)}"
        refuse(statement, "name the folder of a clone of the public recipes")
    return found


def _nearest(name: str, names: Sequence[str]) -> str | None:
    wanted = name.removesuffix(".yaml").removesuffix(".yml")
    last = posixpath.basename(wanted)
    by_last = {posixpath.basename(one): one for one in reversed(names)}
    if last in by_last:
        return by_last[last]
    if near := difflib.get_close_matches(wanted, names, n=1):
        return near[0]
    near = difflib.get_close_matches(last, by_last, n=1)
    return by_last[near[0]] if near else None
