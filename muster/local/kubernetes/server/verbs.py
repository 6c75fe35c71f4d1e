"""What each verb does with a resource. The caller has been authorised before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.kinds.resources import SERVICE_ACCOUNTS
from muster.local.kubernetes.objects.deletion import DeleteOptions
from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.selectors import Selector, selector
from muster.local.kubernetes.objects.status_errors import (
    Document,
    StatusError,
    bad_request,
    internal,
    invalid_object,
    method_not_allowed,
    no_such_path,
    required,
)
from muster.local.kubernetes.objects.store import ObjectStore, Subresource, patched_object
from muster.local.kubernetes.rights.authorizer import Authorizer
from muster.local.kubernetes.rights.users import User
from muster.local.kubernetes.server import bodies, pod_logs, watch_stream
from muster.local.kubernetes.server.answers import Answer, StreamAnswer, deleted
from muster.local.kubernetes.server.pages import Pages, list_document
from muster.local.kubernetes.server.request_info import RequestInfo, is_true

# Whose deletion is answered with the object, also when it is gone.
_ANSWERED_WITH_OBJECT = (PODS, SERVICE_ACCOUNTS)


@dataclass(frozen=True)
class ApiRequest:
    """A request for a resource."""

    info: RequestInfo
    query: Mapping[str, str]
    headers: Mapping[str, str]
    user: User
    body: bytes = b""
    dry: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        asked = self.query.get("dryRun", "")
        if asked not in ("", "All"):
            message = (
                f'Options.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["{asked}"]: supported values: "All"'
            )
            raise StatusError(422, "Invalid", message)
        object.__setattr__(self, "dry", asked == "All")


class Verbs:
    """The verbs of a cluster's API."""

    def __init__(self, store: ObjectStore, authorizer: Authorizer, logs: pod_logs.PodLogs) -> None:
        self._store = store
        self._authorizer = authorizer
        self._logs = logs
        self._pages = Pages(store)

    def answer(self, resource: Resource, request: ApiRequest) -> Answer | StreamAnswer:
        """Do what a request asks for.

        Raises:
            StatusError: the request gets this instead.
        """
        info = request.info
        if resource.namespaced and not info.namespace:
            if info.verb in ("create", "deletecollection"):
                raise method_not_allowed()
            if info.name and info.verb not in ("list", "watch"):
                raise no_such_path()
        if not resource.namespaced and info.namespace and resource.plural != "namespaces":
            raise no_such_path()
        if info.subresource and info.subresource != "status":
            return self._subresource(resource, request)
        if info.subresource and not resource.has_status:
            raise no_such_path()
        if info.verb not in resource.verbs or (info.subresource and info.verb not in ("get", "patch", "update")):
            raise method_not_allowed()
        if info.verb in ("get", "list", "watch"):
            return self._read(resource, request)
        with self._store.rehearsal() if request.dry else nullcontext():
            return self._write(resource, request)

    def _place(self, resource: Resource, request: ApiRequest) -> str:
        return request.info.namespace if resource.namespaced else ""

    def _read(self, resource: Resource, request: ApiRequest) -> Answer | StreamAnswer:
        info, query = request.info, request.query
        if info.verb == "get":
            return Answer(self._store.get(resource, info.name, self._place(resource, request)))
        namespace = (info.namespace or None) if resource.namespaced else None
        chosen = _chosen(resource, request)
        if info.verb == "list":
            return Answer(self._pages.answer(resource, namespace, chosen, query))
        options = watch_stream.WatchOptions.of(query)
        return StreamAnswer(watch_stream.stream(self._store, resource, namespace, chosen, options))

    def _write(self, resource: Resource, request: ApiRequest) -> Answer:
        if request.info.verb == "create":
            return self._create(resource, request)
        if request.info.verb == "update":
            return self._update(resource, request)
        if request.info.verb == "patch":
            return self._patch(resource, request)
        if request.info.verb == "delete":
            return self._delete(resource, request)
        return self._delete_all(resource, request)

    def _create(self, resource: Resource, request: ApiRequest) -> Answer:
        if request.info.name:
            raise method_not_allowed()
        document, warnings = self._document(resource, request, "CreateOptions")
        place = self._place(resource, request)
        self._check_grant(request, resource, document)
        return Answer(self._store.create(resource, document, place), 201, warnings)

    def _update(self, resource: Resource, request: ApiRequest) -> Answer:
        document, warnings = self._document(resource, request, "UpdateOptions")
        metadata = document.setdefault("metadata", {})
        name = request.info.name
        if not isinstance(metadata, dict):
            message = "metadata must be an object"
            raise bad_request(message)
        if metadata.setdefault("name", name) != name:
            message = f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            raise bad_request(message)
        place = self._place(resource, request)
        self._check_grant(request, resource, document)
        return Answer(self._store.update(resource, document, place, _subresource(request)), 200, warnings)

    def _patch(self, resource: Resource, request: ApiRequest) -> Answer:
        kind = bodies.patch_kind(request.headers)
        patch = bodies.parse_json(request.body)
        validation = bodies.field_validation(request.query, "PatchOptions")
        name, place = request.info.name, self._place(resource, request)
        current = self._store.get(resource, name, place)
        # The API checks the object as it would be, and the store patches the newest one.
        new = patched_object(resource, current, patch, kind)
        warnings = bodies.check_patched_fields(resource, patch, new, validation)
        self._check_grant(request, resource, new)
        _check_size(new)
        changed = self._store.patch(resource, name, patch, place, _subresource(request), kind=kind)
        return Answer(changed, 200, tuple(warnings))

    def _check_grant(self, request: ApiRequest, resource: Resource, document: Document) -> None:
        """Refuse rights that the caller lacks, in the document as it will be kept."""
        completed = self._store.admission.complete(resource, document)
        self._authorizer.check_grant(request.user, resource, completed, self._place(resource, request))

    def _delete(self, resource: Resource, request: ApiRequest) -> Answer:
        options = delete_options(request)
        document, gone = self._store.delete(resource, request.info.name, self._place(resource, request), options)
        if gone and resource not in _ANSWERED_WITH_OBJECT:
            return Answer(deleted(resource, document))
        return Answer(document)

    def _delete_all(self, resource: Resource, request: ApiRequest) -> Answer:
        namespace = (request.info.namespace or None) if resource.namespaced else None
        chosen = _chosen(resource, request)
        listing = self._store.delete_all(resource, namespace, chosen, delete_options(request))
        return Answer(list_document(resource, listing.items, {"resourceVersion": str(listing.version)}))

    def _document(self, resource: Resource, request: ApiRequest, options: str) -> tuple[Document, tuple[str, ...]]:
        validation = bodies.field_validation(request.query, options)
        what = f'{resource.kind} in version "{resource.version}"'
        document = bodies.read_body(request.body, bodies.media_type(request.headers), what)
        _check_kind(resource, document)
        warnings = bodies.check_fields(resource, document, validation)
        _check_size(document)
        return document, tuple(warnings)

    def _subresource(self, resource: Resource, request: ApiRequest) -> Answer | StreamAnswer:
        info = request.info
        verbs = resource.subresources.get(info.subresource)
        if verbs is None:
            raise no_such_path()
        if info.verb not in verbs:
            raise method_not_allowed()
        if info.subresource == "log":
            return self._log(resource, request)
        if info.subresource == "eviction":
            options = DeleteOptions(grace_seconds=delete_options(request).grace_seconds)
            self._store.delete(resource, info.name, info.namespace, options)
            return Answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)
        document = bodies.read_body(request.body, bodies.media_type(request.headers))
        node = (document.get("target") or {}).get("name")
        if not node:
            raise invalid_object(resource, info.name, [required("target.name")])
        self._store.bind(resource, info.name, info.namespace, str(node))
        return Answer({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    def _log(self, resource: Resource, request: ApiRequest) -> StreamAnswer:
        info, query = request.info, request.query
        options = pod_logs.LogOptions.of(query, self._store.now())
        pod = self._store.get(resource, info.name, info.namespace)
        container, previous = pod_logs.container_of(pod, query), is_true(query.get("previous"))
        found = self._logs.log_of(info.namespace, info.name, container, previous=previous)
        if found is None:
            raise pod_logs.not_started(pod, container, previous=previous)
        place = (info.namespace, info.name, container)
        return StreamAnswer(pod_logs.stream(self._logs, place, found, options), "text/plain")


def delete_options(request: ApiRequest) -> DeleteOptions:
    """The options of a deletion, from its body or else its query.

    Raises:
        StatusError: 400 or 422 where they cannot be read.
    """
    found: Document = {}
    if request.body.strip():
        found = bodies.read_body(request.body, bodies.media_type(request.headers), "DeleteOptions")
    for name in ("propagationPolicy", "gracePeriodSeconds", "orphanDependents"):
        if not request.body.strip() and name in request.query:
            found[name] = request.query[name]
    grace: Any = found.get("gracePeriodSeconds")
    try:
        grace = None if grace is None else int(grace)
    except (TypeError, ValueError) as error:
        message = f'strconv.ParseInt: parsing "{grace}": invalid syntax'
        raise bad_request(message) from error
    if grace is not None and grace < 0:
        message = (
            f'DeleteOptions.meta.k8s.io "" is invalid: gracePeriodSeconds: Invalid value: {grace}: '
            "must be greater than or equal to 0"
        )
        raise StatusError(422, "Invalid", message)
    policy = found.get("propagationPolicy")
    if "orphanDependents" in found and found["orphanDependents"] is not None:
        if policy:
            message = (
                'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Invalid value: '
                f'"{policy}": orphanDependents and deletionPropagation cannot be both set'
            )
            raise StatusError(422, "Invalid", message)
        policy = "Orphan" if str(found["orphanDependents"]).lower() in ("true", "1") else "Background"
    conditions = found.get("preconditions") or {}
    return DeleteOptions(policy, grace, conditions.get("uid"), conditions.get("resourceVersion"))


def _chosen(resource: Resource, request: ApiRequest) -> Selector:
    return selector(resource, request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))


def _subresource(request: ApiRequest) -> Subresource:
    return cast("Subresource", request.info.subresource)


def _check_kind(resource: Resource, document: Document) -> None:
    """A body must say what it is, and be what the path says."""
    for name, expected, what in (
        ("apiVersion", resource.api_version, "API version"),
        ("kind", resource.kind, "kind"),
    ):
        found = document.get(name)
        if not found and resource.custom:
            message = f"Object '{'Kind' if name == 'kind' else 'apiVersion'}' is missing in '{_shown(document)}'"
            raise bad_request(message)
        if found and found != expected:
            message = f"the {what} in the data ({found}) does not match the expected {what} ({expected})"
            raise bad_request(message)


def _shown(document: Document) -> str:
    text = json.dumps(document, separators=(",", ":"))
    return text if len(text) <= 200 else text[:200] + "..."


def _check_size(document: Document) -> None:
    if len(json.dumps(document, separators=(",", ":"))) > bodies.OBJECT_BYTES_MAX:
        message = "etcdserver: request is too large"
        raise internal(message)
