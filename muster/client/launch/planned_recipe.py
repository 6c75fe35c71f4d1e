"""The recipe of a spec as `muster plan` shows it: what it was resolved from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import Field

from muster.contract.document import Document
from muster.contract.spec.recipe_reference import Family, Origin
from muster.contract.text import columns

DIGEST_SHOWN = 12
"""Hexadecimal digits of a digest, as people compare it."""


class RecipeSource(Document):
    """A source of a recipe."""

    origin: Origin
    place: str = Field(description="the file or URI; of a value that was given directly, how it was given")
    values: int = Field(description="how many of the recipe's values came from it")


class PlannedRecipe(Document):
    """The recipe of a spec, resolved."""

    name: str = Field(description="what people call the recipe")
    family: Family = Field(description="what runs it")
    digest: str = Field(description="of its values, and with `sweep` of those of all ranks")
    sources: tuple[RecipeSource, ...] = Field(
        description="from the weakest to the strongest; with `sweep` those of rank 0"
    )


def source_lines(sources: Sequence[RecipeSource]) -> Iterator[str]:
    """A line for each source: how many values came from it, and where it is."""
    # A place may be longer than the terminal: it is the only part that can be, so it stands last.
    places = ("" if source.place == source.origin else source.place for source in sources)
    rows = [(one.origin, f"{one.values:,}", place) for one, place in zip(sources, places, strict=True)]
    yield from (f"  {line}" for line in columns(rows, right=(1,)))
