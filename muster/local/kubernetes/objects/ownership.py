"""What follows from owners: the garbage collector, and the end of namespaces.

A kube-controller-manager does this a while after the change; here it is done before the change is answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from muster.local.kubernetes.objects.metadata import FOREGROUND
from muster.local.kubernetes.objects.resource import NAMESPACES, Resource
from muster.local.kubernetes.objects.status_errors import Document

Key = tuple[Resource, str, str]
"""Resource, namespace ("" for an object without), name."""


@dataclass(frozen=True)
class DeleteOptions:
    """How an object is deleted."""

    propagation: str | None = None
    """Background or Foreground; None: in the background."""
    grace_seconds: int | None = None
    """None: as the object says."""
    uid: str | None = None
    resource_version: str | None = None


class Objects(Protocol):
    """The objects of the store. Every method is called under its lock."""

    def objects(self) -> Iterator[tuple[Key, Document]]:
        """Every object with its key; nothing may change them."""

    def document(self, key: Key) -> Document | None:
        """The object of a key; nothing may change it."""

    def rewrite(self, key: Key, change: Callable[[Document], None]) -> None:
        """Change metadata that only the server changes; an object that waited for that alone is gone."""

    def remove(self, key: Key) -> Document:
        """Remove an object, whatever it waits for."""

    def delete(
        self, resource: Resource, name: str, namespace: str = "", options: DeleteOptions | None = None
    ) -> tuple[Document, bool]:
        """Delete an object."""


class Ownership:
    """Owners and their dependents. Every method is called under the store's lock."""

    def __init__(self, store: Objects) -> None:
        self._store = store
        self._keys: dict[str, Key] = {}
        """The object of each uid."""
        self._dependents: dict[str, set[Key]] = {}
        """Who names an owner of that uid."""
        self._due: deque[Key] = deque()
        self._busy = False

    def written(self, key: Key, new: Document, old: Document | None) -> None:
        """Note an object that was created or changed."""
        for reference in _owners(old):
            self._dependents.get(reference["uid"], set()).discard(key)
        for reference in _owners(new):
            self._dependents.setdefault(reference["uid"], set()).add(key)
        self._keys[new["metadata"]["uid"]] = key
        if _owners(new) or new["metadata"].get("deletionTimestamp"):
            self._due.append(key)

    def removed(self, key: Key, old: Document) -> None:
        """Note an object that is gone."""
        uid = old["metadata"]["uid"]
        self._keys.pop(uid, None)
        self._due.extend(sorted(self._dependents.get(uid, ()), key=lambda item: item[1:]))
        for reference in _owners(old):
            self._dependents.get(reference["uid"], set()).discard(key)
            if owner := self._keys.get(reference["uid"]):
                self._due.append(owner)
        if key[1]:
            self._due.append((NAMESPACES, "", key[1]))

    def collect(self) -> None:
        """Do what is due, and what follows from it."""
        if self._busy:
            return
        self._busy = True
        try:
            while self._due:
                key = self._due.popleft()
                if document := self._store.document(key):
                    self._look_at(key, document)
        finally:
            self._busy = False

    def _look_at(self, key: Key, document: Document) -> None:
        if key[0] == NAMESPACES:
            self._end_namespace(key, document)
        elif document["metadata"].get("deletionTimestamp"):
            self._finish(key, document)
        else:
            self._check_owners(key, document)

    def _end_namespace(self, key: Key, document: Document) -> None:
        if not document["metadata"].get("deletionTimestamp"):
            return
        inside = [other for other, _ in self._store.objects() if other[1] == key[2]]
        for other in inside:
            found = self._store.document(other)
            if found and not found["metadata"].get("deletionTimestamp"):
                self._delete(other)
        empty = not any(other[1] == key[2] for other, _ in self._store.objects())
        if empty and not document["metadata"].get("finalizers"):
            self._store.remove(key)

    def _finish(self, key: Key, document: Document) -> None:
        """Let an object that is being deleted release its dependents, or wait for them."""
        finalizers = document["metadata"].get("finalizers") or []
        uid = document["metadata"]["uid"]
        dependents = sorted(self._dependents.get(uid, ()), key=lambda item: item[1:])
        if FOREGROUND in finalizers:
            blocked = False
            for dependent in dependents:
                found = self._store.document(dependent)
                if found is None:
                    continue
                self._check_owners(dependent, found)
                if self._store.document(dependent) and any(
                    reference["uid"] == uid and reference.get("blockOwnerDeletion") for reference in _owners(found)
                ):
                    blocked = True
            if not blocked and self._store.document(key):
                self._store.rewrite(key, _drop_foreground)

    def _check_owners(self, key: Key, document: Document) -> None:
        """Delete an object whose owners are all gone or wait for their dependents; forget owners that are gone."""
        if document["metadata"].get("deletionTimestamp"):
            return
        gone, waiting, solid = set(), set(), False
        for reference in _owners(document):
            owner = self._owner(reference["uid"], document)
            if owner is None:
                gone.add(reference["uid"])
            elif owner["metadata"].get("deletionTimestamp") and FOREGROUND in (
                owner["metadata"].get("finalizers") or []
            ):
                waiting.add(reference["uid"])
            else:
                solid = True
        if not gone and not waiting:
            return
        if solid:
            self._store.rewrite(key, lambda own: _disown(own, gone | waiting))
        else:
            self._delete(key, foreground=bool(waiting) and bool(self._dependents.get(document["metadata"]["uid"])))

    def _owner(self, uid: str, dependent: Document) -> Document | None:
        """The owner of that uid: in the same namespace, or without one."""
        key = self._keys.get(uid)
        if key is None or key[1] not in ("", dependent["metadata"].get("namespace", "")):
            return None
        return self._store.document(key)

    def _delete(self, key: Key, *, foreground: bool = False) -> None:
        options = DeleteOptions(propagation="Foreground" if foreground else None)
        self._store.delete(key[0], key[2], key[1], options)


def _owners(document: Document | None) -> list[dict[str, Any]]:
    return (document or {}).get("metadata", {}).get("ownerReferences") or []


def _disown(document: Document, uids: set[str]) -> None:
    metadata = document["metadata"]
    kept = [reference for reference in _owners(document) if reference["uid"] not in uids]
    if kept:
        metadata["ownerReferences"] = kept
    else:
        metadata.pop("ownerReferences", None)


def _drop_foreground(document: Document) -> None:
    metadata = document["metadata"]
    kept = [item for item in metadata.get("finalizers") or [] if item != FOREGROUND]
    if kept:
        metadata["finalizers"] = kept
    else:
        metadata.pop("finalizers", None)
