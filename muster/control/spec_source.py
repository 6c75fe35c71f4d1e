"""The ordinary spec of one that names a model or a recipe, as a plan needs it: what is named is looked up or read.

Imported for such specs alone: the models of results would add to every cold start of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.contract.errors import SpecError
from muster.contract.run.model_lookup import EarlierRun, with_found_model
from muster.contract.spec.open_spec import refuse_unread, with_problems_beside
from muster.contract.training.model_source import ModelSource
from muster.control.aws.clients import Clients
from muster.control.aws.store import DocumentStore
from muster.control.documents import RunDocuments
from muster.control.replica_package import keep
from muster.options import offers


@dataclass(frozen=True)
class PreparedSpec:
    """An ordinary spec, and the objects that its replicas read from the bucket, by their keys."""

    document: dict[str, Any]
    objects: Mapping[str, bytes] = field(default_factory=dict)

    def store(self, store: DocumentStore) -> None:
        """Store the objects, so that they exist for as long as the run. Idempotent.

        Raises:
            ConflictError: others kept replacing one of them.
        """
        for key, body in self.objects.items():
            _keep(store, key, body)


@dataclass(frozen=True)
class Reading:
    """With whose rights what a spec names is read: those of the function, in the stack's account."""

    store: DocumentStore
    clients: Clients
    account: str


@dataclass(frozen=True)
class SpecSource:
    """How an option finds what a spec only names: its `OFFER` for the seam `control.spec_source`.

    What cannot be found is a SpecError with all problems; nothing is written.
    """

    recipe: Callable[[Mapping[Any, Any], Reading], PreparedSpec]
    """The ordinary spec of one with a `recipe`, which a client may have resolved already, and its resolved recipes."""
    hub_model: Callable[[ModelSource, Reading], ModelSource]
    """The source, which names a model of a hub, with its place."""


def prepared_spec(given: Mapping[Any, Any], reading: Reading) -> PreparedSpec:
    """The ordinary spec of one that names a model or a recipe.

    The model of an earlier run is looked up even where its place is known: it decides what the replicas may read.

    Raises:
        SpecError: with every problem; nothing was written.
    """

    def source(field_: str) -> SpecSource:
        found = next(offers("control.spec_source", SpecSource), None)
        return found if found is not None else refuse_unread(field_, given)

    def of_hub(model: ModelSource) -> ModelSource:
        return source("model.hub").hub_model(model, reading)

    try:
        document = with_found_model(given, lambda name: _earlier_run(reading.store, name), of_hub)
    except SpecError as error:
        raise with_problems_beside(error, given) from None
    return PreparedSpec(document) if document.get("recipe") is None else source("recipe").recipe(document, reading)


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
