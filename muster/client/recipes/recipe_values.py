"""The values of a resolved recipe, each with the source that it came from. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import Field, JsonValue

from muster.contract.document import Document
from muster.contract.recipe.recipe_sources import RecipeSources
from muster.contract.recipe.resolved_recipe import Origin, Path, ResolvedRecipe

DIGEST_SHOWN = 12
"""Hexadecimal digits of a digest, as people compare it."""
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class RecipeValue(Document):
    """A value of a resolved recipe."""

    path: str = Field(description="its place in the recipe; lists are values")
    value: JsonValue
    origin: Origin = Field(description="the source that it came from")


class RecipeSource(Document):
    """A source of a recipe."""

    origin: Origin
    place: str = Field(description="the file or URI; of a value that was given directly, how it was given")
    values: int = Field(description="how many of the recipe's values came from it")


def source_lines(sources: Sequence[RecipeSource]) -> Iterator[str]:
    """A line for each source: how many values came from it, and where it is."""
    counts = [f"{source.values:,}" for source in sources]
    names = max((len(source.origin) for source in sources), default=0)
    figures = max(map(len, counts), default=0)
    for source, count in zip(sources, counts, strict=True):
        # A place may be longer than the terminal: it is the only part that can be, so it stands last.
        place = "" if source.place == source.origin else f"  {source.place}"
        yield f"  {source.origin:<{names}}  {count:>{figures}}{place}"


def path_text(path: Path) -> str:
    """`training_config.lr`; a key that is not made of letters, digits, - and _ stands in quotes."""
    return ".".join(str(part) if isinstance(part, int) else _key(part) for part in path)


def _key(key: str) -> str:
    return key if key and _BARE.issuperset(key) else '"' + key.replace('"', '\\"') + '"'


def value_at(document: JsonValue, path: Path) -> JsonValue:
    """The value at a path of the document; KeyError, IndexError or TypeError where it has none."""
    for part in path:
        document = document[part]  # type: ignore[index]
    return document


def recipe_values(resolved: ResolvedRecipe) -> Iterator[RecipeValue]:
    """Every value with its source, in the recipe's order."""
    for path in leaves(resolved.document):
        value = value_at(resolved.document, path)
        yield RecipeValue(path=path_text(path), value=value, origin=resolved.origins[path])


def leaves(value: JsonValue, above: Path = ()) -> Iterator[Path]:
    """The path of every scalar, list and empty mapping, in the document's order."""
    if not isinstance(value, dict) or (not value and above):
        yield above
        return
    for key, item in value.items():
        yield from leaves(item, (*above, key))


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
        Origin.INPUT: "inputs",
        Origin.FILE: recipe or "",
        Origin.OVERRIDE: "overrides",
        Origin.VALUE: "values",
    }
    return [
        RecipeSource(origin=origin, place=places[origin], values=counts[origin]) for origin in Origin if counts[origin]
    ]
