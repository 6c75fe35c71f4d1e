"""A recipe before it is resolved: its base with the placeholders, and what its values may be. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import Field, JsonValue

from muster.contract.document import Document
from muster.contract.errors import RecipeError
from muster.contract.spec.recipe_reference import Origin
from muster.options.recipes.client.recipe_values import path_text
from muster.options.recipes.contract.document_values import leaves
from muster.options.recipes.contract.override_spec import Parameter
from muster.options.recipes.contract.recipe_problems import Problems
from muster.options.recipes.contract.recipe_sources import RecipeSources, SourceText
from muster.options.recipes.contract.resolution import load_source, parameters_of, placeholders_of


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


def template_of(sources: RecipeSources) -> RecipeTemplate:
    """The template that a recipe starts from.

    Raises:
        RecipeError: the base or the override specification cannot be read.
    """
    problems = Problems()
    base = sources.base or sources.recipe or SourceText(place=sources.name, text="{}")
    document = load_source(base, Origin.BASE, problems)
    if problems.found:
        raise RecipeError(problems.found)
    parameters = parameters_of(sources).values()
    entries = json.loads(sources.override_spec.text) if sources.override_spec is not None else {}
    return RecipeTemplate(
        name=sources.name,
        place=base.place,
        text=base.text,
        paths=tuple(path_text(path) for path, _ in leaves(document)),
        placeholders=tuple(placeholders_of(sources)),
        specification=tuple(_specified(one, entries) for one in parameters),
    )


def _specified(parameter: Parameter, entries: Mapping[str, JsonValue]) -> SpecifiedValue:
    entry = entries.get(parameter.name)
    words = entry.get("description") if isinstance(entry, dict) else None
    return SpecifiedValue(
        name=parameter.name,
        type=parameter.type or None,
        required=parameter.required,
        default=parameter.default,
        min=parameter.least,
        max=parameter.most,
        enum=parameter.choices or (),
        description=words if isinstance(words, str) else "",
    )
