"""What a user names as a recipe, as the `recipe` of a spec."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from muster.client.client_errors import RecipeFileError, os_reason
from muster.contract.errors import SpecError
from muster.options.recipes.contract.text_places import is_local

if TYPE_CHECKING:
    from muster.client.aws.light_session import AnySession

Fields = dict[str, Any]
"""The `recipe` of a spec as a user writes it; it is checked when its sources are gathered."""

_FILES = ("file", "base", "checkout", "override_spec")


def recipe_beside(recipe: object, folder: Path) -> object:
    """The `recipe` of a spec in `folder`: its relative paths are those of files beside the spec."""
    if isinstance(recipe, str):
        return _beside(recipe, folder)
    if not isinstance(recipe, Mapping):
        return recipe
    # In a checkout, the base is a path below it.
    files = [name for name in _FILES if name != "base" or not recipe.get("checkout")]
    moved = {name: _beside(recipe[name], folder) for name in files if isinstance(recipe.get(name), str)}
    return {**recipe, **moved}


def _beside(place: str, folder: Path) -> str:
    return str(folder / os.path.expanduser(place)) if place and is_local(place) else place  # noqa: PTH111


class NamedRecipe(NamedTuple):
    """A recipe as a user names it."""

    request: Fields
    spec: Fields | None = None
    """The spec that names it, if one does."""
    found: Fields | None = None
    """The same with the place of the model that it names (`with_model`)."""


def named_recipe(source: str) -> NamedRecipe:
    """The recipe at `source`: a file or a URI; of a file that is a spec, the recipe that it names.

    Raises:
        RecipeFileError: the file cannot be read.
    """
    if not is_local(source):
        return NamedRecipe({"base": source})
    try:
        text = Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise RecipeFileError(source, os_reason(error)) from error
    except UnicodeDecodeError as error:
        raise RecipeFileError(source, "it is not UTF-8 text") from error
    spec = _as_spec(text)
    if spec is None:
        return NamedRecipe({"base": source})
    recipe = recipe_beside(spec["recipe"], Path(source).parent)
    # What is neither is refused with all other problems of the spec.
    return NamedRecipe(dict(recipe) if isinstance(recipe, Mapping) else {"file": recipe}, dict(spec))


def with_model(named: NamedRecipe, session: Callable[[], AnySession]) -> NamedRecipe:
    """The recipe with the place of the model that its spec names, which a plan of the spec gives to it, too.

    The model of an earlier run stays open: no stack is asked. The session is opened only for a model of a hub.

    Raises:
        SpecError: there is no such model; with the other problems of the spec.
        ClientError: AWS cannot be reached or refuses.
    """
    if named.spec is None:
        return named
    from muster.client.launch.expanded_spec import with_named_model  # noqa: PLC0415

    return named._replace(found=dict(with_named_model({**named.spec, "recipe": named.request}, session)))


def _as_spec(text: str) -> Mapping[Any, Any] | None:
    """The spec in this text; None where the text is a recipe, or cannot be read as a spec."""
    if "recipe" not in text:
        return None
    from muster.contract.spec.spec_reader import load_spec_text  # noqa: PLC0415

    with suppress(SpecError):
        document = load_spec_text(text)
        return document if "recipe" in document else None
    return None


def with_override(recipe: Fields, path: str, value: object) -> Fields:
    """`recipe` with an override that replaces one that it has for the same path, however that one is written."""
    return {**recipe, "overrides": _set(recipe.get("overrides") or {}, path, value)}


def _set(overrides: Mapping[str, Any], path: str, value: object) -> Fields:
    first, _, rest = path.partition(".")
    if path not in overrides and rest and isinstance(overrides.get(first), Mapping):
        return {**overrides, first: _set(overrides[first], rest, value)}
    return {**overrides, path: value}
