"""What recipes there are: in a checkout of the public recipes, or of a model in a hub. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from muster.contract.document import Document


class CatalogEntry(Document):
    """One recipe, as far as its name and its own description say what it is; None where they do not."""

    name: str = Field(description="what `base:` takes, or the recipe's name in the hub")
    title: str | None = Field(default=None, description="its display name")
    family: str | None = Field(default=None, description="the family of models, such as llama")
    model: str | None = Field(default=None, description="the model that it trains")
    technique: str | None = Field(default=None, description="such as SFT, DPO, RLVR, Evaluation")
    training_type: Literal["LORA", "FULL"] | None = None
    sequence_length: str | None = Field(default=None, description="in tokens, such as 4K")
    instance_types: tuple[str, ...] = ()
    usable: bool = Field(default=True, description="false: it is for clusters only, and has no training job's form")


class RecipeCatalog(Document):
    """The recipes of one place, in its order."""

    place: str = Field(description="the checkout's folder, or the hub")
    recipes: tuple[CatalogEntry, ...]
    remarks: tuple[str, ...] = Field(default=(), description="what is left out, and why")
