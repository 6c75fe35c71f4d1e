"""What a spec names as its recipe or as the model of a hub, read with the rights of the function plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from muster.contract.document import digest
from muster.contract.errors import OversizedDocumentError, SpecError, StatedProblem
from muster.contract.spec.open_spec import is_reference, with_problems_beside
from muster.contract.spec.recipe_reference import RecipeReference, recipe_key
from muster.contract.spec.spec_reader import spec_problems
from muster.contract.training.model_source import ModelSource
from muster.control.aws.store import DocumentStore
from muster.control.spec_source import PreparedSpec, Reading, SpecSource
from muster.options.recipes.contract.recipe_request import read_request
from muster.options.recipes.contract.recipe_text import TEXT_MAX, load_recipe_text
from muster.options.recipes.control.function_reader import FunctionReader


def _recipe(document: Mapping[Any, Any], reading: Reading) -> PreparedSpec:
    try:
        if is_reference(document["recipe"]):
            return PreparedSpec(dict(document), _stored_recipes(reading.store, _reference_of(document)))
        from muster.options.recipes.contract.gathering import gather  # noqa: PLC0415

        sources = gather(read_request(document["recipe"]), _reader(reading))
    except SpecError as error:
        raise with_problems_beside(error, document) from None
    # With OmegaConf, which few plans need.
    from muster.options.recipes.contract.expansion import expansion  # noqa: PLC0415

    found = expansion(document, sources)
    return PreparedSpec(found.document, {recipe_key(one.digest): one.to_yaml().encode() for one in found.recipes})


def _hub_model(source: ModelSource, reading: Reading) -> ModelSource:
    from muster.options.recipes.contract.hub_collection import hub_model  # noqa: PLC0415

    return hub_model(source, _reader(reading))


def _reader(reading: Reading) -> FunctionReader:
    return FunctionReader(reading.clients, reading.account, reading.store.bucket)


def _reference_of(document: Mapping[Any, Any]) -> RecipeReference:
    """What a spec that is resolved says of its recipe.

    Raises:
        SpecError: it is damaged; with all problems of the spec.
    """
    try:
        return RecipeReference.model_validate(document["recipe"])
    except ValidationError:
        raise SpecError(spec_problems(document)) from None


def _stored_recipes(store: DocumentStore, reference: RecipeReference) -> dict[str, bytes]:
    """The resolved recipes that a client, or an earlier plan, has stored.

    Raises:
        SpecError: one is not there, or is not what its digest says.
    """
    found: dict[str, bytes] = {}
    for wanted in dict.fromkeys(reference.ranks or [reference.digest]):
        key = recipe_key(wanted)
        try:
            body = store.read_bounded(key, TEXT_MAX)
            changed = body is not None and digest(load_recipe_text(body.decode())) != wanted
        except (OversizedDocumentError, ValueError):
            body, changed = b"", True
        if body is None or changed:
            words = "was changed after it was stored" if changed else "does not exist"
            remedy = "launch the run again from its spec"
            raise SpecError([StatedProblem("recipe", f"{store.uri(key)} {words}", remedy)])
        found[key] = body
    return found


OFFER = SpecSource(_recipe, _hub_model)
