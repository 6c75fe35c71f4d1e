"""What a spec only names, as a plan needs it: the model, looked up; the recipe, resolved, and stored for the replicas.

Imported for such specs alone: the resolver and YAML would add to every cold start of the function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from muster.contract.errors import DocumentError, SpecError, StatedProblem
from muster.contract.recipe.expansion import Expansion, expanded_again, expansion
from muster.contract.recipe.gathering import gather
from muster.contract.recipe.model_resolution import EarlierRun, with_found_model
from muster.contract.recipe.recipe_reader import RecipeReader
from muster.contract.recipe.recipe_reference import RECIPE_FILE, recipe_folder, sources_key
from muster.contract.recipe.recipe_sources import RecipeSources
from muster.contract.recipe.recipe_text import recipe_yaml
from muster.contract.recipe.unresolved import reference_of, requested_recipe, with_problems_beside
from muster.control.aws.store import Store
from muster.control.documents import RunDocuments
from muster.control.replica_package import keep

SOURCES_BYTES_MAX = 8 * 1024 * 1024
"""Of the sources of one recipe: three texts of a mebibyte each, with the escapes of JSON, and the values of a spec."""
_AGAIN = "launch the run again from its spec"


@dataclass(frozen=True)
class PreparedSpec:
    """An ordinary spec, and what is to be stored of its recipe, if it has one."""

    document: dict[str, Any]
    expansion: Expansion | None = None
    sources: RecipeSources | None = None

    def store(self, store: Store) -> None:
        """Store the sources and what the replicas read, so that both exist for as long as the run. Idempotent.

        Raises:
            ConflictError: others kept replacing one of them.
        """
        if self.expansion is None or self.sources is None:
            return
        _keep(store, sources_key(self.expansion.reference.sources), self.sources.to_json())
        for recipe in self.expansion.recipes:
            _keep(store, f"{recipe_folder(recipe.digest)}{RECIPE_FILE}", recipe_yaml(recipe.document).encode())


def prepared_spec(store: Store, given: Mapping[Any, Any], reader: RecipeReader) -> PreparedSpec:
    """The ordinary spec of one that names a model or a recipe.

    A recipe was resolved by a client, and is again here; or the spec only names it, and it is read with `reader`. The
    model of an earlier run is looked up here in any case: it decides what the replicas may read.

    Raises:
        SpecError: with every problem; nothing was written.
    """
    try:
        document = with_found_model(given, lambda name: _earlier_run(store, name), reader)
        request = requested_recipe(document)
        sources = None if request is None else gather(request, reader)
    except SpecError as error:
        raise with_problems_beside(error, given) from None
    if sources is not None:
        found = expansion(document, sources)
        return PreparedSpec(found.document, found, sources)
    reference = reference_of(document)
    if reference is None:
        return PreparedSpec(document)
    sources = _stored_sources(store, reference.sources)
    found = expanded_again(given, document, sources)
    return PreparedSpec(found.document, found, sources)


def _earlier_run(store: Store, name: str) -> EarlierRun | None:
    documents = RunDocuments(store, name)
    plan = documents.plan()
    return None if plan is None else EarlierRun(plan, documents.result())


def _stored_sources(store: Store, digest: str) -> RecipeSources:
    """The sources that a client has stored.

    Raises:
        SpecError: they are not there, or are no longer those.
    """
    key = sources_key(digest)
    uri = store.uri(key)
    try:
        body = store.read_bounded(key, SOURCES_BYTES_MAX)
        if body is None:
            raise SpecError([StatedProblem("recipe.sources", f"{uri} does not exist", _AGAIN)])
        if hashlib.sha256(body).hexdigest() != digest:
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
