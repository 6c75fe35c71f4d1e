"""The values of a resolved recipe, each with the source that it came from, and how two recipes differ. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field, JsonValue

from muster.contract.document import Document
from muster.contract.spec.recipe_reference import Family
from muster.options.recipes.contract.document_values import leaves
from muster.options.recipes.contract.recipe_sources import RecipeSources
from muster.options.recipes.contract.resolved_recipe import Origin, Path, ResolvedRecipe

if TYPE_CHECKING:
    from muster.options.recipes.client.expanded_spec import ExpandedSpec

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


class RecipeDifference(Document):
    """A value that two recipes do not share."""

    path: str
    change: Literal["added", "removed", "changed"] = Field(description="from the first recipe to the second one")
    a: JsonValue = Field(description="the value in the first recipe; null where it has none")
    b: JsonValue = Field(description="the value in the second recipe; null where it has none")


class PlannedRecipe(Document):
    """The recipe of a spec, resolved."""

    name: str = Field(description="what people call the recipe")
    family: Family = Field(description="what runs it")
    digest: str = Field(description="of its values, and with `sweep` of those of all ranks")
    sources: tuple[RecipeSource, ...] = Field(
        description="from the weakest to the strongest; with `sweep` those of rank 0"
    )


def planned_recipe(expanded: ExpandedSpec) -> PlannedRecipe | None:
    """The recipe that a spec was expanded from, if any."""
    reference = expanded.spec.recipe
    if reference is None or expanded.sources is None:
        return None
    sources = tuple(recipe_sources(expanded.recipes[0], expanded.sources))
    return PlannedRecipe(name=reference.name, family=reference.family, digest=reference.digest, sources=sources)


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
        if change != "changed" or not _same(one, other):
            found.append(RecipeDifference(path=path_text(path), change=change, a=one, b=other))
    return found


def _same(a: JsonValue, b: JsonValue) -> bool:
    """Whether two values are written alike: Python alone holds 1, 1.0 and true for the same."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return a == b
