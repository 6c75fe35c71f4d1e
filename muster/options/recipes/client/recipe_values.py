"""What is said of a recipe: its template, its values with their sources, and how two differ. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, JsonValue

from muster.client.launch.planned_recipe import RecipeSource
from muster.contract.document import Document, digest
from muster.contract.spec.recipe_reference import Origin
from muster.options.recipes.contract.document_values import leaves
from muster.options.recipes.contract.override_spec import SpecifiedValue
from muster.options.recipes.contract.resolution import read_recipe
from muster.options.recipes.contract.resolved_recipe import Path, RecipeSources, ResolvedRecipe

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class RecipeTemplate(Document):
    """A recipe before it is resolved."""

    name: str = Field(description="what people call the recipe")
    place: str = Field(description="where its base was read")
    text: str = Field(description="the base, with its placeholders")
    paths: tuple[str, ...] = Field(description="those of the base's values")
    placeholders: tuple[str, ...] = Field(description="their names, in the base's order")
    specification: tuple[SpecifiedValue, ...] = Field(description="the override specification, in its order")


def template_of(sources: RecipeSources) -> RecipeTemplate:
    """The template that a recipe starts from.

    Raises:
        RecipeError: a text or the override specification cannot be read.
    """
    read = read_recipe(sources)
    return RecipeTemplate(
        name=sources.name,
        place=read.base.source.place,
        text=read.base.source.text,
        paths=tuple(path_text(path) for path, _ in leaves(read.base.values)),
        placeholders=read.placeholders,
        specification=tuple(read.parameters.values()),
    )


class RecipeValue(Document):
    """A value of a resolved recipe."""

    path: str = Field(description="its place in the recipe; lists are values")
    value: JsonValue
    origin: Origin = Field(description="the source that it came from")


class RecipeDifference(Document):
    """A value that two recipes do not share."""

    path: str
    change: Literal["added", "removed", "changed"] = Field(description="from the first recipe to the second one")
    a: JsonValue = Field(description="the value in the first recipe; null where it has none")
    b: JsonValue = Field(description="the value in the second recipe; null where it has none")


def path_text(path: Path) -> str:
    """`training_config.lr`; a key that is not made of letters, digits, - and _ stands in quotes."""
    return ".".join(str(part) if isinstance(part, int) else _key(part) for part in path)


def _key(key: str) -> str:
    return key if key and _BARE.issuperset(key) else '"' + key.replace('"', '\\"') + '"'


def recipe_values(resolved: ResolvedRecipe) -> Iterator[RecipeValue]:
    """Every value with its source, in the recipe's order."""
    for path, value in leaves(resolved.document):
        yield RecipeValue(path=path_text(path), value=value, origin=resolved.origins[path])


def recipe_sources(resolved: ResolvedRecipe, sources: RecipeSources) -> list[RecipeSource]:
    """The sources that the recipe has, from the weakest to the strongest, with how many values came from each."""
    counts = Counter(resolved.origins.values())
    base, specification, recipe = (
        None if text is None else text.place for text in (sources.base, sources.override_spec, sources.recipe)
    )
    places = {
        Origin.BASE: base or recipe or sources.name,
        Origin.DEFAULT: specification or "the override specification",
        Origin.SPEC: "the spec's other fields",
        Origin.FILE: recipe or "",
    }
    return [
        RecipeSource(origin=origin, place=places.get(origin, origin.value), values=counts[origin])
        for origin in Origin
        if counts[origin]
    ]


def recipe_differences(a: JsonValue, b: JsonValue) -> list[RecipeDifference]:
    """What was added, removed and changed from `a` to `b`, in the order of `a`, and then what only `b` has.

    Lists are values. 1, 1.0 and true are three values, as in YAML.
    """
    before, after = dict(leaves(a)), dict(leaves(b))
    found: list[RecipeDifference] = []
    for path in {**before, **after}:
        one, other = before.get(path), after.get(path)
        change: Literal["added", "removed", "changed"]
        change = "removed" if path not in after else "added" if path not in before else "changed"
        if change != "changed" or digest(one) != digest(other):
            found.append(RecipeDifference(path=path_text(path), change=change, a=one, b=other))
    return found
