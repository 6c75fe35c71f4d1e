"""A recipe before and after its resolution: what is read for it, and its values with where each came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field, JsonValue

from muster.contract.document import Document, digest
from muster.contract.spec.recipe_reference import Origin
from muster.options.recipes.contract.recipe_text import LITERAL, recipe_yaml

Path = tuple[str | int, ...]
"""A place in a recipe: keys, and indices of lists."""


class SourceText(Document):
    """A document as it was read, and where."""

    place: str = Field(description="the file's path as the user wrote it, or its URI")
    text: str


@dataclass(frozen=True)
class ReadDocument:
    """The mapping in one text of a recipe."""

    source: SourceText
    origin: Origin
    values: dict[str, JsonValue]

    @property
    def is_literal(self) -> bool:
        """Whether nothing in it is a placeholder or an interpolation."""
        return self.source.text.startswith(LITERAL)


class RecipeSources(Document):
    """The texts and values of a recipe."""

    name: str = Field(description="what people call the recipe: its file's name, or its name in the hub")
    base: SourceText | None = Field(default=None, description="None: `recipe` is the base")
    override_spec: SourceText | None = Field(default=None, description="JSON: what each placeholder may be")
    recipe: SourceText | None = Field(default=None, description="the user's recipe")
    overrides: dict[str, JsonValue] = Field(default_factory=dict)
    values: dict[str, JsonValue] = Field(default_factory=dict)
    inputs: dict[str, JsonValue] = Field(default_factory=dict)
    hub_model: str | None = Field(default=None, description="the model of the hub that the base is for")
    sequence_length: int | None = Field(default=None, description="the longest sequence of the hub's recipe, in tokens")
    image: str | None = Field(default=None, description="the image that the hub names for the recipe")
    weights: str | None = Field(default=None, description="the prefix of the base model's weights, of the hub")


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe without placeholders and interpolations.

    Args:
        document: the values, as JSON has them.
        origins: of every leaf (a scalar, an empty mapping or a list) by its path.
        named: the paths of each name of the override specification that the recipe has.
    """

    document: dict[str, JsonValue]
    origins: Mapping[Path, Origin]
    named: Mapping[str, tuple[Path, ...]]

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of the values, which are what the replicas get."""
        return digest(self.document)

    def to_yaml(self) -> str:
        """The YAML that replicas get. Only a resolved recipe is marked as LITERAL: it resolves to itself."""
        text = recipe_yaml(self.document)
        return f"{LITERAL}{text}" if "${" in text or "{{" in text else text
