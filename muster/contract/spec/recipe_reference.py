"""What a spec keeps of its recipe once it is resolved: which one, and where the replicas find it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from muster.contract.document import Document, StoredPart

RECIPES = "recipes/"
"""Resolved recipes are stored under this prefix of the stack's bucket, by digest."""
RECIPE_CHANNEL = "recipe"
RECIPE_FILE = "recipe.yaml"

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Family = Literal["nova", "llmft", "evaluation", "general", "trainer"]
OWN_PROGRAM: frozenset[Family] = frozenset({"nova", "llmft", "evaluation"})
"""The families whose image has the program that reads the recipe; the others bring theirs."""


class Origin(StrEnum):
    """Which source a value of a recipe came from, from the weakest to the strongest."""

    BASE = "base"
    DEFAULT = "default"  # of the override specification, in place of a placeholder
    SPEC = "spec"  # its other fields: the channels, the model, the instances, MLflow
    INPUT = "inputs"
    FILE = "file"
    OVERRIDE = "overrides"
    VALUE = "values"


class RunRecipe(StoredPart):
    """Which recipe a run has, as its result, its status and its events say."""

    name: str = Field(description="what people call it")
    family: str = Field(description="what runs it: `nova`, `llmft`, `evaluation`, `general` or `trainer`")
    digest: str = Field(
        description="of the resolved recipe, which is in the stack's bucket: `recipes/{digest}/recipe.yaml`; with "
        "`sweep` of those of all ranks"
    )


class RecipeReference(Document):
    """A resolved recipe. The document itself is in the bucket: `recipes/{digest}/recipe.yaml`."""

    name: str = Field(max_length=256, description="what people call the recipe")
    family: Family = Field(description="what runs it")
    digest: Digest = Field(description="of the resolved recipe, and with `sweep` of those of all ranks")
    ranks: list[Digest] | None = Field(default=None, description="with `sweep`: the digest of each rank's recipe")
    kwargs: Annotated[str | None, Field(max_length=256)] = Field(
        default=None, description="with `trainer`: the recipe's section that is merged under `kwargs`"
    )

    @property
    def brings_program(self) -> bool:
        """Whether the recipe's image runs a program of its own."""
        return self.family in OWN_PROGRAM

    @property
    def shown(self) -> RunRecipe:
        """What documents about the run say of it."""
        return RunRecipe(name=self.name, family=self.family, digest=self.digest)

    def of_rank(self, rank: int) -> str:
        """The digest of the recipe that `rank` reads."""
        return self.digest if self.ranks is None else self.ranks[rank]


def recipe_folder(digest: str) -> str:
    """The prefix, in the stack's bucket, of the resolved recipe with this digest: the channel's prefix."""
    return f"{RECIPES}{digest}/"


def recipe_key(digest: str) -> str:
    """The key of the resolved recipe with this digest in the stack's bucket."""
    return f"{recipe_folder(digest)}{RECIPE_FILE}"
