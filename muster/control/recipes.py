"""What a spec only names, as a plan needs it: the model, looked up; the recipe, resolved, and stored for the replicas.

Imported for such specs alone: the resolver and YAML would add to every cold start of the function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.contract.document import digest
from muster.contract.errors import DocumentError, OversizedDocumentError, SpecError, StatedProblem
from muster.contract.recipe.expansion import Expansion, expanded_again, expansion
from muster.contract.recipe.gathering import gather
from muster.contract.recipe.model_resolution import EarlierRun, with_found_model
from muster.contract.recipe.recipe_reader import RecipeReader
from muster.contract.recipe.recipe_reference import RECIPE_FILE, RecipeReference, recipe_folder, sources_key
from muster.contract.recipe.recipe_sources import RecipeSources
from muster.contract.recipe.recipe_text import TEXT_MAX, load_recipe_text
from muster.contract.recipe.unresolved import reference_of, requested_recipe, with_problems_beside
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.stack_defaults import StackDefaults
from muster.control.aws.store import Store
from muster.control.documents import RunDocuments
from muster.control.replica_package import keep

SOURCES_BYTES_MAX = 8 * 1024 * 1024
"""Of the sources of one recipe: three texts of a mebibyte each, with the escapes of JSON, and the values of a spec."""
_AGAIN = "launch the run again from its spec"


@dataclass(frozen=True)
class PreparedSpec:
    """An ordinary spec, and the objects that its recipe needs in the bucket, if it has one."""

    document: dict[str, Any]
    objects: Mapping[str, bytes] = field(default_factory=dict)

    def store(self, store: Store) -> None:
        """Store the sources and what the replicas read, so that both exist for as long as the run. Idempotent.

        Raises:
            ConflictError: others kept replacing one of them.
        """
        for key, body in self.objects.items():
            _keep(store, key, body)


def prepared_spec(
    store: Store, given: Mapping[Any, Any], reader: RecipeReader, defaults: StackDefaults
) -> PreparedSpec:
    """The ordinary spec of one that names a model or a recipe.

    A recipe was resolved by a client, and is again here; or the spec only names it, and it is read with `reader`. The
    model of an earlier run is looked up here in any case: it decides what the replicas may read. A continuation with
    the spec of its run keeps what the plan of its run has found.

    Raises:
        SpecError: with every problem; nothing was written.
    """
    if (continued := _as_planned(store, given, defaults)) is not None:
        return continued
    try:
        document = with_found_model(given, lambda name: _earlier_run(store, name), reader)
        request = requested_recipe(document)
        sources = None if request is None else gather(request, reader)
    except SpecError as error:
        raise with_problems_beside(error, given) from None
    if sources is not None:
        return _with_objects(expansion(document, sources), sources)
    reference = reference_of(document)
    if reference is None:
        return PreparedSpec(document)
    sources = _stored_sources(store, reference.sources)
    return _with_objects(expanded_again(given, document, sources), sources)


def _with_objects(found: Expansion, sources: RecipeSources) -> PreparedSpec:
    recipes = {_recipe_key(one.digest): one.to_yaml().encode() for one in found.recipes}
    return PreparedSpec(found.document, {sources_key(found.reference.sources): sources.to_json(), **recipes})


def _as_planned(store: Store, given: Mapping[Any, Any], defaults: StackDefaults) -> PreparedSpec | None:
    """A continuation with the spec of its run: another version of Muster, deployed since, may resolve it differently.

    None for any other spec, and where a recipe is no longer stored as it was.
    """
    if given.get("resume_from") is None or _names_recipe(given):
        return None
    try:
        spec = parse_spec(given)
        plan = RunDocuments(store, str(spec.resume_from)).plan()
        if plan is None or not _is_same(plan.spec, spec, defaults):
            return None
    except SpecError:
        return None  # the rest of the plan says what is wrong
    found = {} if spec.recipe is None else _stored_recipe(store, spec.recipe)
    return None if found is None else PreparedSpec(dict(given), found)


def _names_recipe(given: Mapping[Any, Any]) -> bool:
    """Whether a spec only names its recipe."""
    return given.get("recipe") is not None and reference_of(given) is None


def _is_same(planned: Spec, spec: Spec, defaults: StackDefaults) -> bool:
    """Whether a spec is that of a plan: written out, as the rerun policy has it, or as a user wrote it."""
    own = {"name": None, "resume_from": None}
    wanted = planned.model_copy(update=own)
    return any(one.resolved().model_copy(update=own) == wanted for one in (spec, defaults.complete(spec)))


def _stored_recipe(store: Store, reference: RecipeReference) -> dict[str, bytes] | None:
    """The objects of a recipe that was planned before; None where one is gone, or is not what its digest says."""
    found: dict[str, bytes] = {}
    try:
        for wanted in dict.fromkeys(reference.ranks or [reference.digest]):
            body = store.read_bounded(_recipe_key(wanted), TEXT_MAX)
            if body is None or digest(load_recipe_text(body.decode())) != wanted:
                return None
            found[_recipe_key(wanted)] = body
        body = store.read_bounded(sources_key(reference.sources), SOURCES_BYTES_MAX)
    except (OversizedDocumentError, ValueError):
        return None
    if body is not None and hashlib.sha256(body).hexdigest() == reference.sources:
        found[sources_key(reference.sources)] = body
    return found


def _recipe_key(wanted: str) -> str:
    return f"{recipe_folder(wanted)}{RECIPE_FILE}"


def _earlier_run(store: Store, name: str) -> EarlierRun | None:
    documents = RunDocuments(store, name)
    plan = documents.plan()
    return None if plan is None else EarlierRun(plan, documents.result())


def _stored_sources(store: Store, wanted: str) -> RecipeSources:
    """The sources that a client has stored.

    Raises:
        SpecError: they are not there, or are no longer those.
    """
    key = sources_key(wanted)
    uri = store.uri(key)
    try:
        body = store.read_bounded(key, SOURCES_BYTES_MAX)
        if body is None:
            raise SpecError([StatedProblem("recipe.sources", f"{uri} does not exist", _AGAIN)])
        if hashlib.sha256(body).hexdigest() != wanted:
            statement = f"{uri} was changed after it was stored"
            raise SpecError([StatedProblem("recipe.sources", statement, _AGAIN)])
        return RecipeSources.from_json(body, uri)
    except DocumentError as error:
        # Trying again would not help: this version of Muster never reads them.
        raise SpecError([StatedProblem("recipe.sources", str(error), _AGAIN)]) from None


def _keep(store: Store, key: str, body: bytes) -> None:
    """Let an object that its key describes exist with these bytes for as long as a run can need it."""
    for _ in store.attempts(store.uri(key)):
        if not keep(store, key, lambda: body):
            # If this fails, another plan has just stored it.
            store.create(key, body, "application/octet-stream")
        found = store.get(key)
        if found is not None and found.body == body:
            return
        if found is not None:
            # What a container reads must be what was checked. Another writer has been first.
            store.replace(key, body, found.etag, "application/octet-stream")
