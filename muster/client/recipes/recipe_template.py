"""A recipe before it is resolved: its base with the placeholders, and what its values may be. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic import Field, JsonValue

from muster.contract.document import Document

_PLACEHOLDER = re.compile(r"\{\{\s*['\"]?([^{}'\"\n]{1,256}?)['\"]?\s*\}\}")


class SpecifiedValue(Document):
    """What an override specification says about a value."""

    name: str
    type: str | None = Field(description="such as `float`, `integer`, `string`; null: any")
    required: bool = Field(description="whether it must have a value")
    default: JsonValue = Field(description="null: none")
    min: JsonValue = Field(description="null: any")
    max: JsonValue = Field(description="null: any")
    enum: tuple[JsonValue, ...] = Field(description="the only values that it may have; empty: any")
    description: str


class RecipeTemplate(Document):
    """A recipe before it is resolved."""

    name: str = Field(description="what people call the recipe")
    place: str = Field(description="where its base was read")
    text: str = Field(description="the base, with its placeholders")
    paths: tuple[str, ...] = Field(description="those of the base's values")
    placeholders: tuple[str, ...] = Field(description="their names, in the base's order")
    specification: tuple[SpecifiedValue, ...] = Field(description="the override specification, in its order")


def placeholder_names(text: str) -> Iterator[str]:
    """The names of the placeholders in a text, each once."""
    return iter(dict.fromkeys(_PLACEHOLDER.findall(text)))
