"""What a spec names as its recipe or as the model of a hub, read with the rights of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.client.checks.source_check import check_source, read_checked
from muster.client.launch.expanded_spec import ExpandedSpec, SpecSource
from muster.contract.errors import SpecError
from muster.contract.spec.recipe_reference import recipe_key

if TYPE_CHECKING:
    from muster.client.aws.light_session import AnySession
    from muster.contract.training.model_source import ModelSource
    from muster.options.recipes.contract.resolved_recipe import ResolvedRecipe

# `muster plan FILE` asks where the recipe's files are before it reads one: what resolves recipes is imported later.


def _expanded(document: Mapping[Any, object], session: Callable[[], AnySession]) -> ExpandedSpec:
    from muster.client.launch.planned_recipe import PlannedRecipe  # noqa: PLC0415
    from muster.contract.spec.open_spec import with_problems_beside  # noqa: PLC0415
    from muster.options.recipes.client.client_reader import read_sources  # noqa: PLC0415
    from muster.options.recipes.client.recipe_values import recipe_sources  # noqa: PLC0415
    from muster.options.recipes.contract.expansion import expansion  # noqa: PLC0415

    try:
        try:
            sources = read_sources(document["recipe"], session)
        except SpecError as error:
            raise with_problems_beside(error, document) from None
        found = expansion(document, sources)
    except SpecError as error:
        raise _with_those_of_the_source(error, document) from None
    planned = PlannedRecipe(
        name=found.reference.name,
        family=found.reference.family,
        digest=found.reference.digest,
        sources=tuple(recipe_sources(found.recipes[0], sources)),
    )
    objects = {recipe_key(one.digest): partial(_body, one) for one in found.recipes}
    return ExpandedSpec(read_checked(found.document), planned, objects)


def _body(recipe: ResolvedRecipe) -> bytes:
    return recipe.to_yaml().encode()


def _with_those_of_the_source(error: SpecError, document: Mapping[Any, Any]) -> SpecError:
    if error.more:
        return error
    # Which arguments the recipe would have brought is not known, so no argument is missing.
    others = (one for one in check_source(document).problems if not one.field.startswith("kwargs."))
    return SpecError([*others, *error.problems])


def _hub_model(source: ModelSource, session: Callable[[], AnySession]) -> ModelSource:
    from muster.options.recipes.client.client_reader import ClientReader, private_hub  # noqa: PLC0415
    from muster.options.recipes.contract.hub_collection import hub_model  # noqa: PLC0415

    return hub_model(source, ClientReader(session), private_hub())


def _beside(recipe: object, folder: Path) -> object:
    from muster.options.recipes.client.recipe_places import recipe_beside  # noqa: PLC0415

    return recipe_beside(recipe, folder)


OFFER = SpecSource(_expanded, _hub_model, _beside)
