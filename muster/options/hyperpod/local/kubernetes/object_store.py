"""The objects of one cluster, with the rules by which etcd and a kube-apiserver keep them.

The store is what the server answers from, and what the operator, the scheduler and the nodes of the embedded cluster
call in the same process. All methods may be called from any thread. Documents that go in are copied, and so are those
that come out. What a kube-controller-manager does a while after a deletion is done here before it is answered.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from queue import SimpleQueue
from typing import Any

from muster.options.hyperpod.contract.job_schema import SchemaProblem, SchemaRule, problems_of
from muster.options.hyperpod.local.kubernetes.schemas import completed, schema_of
from muster.options.hyperpod.local.kubernetes.served_resources import NAMESPACES, PODS, SERVICE_ACCOUNTS, Resource
from muster.options.hyperpod.local.kubernetes.status_errors import (
    Document,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid_object,
    not_found,
)

FIRST_VERSION = 1_000
FOREGROUND = "foregroundDeletion"
DEFAULT_GRACE_SECONDS = 30
_ANNOTATION_BYTES = 256 * 1024
_ENDED = ("Succeeded", "Failed")
Key = tuple[Resource, str, str]
"""Resource, namespace, name."""


@dataclass(frozen=True)
class DeleteOptions:
    """How an object is deleted."""

    foreground: bool = False
    """Whether it stays until its dependents are gone."""
    grace_seconds: int | None = None
    """None: as the object says."""
    uid: str | None = None
    resource_version: str | None = None


@dataclass(frozen=True)
class WatchEvent:
    """A change of an object, for the controllers in this process. The document is shared: copy it before a change."""

    object: Document
    resource: Resource
    is_gone: bool = False
    """Whether it was deleted, and not added or changed."""


def timestamp(seconds: float = 0.0) -> str:
    """The time in so many seconds, as in objects: UTC, whole seconds."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class ObjectStore:
    """All objects of a cluster."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._objects: dict[Key, Document] = {}
        self._namespaces: set[str] = set()
        self._version = FIRST_VERSION
        self._watches: list[SimpleQueue[WatchEvent]] = []

    def add_namespace(self, name: str) -> None:
        """A namespace with the service account that pods have by default; nothing happens where there is one."""
        with self._lock:
            if name not in self._namespaces:
                self._namespaces.add(name)
                self.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, name)

    def create(self, resource: Resource, document: Document, namespace: str) -> Document:
        """Create an object; what is kept of it.

        Raises:
            StatusError: 404 without its namespace, 409 where the name is taken, 422 where it breaks a rule.
        """
        with self._lock:
            new = self._described(resource, document)
            metadata = new["metadata"]
            if metadata.setdefault("namespace", namespace) != namespace:
                message = "the namespace of the provided object does not match the namespace sent on the request"
                raise bad_request(message)
            if namespace not in self._namespaces:
                raise not_found(NAMESPACES, namespace)
            if problems := [*problems_of(new, schema_of(resource)), *_too_long(metadata.get("annotations"))]:
                raise invalid_object(resource, str(metadata.get("name", "")), problems)
            metadata.update(uid=str(uuid.uuid4()), creationTimestamp=timestamp())
            key = (resource, namespace, str(metadata["name"]))
            if resource == PODS:
                self._prepare_pod(new)
            if key in self._objects:
                raise already_exists(resource, metadata["name"])
            self._put(key, new)
            if owner := owner_of(new):  # it comes too late where its owner is gone
                self._follow(owner)
            return copy.deepcopy(new)

    def get(self, resource: Resource, name: str, namespace: str) -> Document:
        """An object.

        Raises:
            StatusError: 404.
        """
        with self._lock:
            return copy.deepcopy(self._one(resource, name, namespace))

    def find(self, resource: Resource, name: str, namespace: str) -> Document | None:
        """An object, or None."""
        with self._lock:
            return copy.deepcopy(self._objects.get((resource, namespace, name)))

    def list(
        self, resource: Resource, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> list[Document]:
        """Objects of a resource with these labels in one namespace, or (None) in all; in the order of their keys."""
        with self._lock:
            found = [
                document
                for key, document in self._objects.items()
                if key[0] == resource
                and namespace in (None, key[1])
                and (labels or {}).items() <= document["metadata"].get("labels", {}).items()
            ]
            found.sort(key=lambda item: (item["metadata"]["namespace"], item["metadata"]["name"]))
            return copy.deepcopy(found)

    def change(
        self, resource: Resource, metadata: Mapping[str, Any], change: Callable[[Document], None]
    ) -> Document | None:
        """Change an object in place, for the controllers in this process: `change` gets a copy of the newest one.

        Nothing happens where the object with this name and uid is gone: then this is None.
        """
        with self._lock:
            old = self._same(resource, metadata)
            if old is None:
                return None
            new = copy.deepcopy(old)
            change(new)
            if new != old:
                self._put((resource, metadata["namespace"], metadata["name"]), new)
            return copy.deepcopy(new)

    def discard(self, resource: Resource, metadata: Mapping[str, Any], grace_seconds: int | None = None) -> None:
        """Delete an object, for the controllers in this process; nothing happens where it is gone."""
        with self._lock:
            if self._same(resource, metadata) is not None:
                options = DeleteOptions(grace_seconds=grace_seconds)
                self.delete(resource, metadata["name"], metadata["namespace"], options)

    def delete(
        self, resource: Resource, name: str, namespace: str, options: DeleteOptions | None = None
    ) -> tuple[Document, bool]:
        """Delete an object: what it was, and whether it is gone already.

        It stays, with a deletionTimestamp, while it waits in the foreground for its dependents, or has time to end in.

        Raises:
            StatusError: 404, 409 where it is not the one that the options name.
        """
        with self._lock:
            options = options or DeleteOptions()
            current = self._one(resource, name, namespace)
            self._check_options(resource, current, options)
            key, uid = (resource, namespace, name), str(current["metadata"]["uid"])
            wanted = copy.deepcopy(current)
            metadata = wanted["metadata"]
            waits = options.foreground or _waits(current)
            grace = _grace(wanted, options.grace_seconds) if resource == PODS else 0
            if grace == 0 and not waits:
                gone = self._remove(key)
                self._follow(uid)
                return gone, True
            if waits:
                metadata["finalizers"] = [FOREGROUND]
            if not metadata.get("deletionTimestamp") or grace < metadata["deletionGracePeriodSeconds"]:
                metadata.update(deletionTimestamp=timestamp(grace), deletionGracePeriodSeconds=grace)
            if wanted != current:
                self._put(key, wanted)
            answer = copy.deepcopy(wanted)
            self._follow(uid)
            return answer, False

    def watch(self) -> SimpleQueue[WatchEvent]:
        """The changes of all resources from now on. The objects that are there come first."""
        with self._lock:
            watch: SimpleQueue[WatchEvent] = SimpleQueue()
            for key, document in self._objects.items():
                watch.put(WatchEvent(document, key[0]))
            self._watches.append(watch)
            return watch

    # -- rules of a creation --

    def _described(self, resource: Resource, document: Document) -> Document:
        new = copy.deepcopy(document)
        for name, value, what in (
            ("apiVersion", resource.api_version, "API version"),
            ("kind", resource.kind, "kind"),
        ):
            found = new.setdefault(name, value)
            if found != value:
                message = f"the {what} in the data ({found}) does not match the expected {what} ({value})"
                raise bad_request(message)
        new.pop("status", None)
        return completed(resource, new)[0]

    def _prepare_pod(self, pod: Document) -> None:
        """A new pod waits, and needs the service account that it names."""
        pod["status"] = {"phase": "Pending"}
        pod["spec"].setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
        account, namespace = pod["spec"].setdefault("serviceAccountName", "default"), pod["metadata"]["namespace"]
        if (SERVICE_ACCOUNTS, namespace, account) not in self._objects:
            why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
            raise forbidden(PODS, pod["metadata"]["name"], why)

    # -- deletion --

    def _check_options(self, resource: Resource, current: Document, options: DeleteOptions) -> None:
        metadata = current["metadata"]
        if options.uid is not None and options.uid != metadata["uid"]:
            why = f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {metadata['uid']}"
            raise conflict(resource, metadata["name"], why)
        if options.resource_version is not None and options.resource_version != metadata["resourceVersion"]:
            why = (
                f"Precondition failed: ResourceVersion in precondition: {options.resource_version}, "
                f"ResourceVersion in object meta: {metadata['resourceVersion']}"
            )
            raise conflict(resource, metadata["name"], why)

    def _follow(self, owner: str) -> None:
        """Delete the dependents of an owner that is gone or waits for them, and an owner for which none is left."""
        key = next((key for key, found in self._objects.items() if found["metadata"]["uid"] == owner), None)
        if key is not None and not _waits(self._objects[key]):
            return
        for other, found in list(self._objects.items()):
            # The end of one may have brought that of the others.
            if other in self._objects and owner_of(found) == owner and not found["metadata"].get("deletionTimestamp"):
                self.delete(other[0], other[2], other[1])
        if key is not None and key in self._objects and owner not in map(owner_of, self._objects.values()):
            self._remove(key)

    def _remove(self, key: Key) -> Document:
        last = copy.deepcopy(self._objects.pop(key))
        self._version += 1
        last["metadata"]["resourceVersion"] = str(self._version)
        self._announce(WatchEvent(last, key[0], is_gone=True))
        if owner := owner_of(last):
            self._follow(owner)
        return copy.deepcopy(last)

    # -- the map itself --

    def _same(self, resource: Resource, metadata: Mapping[str, Any]) -> Document | None:
        found = self._objects.get((resource, metadata["namespace"], metadata["name"]))
        return found if found is not None and found["metadata"]["uid"] == metadata["uid"] else None

    def _one(self, resource: Resource, name: str, namespace: str) -> Document:
        found = self._objects.get((resource, namespace, name))
        if found is None:
            raise not_found(resource, name)
        return found

    def _put(self, key: Key, new: Document) -> None:
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version)
        self._objects[key] = new
        self._announce(WatchEvent(new, key[0]))

    def _announce(self, event: WatchEvent) -> None:
        for watch in self._watches:
            watch.put(event)


def _grace(pod: Document, asked: int | None) -> int:
    """Seconds between the wish to delete a pod and its end; 0 deletes it at once: it does not run."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in _ENDED:
        return 0
    return int(pod["spec"]["terminationGracePeriodSeconds"] if asked is None else asked)


def _too_long(annotations: object) -> Iterator[SchemaProblem]:
    texts = chain.from_iterable(annotations.items()) if isinstance(annotations, dict) else ()
    if sum(len(str(text).encode()) for text in texts) > _ANNOTATION_BYTES:
        allowed = f"may not be more than {_ANNOTATION_BYTES} bytes"
        yield SchemaProblem("metadata.annotations", SchemaRule.LIMIT, allowed)


def owner_of(document: Mapping[str, Any]) -> str | None:
    """The uid of the object's owner. The objects that have one are made here, each with one owner."""
    owners = document["metadata"].get("ownerReferences") or ()
    return str(owners[0]["uid"]) if owners else None


def _waits(document: Document) -> bool:
    """Whether it waits in the foreground for its dependents."""
    return FOREGROUND in (document["metadata"].get("finalizers") or ())
