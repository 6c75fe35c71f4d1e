"""Everything that a resolution reads, as it was found."""

from __future__ import annotations

from pydantic import Field, JsonValue

from muster.contract.document import Document


class SourceText(Document):
    """A document as it was read, and where."""

    place: str = Field(description="the file's path as the user wrote it, or its URI")
    text: str


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
