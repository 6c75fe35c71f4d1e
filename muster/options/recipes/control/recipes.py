"""What a spec only names, as a plan needs it: the model, looked up; the recipe, resolved, and stored for the replicas.

Imported for such specs alone: the resolver and YAML would add to every cold start of the function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.contract.document import digest
from muster.contract.errors import OversizedDocumentError, SpecError, StatedProblem
from muster.contract.spec.recipe_reference import RecipeReference, recipe_key
from muster.control.aws.store import DocumentStore
from muster.control.documents import RunDocuments
from muster.control.replica_package import keep
from muster.options.recipes.contract.model_resolution import EarlierRun, with_found_model
from muster.options.recipes.contract.recipe_reader import RecipeReader
from muster.options.recipes.contract.recipe_text import TEXT_MAX, load_recipe_text
from muster.options.recipes.contract.unresolved import reference_of, requested_recipe, with_problems_beside


@dataclass(frozen=True)
class PreparedSpec:
    """An ordinary spec, and the recipes that its replicas read from the bucket, if it has one."""

    document: dict[str, Any]
    objects: Mapping[str, bytes] = field(default_factory=dict)

    def store(self, store: DocumentStore) -> None:
        """Store the recipes, so that they exist for as long as the run. Idempotent.

        Raises:
            ConflictError: others kept replacing one of them.
        """
        for key, body in self.objects.items():
            _keep(store, key, body)


def prepared_spec(store: DocumentStore, given: Mapping[Any, Any], reader: RecipeReader) -> PreparedSpec:
    """The ordinary spec of one that names a model or a recipe.

    A client has resolved the recipe and stored it; or the spec only names it, and it is read with `reader` and resolved
    here. The model of an earlier run is looked up in any case: it decides what the replicas may read.

    Raises:
        SpecError: with every problem; nothing was written.
    """
    try:
        document = with_found_model(given, lambda name: _earlier_run(store, name), reader)
        request = requested_recipe(document)
        if request is None:
            reference = reference_of(document)
            return PreparedSpec(document, {} if reference is None else _stored_recipes(store, reference))
        from muster.options.recipes.contract.gathering import gather  # noqa: PLC0415

        sources = gather(request, reader)
    except SpecError as error:
        raise with_problems_beside(error, given) from None
    # With OmegaConf, which few plans need.
    from muster.options.recipes.contract.expansion import expansion  # noqa: PLC0415

    found = expansion(document, sources)
    return PreparedSpec(found.document, {recipe_key(one.digest): one.to_yaml().encode() for one in found.recipes})


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


def _earlier_run(store: DocumentStore, name: str) -> EarlierRun | None:
    documents = RunDocuments(store, name)
    plan = documents.plan()
    return None if plan is None else EarlierRun(plan, documents.result())


def _keep(store: DocumentStore, key: str, body: bytes) -> None:
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
