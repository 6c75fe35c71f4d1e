"""How two recipes differ, value by value. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, JsonValue

from muster.client.recipes.recipe_values import leaves, path_text, value_at
from muster.contract.document import Document
from muster.contract.recipe.resolved_recipe import Path


class RecipeDifference(Document):
    """A value that two recipes do not share."""

    path: str
    change: Literal["added", "removed", "changed"] = Field(description="from the first recipe to the second one")
    a: JsonValue = Field(description="the value in the first recipe; null where it has none")
    b: JsonValue = Field(description="the value in the second recipe; null where it has none")


def recipe_differences(a: JsonValue, b: JsonValue) -> list[RecipeDifference]:
    """What was added, removed and changed from `a` to `b`, in the order of `a`, and then what only `b` has.

    Lists are values. 1, 1.0 and true are three values, as in YAML.
    """
    paths = {path: None for document in (a, b) for path in leaves(document)}
    return list(_differences(a, b, paths))


def _differences(a: JsonValue, b: JsonValue, paths: dict[Path, None]) -> Iterator[RecipeDifference]:
    before, after = set(leaves(a)), set(leaves(b))
    for path in paths:
        text = path_text(path)
        if path not in after:
            yield RecipeDifference(path=text, change="removed", a=value_at(a, path), b=None)
        elif path not in before:
            yield RecipeDifference(path=text, change="added", a=None, b=value_at(b, path))
        elif not same_value(one := value_at(a, path), other := value_at(b, path)):
            yield RecipeDifference(path=text, change="changed", a=one, b=other)


def same_value(a: JsonValue, b: JsonValue) -> bool:
    """Whether two values are written alike: Python alone holds 1, 1.0 and true for the same."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    return a == b
