"""A resolved recipe: its values, and where each came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from muster.contract.document import digest
from muster.contract.spec.recipe_reference import Origin
from muster.options.recipes.contract.recipe_text import LITERAL, recipe_yaml

Path = tuple[str | int, ...]
"""A place in a recipe: keys, and indices of lists."""


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe without placeholders and interpolations.

    Args:
        document: the values, as JSON has them.
        origins: of every leaf (a scalar, an empty mapping or a list) by its path.
        named: the path of each name of the override specification that the recipe has.
    """

    document: dict[str, JsonValue]
    origins: Mapping[Path, Origin]
    named: Mapping[str, Path]

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of the values, which are what the replicas get."""
        return digest(self.document)

    def to_yaml(self) -> str:
        """The YAML that replicas get. Only a resolved recipe is marked as LITERAL: it resolves to itself."""
        text = recipe_yaml(self.document)
        return f"{LITERAL}{text}" if "${" in text or "{{" in text else text
