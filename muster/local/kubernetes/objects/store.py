"""The objects of one cluster, with the rules by which etcd and a kube-apiserver keep them.

The store is what the server answers from, and what the operator, the scheduler and the nodes of the embedded cluster
call in the same process. All methods may be called from any thread. Documents that go in are copied, and so are those
that come out.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from muster.local.kubernetes.objects import patches
from muster.local.kubernetes.objects.admission import Admission
from muster.local.kubernetes.objects.deletion import DeleteOptions
from muster.local.kubernetes.objects.metadata import FOREGROUND, ORPHAN, generated_name, metadata_problems
from muster.local.kubernetes.objects.ownership import Ownership
from muster.local.kubernetes.objects.resource import NAMESPACES, Resource
from muster.local.kubernetes.objects.selectors import EVERYTHING, Selector
from muster.local.kubernetes.objects.status_errors import (
    Document,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    expired,
    forbidden,
    internal,
    invalid,
    invalid_object,
    modified,
    not_found,
)
from muster.local.kubernetes.objects.watching import ADDED, DELETED, MODIFIED, Change, Interest, Watch, WatchEvent

Subresource = Literal["", "status"]
Key = tuple[Resource, str, str]
"""Resource, namespace ("" for an object without), name."""

FIRST_VERSION = 1_000
_HISTORY = 5_000
_POLICIES = ("Background", "Foreground", "Orphan")
_NAMESPACE_FINALIZER = "kubernetes"
# What the server alone sets, and an update therefore cannot change.
_SERVERS_OWN = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")


@dataclass(frozen=True)
class Listing:
    """The answer to a list: the objects in the order of their keys, at one version."""

    items: list[Document]
    version: int
    rest: list[Document] = field(default_factory=list)


def timestamp(time: datetime) -> str:
    """A time as in objects: UTC, whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ObjectStore:
    """All objects of a cluster."""

    def __init__(self, now: Callable[[], datetime] = _utc_now, history: int = _HISTORY) -> None:
        self._now = now
        self._lock = threading.RLock()
        self._objects: dict[Key, Document] = {}
        self._version = FIRST_VERSION
        self._history: deque[Change] = deque(maxlen=history)
        self._forgotten = FIRST_VERSION
        """The newest version that the history no longer has."""
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
            if not metadata.get("name") and metadata.get("generateName"):
                metadata["name"] = generated_name(str(metadata["generateName"]))
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

    def list(self, resource: Resource, namespace: str | None = None, chosen: Selector = EVERYTHING) -> Listing:
        """The objects of a resource in one namespace, or (None) in all; `selectors.selector` makes `chosen`."""
        with self._lock:
            found = [
                document
                for _, document in sorted(self._of(resource, namespace), key=lambda pair: pair[0][1:])
                if chosen.matches(document)
            ]
            return Listing(copy.deepcopy(found), self._version)

    def update(
        self, resource: Resource, document: Document, namespace: str = "", subresource: Subresource = ""
    ) -> Document:
        """Replace an object, or its status.

        With a resourceVersion in its metadata it is replaced only if it still has that version.

        Raises:
            StatusError: 404, 409 where it has changed, 422 where it breaks a rule.
        """
        with self._lock:
            new = self._described(resource, document)
            name = str(new["metadata"].get("name", ""))
            old = self._one(resource, name, namespace)
            return copy.deepcopy(self._replace(resource, new, old, subresource))

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

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        subresource: Subresource = "",
        *,
        kind: str = patches.MERGE,
    ) -> Document:
        """Change an object by a merge patch (or, by `kind`, a JSON patch or a strategic merge patch).

        Raises:
            StatusError: 404, 409 where the patch names an older version, 415, 422.
        """
        with self._lock:
            old = self._one(resource, name, namespace)
            new = self.admission.complete(resource, patched_object(resource, old, patch, kind))
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
                gone = self._remove(key)
                self._ownership.collect()
                return gone, True
            self._mark_deleted(metadata, grace)
            if wanted != current:
                self._put(key, MODIFIED, wanted, current)
            answer = copy.deepcopy(wanted)
            self._ownership.collect()
            return answer, False

    def delete_all(
        self,
        resource: Resource,
        namespace: str | None = None,
        chosen: Selector = EVERYTHING,
        options: DeleteOptions | None = None,
    ) -> Listing:
        """Delete every object that is chosen; what they were."""
        with self._lock:
            listing = self.list(resource, namespace, chosen)
            for item in listing.items:
                metadata = item["metadata"]
                self.delete(resource, metadata["name"], metadata.get("namespace", ""), options)
            return Listing(listing.items, self._version)

    def watch(
        self,
        resource: Resource | None = None,
        namespace: str | None = None,
        chosen: Selector = EVERYTHING,
        since: int | None = None,
        wake: Callable[[], None] | None = None,
    ) -> Watch:
        """Follow changes, of one resource or (None) of all.

        Args:
            resource: the resource; None for every one.
            namespace: the namespace; None for every one.
            chosen: which of its objects.
            since: the version after which changes are wanted. None: the objects that are there come first, as ADDED.
            wake: called whenever there is something to read, in the thread that made the change. It must be quick.

        Raises:
            StatusError: 410 where the history no longer reaches back to `since`.
        """
        with self._lock:
            interest = Interest(resource, namespace, chosen)
            watch = Watch(interest, self._unwatch, wake)
            if since is None:
                for key, document in sorted(self._objects.items(), key=lambda pair: _order(pair[0])):
                    if interest.covers(key[0], key[1]) and chosen.matches(document):
                        watch.push(WatchEvent(ADDED, document, _version_of(document), key[0]))
            else:
                if since < self._forgotten:
                    msg = f"too old resource version: {since} ({self._forgotten + 1})"
                    raise expired(msg)
                for change in self._history:
                    if change.version > since:
                        watch.offer(change)
            self._watches.add(watch)
            return watch

    def remembers(self, version: int) -> bool:
        """Whether the history reaches back to a version."""
        with self._lock:
            return version >= self._forgotten

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Undo every write that is made inside, unseen by any watch: what `dryRun=All` asks for."""
        with self._lock:
            kept = dict(self._objects), self._version, deque(self._history, self._history.maxlen), self._forgotten
            watches, self._watches = self._watches, set()
            ownership, self._ownership = self._ownership, self._ownership.copied()
            try:
                yield
            finally:
                self._objects, self._version, self._history, self._forgotten = kept
                self._watches, self._ownership = watches, ownership

    def compact(self) -> None:
        """Forget the history: a watch that begins at an older version is answered with 410."""
        with self._lock:
            self._history.clear()
            self._forgotten = self._version

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

    def remove(self, key: Key) -> None:
        """Remove an object, whatever it waits for."""
        self._remove(key)

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
        name, namespace = str(had["name"]), str(had.get("namespace", ""))
        self._check_identity(resource, metadata, had)
        metadata["name"] = name
        if not namespace:
            metadata.pop("namespace", None)
        metadata.pop("managedFields", None)
        for field_name in _SERVERS_OWN:
            metadata.pop(field_name, None)
            if field_name in had:
                metadata[field_name] = had[field_name]
        metadata["resourceVersion"] = had["resourceVersion"]
        if subresource == "status":
            # As for custom resources: nothing of the metadata changes with the status.
            new = {**old, "metadata": dict(had), "status": new.get("status", {})}
            problems = [*self.admission.problems(resource, new), *resource.rules.status_problems(new, old)]
            if problems:
                raise invalid_object(resource, name, problems)
        else:
            self._prepare_main(resource, new, old)
        for empty in ("labels", "annotations", "finalizers", "ownerReferences"):
            if not new["metadata"].get(empty, True):
                del new["metadata"][empty]
        if new == old:
            return old
        key = (resource, namespace, name)
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

    def _check_identity(self, resource: Resource, metadata: Document, had: Document) -> None:
        """Refuse what is meant for another object, or for another version of it."""
        name, namespace = str(had["name"]), str(had.get("namespace", ""))
        if metadata.setdefault("namespace", namespace) != namespace:
            msg = "the namespace of the provided object does not match the namespace sent on the request"
            raise bad_request(msg)
        if metadata.get("name", name) != name:
            msg = f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            raise bad_request(msg)
        self._check_version(resource, metadata, had, name)
        if metadata.get("uid", had["uid"]) != had["uid"]:
            raise conflict(
                resource,
                name,
                f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {had['uid']}",
            )

    def _check_version(self, resource: Resource, metadata: Document, had: Document, name: str) -> None:
        given = metadata.get("resourceVersion")
        if given in (None, ""):
            if resource.custom:
                problem = invalid("metadata.resourceVersion", 0, "must be specified for an update")
                problem = replace(problem, text=problem.text.replace("0:", "0x0:", 1))
                raise invalid_object(resource, name, [problem])
        elif given != had["resourceVersion"]:
            raise modified(resource, name)

    # -- deletion --

    def _check_preconditions(self, resource: Resource, current: Document, options: DeleteOptions) -> None:
        metadata = current["metadata"]
        if options.propagation not in (None, *_POLICIES):
            raise StatusError(
                422,
                "Invalid",
                f'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: '
                f'"{options.propagation}": supported values: "Foreground", "Background", "Orphan", "nil"',
            )
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
        """Foreground and Orphan are finalizers, which the garbage collector removes when it is done."""
        if propagation is None:
            return
        metadata = wanted["metadata"]
        kept = [item for item in metadata.get("finalizers") or [] if item not in (FOREGROUND, ORPHAN)]
        kept += {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(propagation, [])
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
            self._remove(key)

    # -- the map itself --

    def _one(self, resource: Resource, name: str, namespace: str) -> Document:
        found = self._objects.get((resource, namespace, name))
        if found is None:
            raise not_found(resource, name)
        return found

    def _of(self, resource: Resource, namespace: str | None) -> Iterator[tuple[Key, Document]]:
        for key, document in self._objects.items():
            if key[0] == resource and namespace in (None, key[1]):
                yield key, document

    def _put(self, key: Key, kind: str, new: Document, old: Document | None) -> None:
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version)
        self._objects[key] = new
        self._ownership.written(key, new, old)
        self._announce(Change(self._version, kind, key[0], key[1], new, old))

    def _remove(self, key: Key) -> Document:
        old = self._objects.pop(key)
        self._version += 1
        last = copy.deepcopy(old)
        last["metadata"]["resourceVersion"] = str(self._version)
        self._ownership.removed(key, old)
        self._announce(Change(self._version, DELETED, key[0], key[1], last, old))
        return copy.deepcopy(last)

    def _announce(self, change: Change) -> None:
        if len(self._history) == self._history.maxlen:
            self._forgotten = self._history[0].version
        self._history.append(change)
        for watch in list(self._watches):
            watch.offer(change)

    def _unwatch(self, watch: Watch) -> None:
        with self._lock:
            self._watches.discard(watch)


def patched_object(resource: Resource, old: Document, patch: Any, kind: str) -> Document:
    """An object with a patch of that content type applied.

    Raises:
        StatusError: 400 for what is no patch, 415 for a type that the resource does not take, 422 where it fails.
    """
    if kind == patches.JSON:
        return patches.patched(old, patch)
    if not isinstance(patch, dict):
        msg = "error decoding patch: json: cannot unmarshal into an object"
        raise bad_request(msg)
    if kind == patches.MERGE:
        new = patches.merged(copy.deepcopy(old), patch)
    elif kind == patches.STRATEGIC and not resource.custom:
        new = patches.strategic(copy.deepcopy(old), patch)
    else:
        raise StatusError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
        )
    result: Document = new
    return result


def _wish(document: Document) -> Document:
    """What the generation counts: all but the metadata and the status."""
    return {key: value for key, value in document.items() if key not in ("metadata", "status")}


def _version_of(document: Document) -> int:
    return int(document["metadata"]["resourceVersion"])


def _order(key: Key) -> tuple[str, str, str, str]:
    return key[0].group, key[0].plural, key[1], key[2]
