"""What is known of a recipe before it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.contract.document import Document
from muster.contract.spec.open_spec import OpenRecipes


def _form() -> type[Document]:
    from muster.options.recipes.contract.recipe_request import RecipeRequest  # noqa: PLC0415

    return RecipeRequest


def _check(document: Mapping[Any, Any]) -> None:
    from muster.options.recipes.contract.recipe_request import check_elsewhere  # noqa: PLC0415

    check_elsewhere(document)


OFFER = OpenRecipes(_form, _check)
