"""From a spec with a recipe to the ordinary spec that is checked, planned and launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster.client.checks.source_check import check_source, read_checked
from muster.contract.errors import SpecError

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud
    from muster.client.aws.light_session import AnySession
    from muster.contract.spec.spec import Spec
    from muster.options.recipes.contract.recipe_sources import RecipeSources
    from muster.options.recipes.contract.resolved_recipe import ResolvedRecipe


@dataclass(frozen=True)
class ExpandedSpec:
    """An ordinary spec, and the recipe that it came from, if any."""

    spec: Spec
    sources: RecipeSources | None = None
    recipes: tuple[ResolvedRecipe, ...] = ()
    """One, or with `sweep` one for each rank."""


def expanded_spec(
    document: Mapping[Any, object], session: Callable[[], AnySession], cloud: Cloud | None = None
) -> ExpandedSpec:
    """The spec in a parsed document, whose source has not been checked yet.

    The session is opened only for a recipe that is in S3 or in a hub, or for a model there. The model of an earlier run
    is looked up in `cloud`; without one its place stays open.

    Raises:
        SpecError: the spec has problems; those of its recipe and of its source are listed with them.
        ClientError: AWS cannot be reached or refuses.
    """
    if document.get("model") is not None:
        document = _with_model(document, session, cloud)
    if document.get("recipe") is None:
        return ExpandedSpec(read_checked(document))
    # Most specs name no recipe, and these modules take longer to import than a spec takes to be read.
    from muster.client.aws.client_reader import ClientReader, private_hub  # noqa: PLC0415
    from muster.options.recipes.contract.expansion import expansion  # noqa: PLC0415
    from muster.options.recipes.contract.gathering import gather  # noqa: PLC0415
    from muster.options.recipes.contract.unresolved import requested_recipe, with_problems_beside  # noqa: PLC0415

    try:
        request = requested_recipe(document)
        if request is None:
            return ExpandedSpec(read_checked(document))
        try:
            sources = gather(request, ClientReader(session), private_hub())
        except SpecError as error:
            raise with_problems_beside(error, document) from None
        found = expansion(document, sources)
    except SpecError as error:
        raise _with_those_of_the_source(error, document) from None
    return ExpandedSpec(read_checked(found.document), sources, found.recipes)


def _with_model(
    document: Mapping[Any, object], session: Callable[[], AnySession], cloud: Cloud | None
) -> Mapping[Any, object]:
    """The spec with the place of the model that it names.

    Raises:
        SpecError: there is no such model; with the other problems of the spec.
    """
    from muster.client.aws.client_reader import ClientReader, private_hub  # noqa: PLC0415
    from muster.client.runs.earlier_runs import earlier_runs  # noqa: PLC0415
    from muster.options.recipes.contract.model_resolution import with_found_model  # noqa: PLC0415
    from muster.options.recipes.contract.unresolved import with_problems_beside  # noqa: PLC0415

    runs = None if cloud is None else earlier_runs(cloud)
    try:
        return with_found_model(document, runs, ClientReader(session), private_hub())
    except SpecError as error:
        raise with_problems_beside(error, document) from None


def _with_those_of_the_source(error: SpecError, document: Mapping[Any, Any]) -> SpecError:
    if error.more:
        return error
    # Which arguments the recipe would have brought is not known, so no argument is missing.
    others = (one for one in check_source(document).problems if not one.field.startswith("kwargs."))
    return SpecError([*others, *error.problems])
