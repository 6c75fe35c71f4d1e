"""From a spec that may name a recipe or a model to the ordinary spec that is checked, planned and launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.client.checks.source_check import read_checked
from muster.contract.errors import SpecError
from muster.options import offers

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud
    from muster.client.aws.light_session import AnySession
    from muster.client.launch.planned_recipe import PlannedRecipe
    from muster.contract.spec.spec import Spec
    from muster.contract.training.model_source import ModelSource


@dataclass(frozen=True)
class ExpandedSpec:
    """An ordinary spec, the recipe that it came from, if any, and the objects that its replicas read."""

    spec: Spec
    recipe: PlannedRecipe | None = None
    objects: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    """By their keys in the stack's bucket, which follow from the content."""


@dataclass(frozen=True)
class SpecSource:
    """How an option finds what a spec only names: its `OFFER` for the seam `client.spec_source`.

    AWS is asked with the session of the user, which is opened only where it is needed. What cannot be found is a
    SpecError with all problems.
    """

    recipe: Callable[[Mapping[Any, object], Callable[[], AnySession]], ExpandedSpec]
    """The ordinary spec of one with a `recipe` that is not resolved yet."""
    hub_model: Callable[[ModelSource, Callable[[], AnySession]], ModelSource]
    """The source, which names a model of a hub, with its place."""
    beside: Callable[[object, Path], object]
    """The `recipe` of a spec in a folder: its relative paths are those of files beside the spec."""


def with_files_beside(document: dict[Any, object], folder: Path) -> dict[Any, object]:
    """A spec in `folder`: the relative paths of its recipe are those of files beside the spec."""
    if "recipe" in document and (source := _source()) is not None:
        return {**document, "recipe": source.beside(document["recipe"], folder)}
    return document


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
    document = with_named_model(document, session, cloud)
    recipe = document.get("recipe")
    if recipe is None:
        return ExpandedSpec(read_checked(document))
    # Most specs name no recipe, and these modules take longer to import than a spec takes to be read.
    from muster.contract.spec.open_spec import is_reference, refuse_unread  # noqa: PLC0415

    if is_reference(recipe):
        return ExpandedSpec(read_checked(document))
    source = _source()
    if source is None:
        refuse_unread("recipe", document)
    return source.recipe(document, session)


def with_named_model(
    document: Mapping[Any, object], session: Callable[[], AnySession], cloud: Cloud | None = None
) -> Mapping[Any, object]:
    """The spec with the place of the model that it names, if any; session and `cloud` as for `expanded_spec`.

    Raises:
        SpecError: there is no such model; with the other problems of the spec.
        ClientError: AWS cannot be reached or refuses.
    """
    if document.get("model") is None:
        return document
    from muster.client.runs.observer import earlier_runs  # noqa: PLC0415
    from muster.contract.run.model_lookup import with_found_model  # noqa: PLC0415
    from muster.contract.spec.open_spec import refuse_unread, with_problems_beside  # noqa: PLC0415

    def of_hub(model: ModelSource) -> ModelSource:
        source = _source()
        if source is None:
            refuse_unread("model.hub", document)
        return source.hub_model(model, session)

    try:
        return with_found_model(document, None if cloud is None else earlier_runs(cloud), of_hub)
    except SpecError as error:
        raise with_problems_beside(error, document) from None


def _source() -> SpecSource | None:
    return next(offers("client.spec_source", SpecSource), None)
