"""The recipe of a run, as its status shows it."""

from __future__ import annotations

from pydantic import Field, JsonValue, ValidationError

from muster.contract.document import Document
from muster.contract.layout import s3_uri
from muster.contract.recipe.recipe_reference import RECIPE_FILE, Family, RecipeReference, recipe_folder

_SHOWN = 12  # hexadecimal digits of a digest


class RunRecipe(Document):
    """The recipe that a run started from."""

    name: str = Field(description="what people call the recipe")
    family: Family = Field(description="what runs it")
    digest: str = Field(description="of its values, and with `sweep` of those of all ranks")
    uri: str = Field(description="the resolved recipe, s3://…; with `sweep` that of rank 0")

    @property
    def words(self) -> str:
        """The name, the family and the beginning of the digest."""
        return f"{self.name} (family {self.family}), digest {self.digest[:_SHOWN]}"


def run_recipe(found: JsonValue, bucket: str) -> RunRecipe | None:
    """The recipe in the input of an execution; None where it has none, or names one that its plan resolves."""
    try:
        reference = RecipeReference.model_validate(found)
    except ValidationError:
        return None
    key = f"{recipe_folder(reference.of_rank(0))}{RECIPE_FILE}"
    return RunRecipe(name=reference.name, family=reference.family, digest=reference.digest, uri=s3_uri(bucket, key))
