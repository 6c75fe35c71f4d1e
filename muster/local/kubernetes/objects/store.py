"""The objects of one cluster, with the rules by which etcd and a kube-apiserver keep them.

The store is what the server answers from, and what the operator, the scheduler and the nodes of the embedded cluster
call in the same process. All methods may be called from any thread. Documents that go in are copied, and so are those
that come out.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from muster.local.kubernetes.objects.metadata import FOREGROUND, metadata_problems
from muster.local.kubernetes.objects.ownership import DeleteOptions, Key, Ownership
from muster.local.kubernetes.objects.resource import NAMESPACES, Admission, Resource
from muster.local.kubernetes.objects.selectors import has_labels
from muster.local.kubernetes.objects.status_errors import (
    Document,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    internal,
    invalid_object,
    not_found,
    not_served,
)
from muster.local.kubernetes.objects.watching import ADDED, DELETED, MODIFIED, Watch, WatchEvent

Subresource = Literal["", "status"]

FIRST_VERSION = 1_000
_POLICIES = (None, "Background", "Foreground")
# What the server alone sets, and a change therefore cannot.
_SERVERS_OWN = (
    *("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"),
    *("deletionGracePeriodSeconds", "generation", "selfLink", "managedFields"),
)


@dataclass(frozen=True)
class Listing:
    """The answer to a list: the objects in the order of their keys, at one version."""

    items: list[Document]
    version: int


def timestamp(time: datetime) -> str:
    """A time as in objects: UTC, whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ObjectStore:
    """All objects of a cluster."""

    def __init__(self, now: Callable[[], datetime] = _utc_now) -> None:
        self._now = now
        self._lock = threading.RLock()
        self._objects: dict[Key, Document] = {}
        self._version = FIRST_VERSION
        self._watches: set[Watch] = set()
        self.admission = Admission()
        """What is asked before a write."""
        self._ownership = Ownership(self)

    @property
    def version(self) -> int:
        """The version of the last change."""
        with self._lock:
            return self._version

    def now(self) -> datetime:
        """The cluster's time."""
        return self._now()

    def create(self, resource: Resource, document: Document, namespace: str = "") -> Document:
        """Create an object; what is kept of it.

        Raises:
            StatusError: 404 without its namespace, 409 where the name is taken, 422 where it breaks a rule.
        """
        with self._lock:
            new = self._described(resource, document)
            metadata = new["metadata"]
            given = metadata.get("namespace")
            if given and given != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                    if resource.namespaced
                    else "namespace may not be set on an object without one"
                )
            if metadata.get("resourceVersion"):
                msg = "resourceVersion should not be set on objects to be created"
                raise internal(msg)
            if resource.namespaced:
                metadata["namespace"] = namespace
                self._check_namespace(resource, namespace, str(metadata.get("name", "")))
            for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"):
                metadata.pop(name, None)
            metadata.update(uid=str(uuid.uuid4()), creationTimestamp=timestamp(self._now()), generation=1)
            if resource.has_status and not resource.keeps_status:
                new.pop("status", None)
            resource.rules.prepare(new, None)
            self.admission.review(resource, new, namespace)
            self._refuse_invalid(resource, new, None)
            key = (resource, namespace, str(metadata["name"]))
            if key in self._objects:
                raise already_exists(resource, metadata["name"])
            self._put(key, ADDED, new, None)
            self.admission.created(resource, new)
            self._ownership.collect()
            return copy.deepcopy(new)

    def get(self, resource: Resource, name: str, namespace: str = "") -> Document:
        """An object.

        Raises:
            StatusError: 404.
        """
        with self._lock:
            return copy.deepcopy(self._one(resource, name, namespace))

    def find(self, resource: Resource, name: str, namespace: str = "") -> Document | None:
        """An object, or None."""
        with self._lock:
            return copy.deepcopy(self._objects.get((resource, namespace, name)))

    def list(
        self, resource: Resource, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Listing:
        """The objects of a resource with these labels in one namespace, or (None) in all."""
        with self._lock:
            found = [
                document
                for key, document in self._objects.items()
                if key[0] == resource and namespace in (None, key[1]) and has_labels(document, labels or {})
            ]
            found.sort(key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"]))
            return Listing(copy.deepcopy(found), self._version)

    def change(
        self,
        resource: Resource,
        name: str,
        change: Callable[[Document], None],
        namespace: str = "",
        subresource: Subresource = "",
    ) -> Document:
        """Change an object in place: `change` gets a copy of the newest one. For callers in this process.

        Raises:
            StatusError: 404, or 422 where it breaks a rule afterwards.
        """
        with self._lock:
            old = self._one(resource, name, namespace)
            new = copy.deepcopy(old)
            change(new)
            new = self.admission.complete(resource, new)
            return copy.deepcopy(self._replace(resource, new, old, subresource))

    def bind(self, resource: Resource, name: str, namespace: str, node: str) -> Document:
        """Put a pod on a node, which no other write can do.

        Raises:
            StatusError: 404, or 409 where it is on a node already.
        """
        with self._lock:
            old = self._one(resource, name, namespace)
            if old["spec"].get("nodeName"):
                raise conflict(resource, name, f'pod {name} is already assigned to node "{old["spec"]["nodeName"]}"')
            new = copy.deepcopy(old)
            new["spec"]["nodeName"] = node
            self._put((resource, namespace, name), MODIFIED, new, old)
            return copy.deepcopy(new)

    def delete(
        self, resource: Resource, name: str, namespace: str = "", options: DeleteOptions | None = None
    ) -> tuple[Document, bool]:
        """Delete an object: what it was, and whether it is gone already.

        It stays, with a deletionTimestamp, while it has finalizers, dependents that block it, or time to end in.

        Raises:
            StatusError: 404, 409 where it is not the one that the options name.
        """
        with self._lock:
            options = options or DeleteOptions()
            current = self._one(resource, name, namespace)
            self._check_preconditions(resource, current, options)
            key = (resource, namespace, name)
            wanted = copy.deepcopy(current)
            metadata = wanted["metadata"]
            self._set_finalizers(wanted, options.propagation)
            if resource == NAMESPACES:
                wanted.setdefault("status", {})["phase"] = "Terminating"
            grace = resource.rules.grace(wanted, options.grace_seconds)
            waits = bool(metadata.get("finalizers")) or resource == NAMESPACES
            if grace == 0 and not waits:
                gone = self.remove(key)
                self._ownership.collect()
                return gone, True
            self._mark_deleted(metadata, grace)
            if wanted != current:
                self._put(key, MODIFIED, wanted, current)
            answer = copy.deepcopy(wanted)
            self._ownership.collect()
            return answer, False

    def watch(self) -> Watch:
        """Follow the changes of all resources. The objects that are there come first, as ADDED."""
        with self._lock:
            watch = Watch(self._unwatch)
            for key, document in sorted(self._objects.items(), key=lambda pair: _order(pair[0])):
                watch.push(WatchEvent(ADDED, document, key[0]))
            self._watches.add(watch)
            return watch

    # What follows is for `ownership`, which the store calls under its lock.

    def objects(self) -> Iterator[tuple[Key, Document]]:
        """Every object with its key; nothing may change them."""
        yield from list(self._objects.items())

    def document(self, key: Key) -> Document | None:
        """The object of a key; nothing may change it."""
        return self._objects.get(key)

    def rewrite(self, key: Key, change: Callable[[Document], None]) -> None:
        """Change metadata that only the server changes; an object that waited for that alone is gone."""
        old = self._objects[key]
        new = copy.deepcopy(old)
        change(new)
        if new == old:
            return
        self._put(key, MODIFIED, new, old)
        self._remove_finished(key)

    def remove(self, key: Key) -> Document:
        """Remove an object, whatever it waits for; what it was."""
        old = self._objects.pop(key)
        self._version += 1
        last = copy.deepcopy(old)
        last["metadata"]["resourceVersion"] = str(self._version)
        self._ownership.removed(key, old)
        self._announce(WatchEvent(DELETED, last, key[0]))
        return copy.deepcopy(last)

    # -- rules of a write --

    def _described(self, resource: Resource, document: Document) -> Document:
        new = copy.deepcopy(document)
        for name, value in (("apiVersion", resource.api_version), ("kind", resource.kind)):
            found = new.setdefault(name, value)
            if found != value:
                msg = (
                    f"the {'API version' if name == 'apiVersion' else 'kind'} in the data ({found}) does not match the "
                    f"expected {'API version' if name == 'apiVersion' else 'kind'} ({value})"
                )
                raise bad_request(msg)
        if not isinstance(new.setdefault("metadata", {}), dict):
            msg = "metadata must be an object"
            raise bad_request(msg)
        return self.admission.complete(resource, new)

    def _check_namespace(self, resource: Resource, namespace: str, name: str) -> None:
        found = self._objects.get((NAMESPACES, "", namespace))
        if found is None:
            raise not_found(NAMESPACES, namespace)
        if found.get("status", {}).get("phase") == "Terminating":
            refusal = forbidden(
                resource,
                name,
                f"unable to create new content in namespace {namespace} because it is being terminated",
            )
            refusal.details["causes"] = [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {namespace} is being terminated",
                    "field": "metadata.namespace",
                }
            ]
            raise refusal

    def _refuse_invalid(self, resource: Resource, new: Document, old: Document | None) -> None:
        problems = [*self.admission.problems(resource, new), *metadata_problems(resource, new, old)]
        if not problems:  # the rules of a kind may trust its schema
            problems = list(resource.rules.problems(new, old))
        if problems:
            raise invalid_object(resource, str(new["metadata"].get("name", "")), problems)

    def _replace(self, resource: Resource, new: Document, old: Document, subresource: Subresource) -> Document:
        """Put `new`, which is not shared, in the place of `old`."""
        metadata, had = new["metadata"], old["metadata"]
        name = str(had["name"])
        for own in _SERVERS_OWN:
            metadata.pop(own, None)
            if own in had:
                metadata[own] = had[own]
        if subresource == "status":
            # As for custom resources: nothing of the metadata changes with the status.
            new = {**old, "metadata": dict(had), "status": new.get("status", {})}
            problems = self.admission.problems(resource, new)
            if problems:
                raise invalid_object(resource, name, problems)
        else:
            self._prepare_main(resource, new, old)
        for empty in ("labels", "annotations", "finalizers", "ownerReferences"):
            if not new["metadata"].get(empty, True):
                del new["metadata"][empty]
        if new == old:
            return old
        key = (resource, str(had.get("namespace", "")), name)
        self._put(key, MODIFIED, new, old)
        self._remove_finished(key)
        self._ownership.collect()
        return new

    def _prepare_main(self, resource: Resource, new: Document, old: Document) -> None:
        """Check a write of all but the status, and count it."""
        if resource.has_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        resource.rules.prepare(new, old)
        self._refuse_invalid(resource, new, old)
        if _wish(new) != _wish(old):
            new["metadata"]["generation"] = int(old["metadata"].get("generation", 1)) + 1

    # -- deletion --

    def _check_preconditions(self, resource: Resource, current: Document, options: DeleteOptions) -> None:
        metadata = current["metadata"]
        if options.propagation not in _POLICIES:
            if options.propagation == "Orphan":
                what = "a deletion that orphans"
                raise not_served(what)
            message = (
                'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: '
                f'"{options.propagation}": supported values: "Foreground", "Background", "Orphan", "nil"'
            )
            raise StatusError(422, "Invalid", message)
        if options.uid is not None and options.uid != metadata["uid"]:
            raise conflict(
                resource,
                metadata["name"],
                f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {metadata['uid']}",
            )
        if options.resource_version is not None and options.resource_version != metadata["resourceVersion"]:
            raise conflict(
                resource,
                metadata["name"],
                f"Precondition failed: ResourceVersion in precondition: {options.resource_version}, "
                f"ResourceVersion in object meta: {metadata['resourceVersion']}",
            )

    def _set_finalizers(self, wanted: Document, propagation: str | None) -> None:
        """Foreground is a finalizer, which the garbage collector removes when it is done."""
        if propagation is None:
            return
        metadata = wanted["metadata"]
        kept = [item for item in metadata.get("finalizers") or [] if item != FOREGROUND]
        kept += [FOREGROUND] if propagation == "Foreground" else []
        if kept:
            metadata["finalizers"] = kept
        else:
            metadata.pop("finalizers", None)

    def _mark_deleted(self, metadata: Document, grace: int) -> None:
        already = metadata.get("deletionTimestamp")
        if already and grace >= int(metadata.get("deletionGracePeriodSeconds", 0)):
            return
        metadata["deletionTimestamp"] = timestamp(self._now() + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if not already:
            metadata["generation"] = int(metadata.get("generation", 1)) + 1

    def _remove_finished(self, key: Key) -> None:
        """Remove an object whose deletion has nothing to wait for any more."""
        metadata = self._objects[key]["metadata"]
        if (
            metadata.get("deletionTimestamp")
            and not metadata.get("finalizers")
            and not metadata.get("deletionGracePeriodSeconds")
            and key[0] != NAMESPACES
        ):
            self.remove(key)

    # -- the map itself --

    def _one(self, resource: Resource, name: str, namespace: str) -> Document:
        found = self._objects.get((resource, namespace, name))
        if found is None:
            raise not_found(resource, name)
        return found

    def _put(self, key: Key, kind: str, new: Document, old: Document | None) -> None:
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version)
        self._objects[key] = new
        self._ownership.written(key, new, old)
        self._announce(WatchEvent(kind, new, key[0]))

    def _announce(self, event: WatchEvent) -> None:
        for watch in list(self._watches):
            watch.push(event)

    def _unwatch(self, watch: Watch) -> None:
        with self._lock:
            self._watches.discard(watch)


def _wish(document: Document) -> Document:
    """What the generation counts: all but the metadata and the status."""
    return {key: value for key, value in document.items() if key not in ("metadata", "status")}


def _order(key: Key) -> tuple[str, str, str, str]:
    return key[0].group, key[0].plural, key[1], key[2]
