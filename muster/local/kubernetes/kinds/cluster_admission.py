"""Admission of a cluster: schemas for every resource, and the service accounts of namespaces and pods."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.kinds.resources import CONFIG_MAPS, JOBS, SECRETS, SERVICE_ACCOUNTS
from muster.local.kubernetes.objects.resource import NAMESPACES, Admission, Resource
from muster.local.kubernetes.objects.status_errors import Document, Problem, bad_request, forbidden
from muster.local.kubernetes.objects.store import ObjectStore
from muster.local.kubernetes.schema.schemas import schema_of

_WRONG_TYPE = "FieldValueTypeInvalid"


class ClusterAdmission(Admission):
    """What a kube-apiserver and its controllers do with each new object."""

    def __init__(self, store: ObjectStore, authority: str) -> None:
        """`authority`: the certificate of the cluster's authority, in PEM."""
        self._store = store
        self._authority = authority

    def complete(self, resource: Resource, document: Document) -> Document:
        """Prune and default; a field of a wrong type makes a built-in object, or its metadata, unreadable."""
        schema = schema_of(resource)
        pruned = schema.pruned(document)
        for problem in schema.problems(pruned):
            # Of a custom resource the metadata alone are read as a built-in type.
            if problem.reason == _WRONG_TYPE and (not resource.custom or problem.path.startswith("metadata")):
                message = (
                    f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                    f"json: cannot unmarshal into Go struct field {resource.kind}.{problem.path}: {problem.text}"
                )
                raise bad_request(message)
        completed = schema.defaulted(pruned)
        completed.setdefault("metadata", {})  # it was null
        if resource == SECRETS and (texts := completed.pop("stringData", None)):
            encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
            completed["data"] = {**(completed.get("data") or {}), **encoded}
        return completed

    def problems(self, resource: Resource, document: Document) -> Sequence[Problem]:
        """What the schema refuses, and what the embedded operator cannot run."""
        found = list(schema_of(resource).problems(document))
        specs = document.get("spec", {}).get("replicaSpecs") if resource == JOBS else None
        if not found and isinstance(specs, list) and len(specs) > 1:
            found.append(Problem("spec.replicaSpecs", "FieldValueInvalid", "Too many: the embedded operator runs one"))
        return found

    def review(self, resource: Resource, document: Document, namespace: str) -> None:
        """A pod needs the service account that it names."""
        if resource != PODS:
            return
        account = document["spec"]["serviceAccountName"]
        if self._store.find(SERVICE_ACCOUNTS, account, namespace) is None:
            why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
            raise forbidden(resource, document["metadata"].get("name", ""), why)

    def created(self, resource: Resource, document: Document) -> None:
        """A namespace gets the service account `default` and the certificate of the cluster's authority."""
        if resource != NAMESPACES:
            return
        namespace = document["metadata"]["name"]
        self._store.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, namespace)
        root = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": self._authority}}
        self._store.create(CONFIG_MAPS, root, namespace)
