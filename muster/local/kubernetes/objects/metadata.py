"""The metadata of objects: which names, labels and owners are allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.selectors import is_label_key, is_label_value
from muster.local.kubernetes.objects.status_errors import (
    Document,
    Problem,
    forbidden_field,
    invalid,
    required,
    too_long,
)

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PATH_SEGMENT = re.compile(r"(?!\.{1,2}$)[^/%]+")
_NAME_BYTES = 253
_ANNOTATION_BYTES = 256 * 1024
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
# Objects whose names may have what a path segment may have.
_FREE_NAMES = frozenset({"roles", "rolebindings", "clusterroles", "clusterrolebindings"})
FOREGROUND = "foregroundDeletion"
_PLAIN_FINALIZERS = frozenset({FOREGROUND, "orphan", "kubernetes"})


def metadata_problems(resource: Resource, new: Document, old: Document | None) -> Iterator[Problem]:
    """What is wrong with the metadata of an object that someone wants to write."""
    metadata = new["metadata"]
    yield from _name_problems(resource, metadata)
    yield from _label_problems("metadata.labels", metadata.get("labels"))
    yield from _annotation_problems(metadata.get("annotations"))
    yield from _owner_problems(metadata.get("ownerReferences"))
    yield from _finalizer_problems(metadata.get("finalizers"), old)


def _name_problems(resource: Resource, metadata: Document) -> Iterator[Problem]:
    name = metadata.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif resource.plural in _FREE_NAMES:
        if not _PATH_SEGMENT.fullmatch(name):
            yield invalid("metadata.name", name, "may not contain '/' or '%'")
    elif resource.plural == "namespaces":
        if len(name) > 63:
            yield invalid("metadata.name", name, "must be no more than 63 characters")
        elif not _LABEL.fullmatch(name):
            yield invalid("metadata.name", name, _LABEL_TEXT)
    elif len(name) > _NAME_BYTES:
        yield invalid("metadata.name", name, f"must be no more than {_NAME_BYTES} characters")
    elif not _SUBDOMAIN.fullmatch(name):
        yield invalid("metadata.name", name, _SUBDOMAIN_TEXT)


def _label_problems(path: str, labels: Any) -> Iterator[Problem]:
    for key, value in (labels or {}).items():
        if not is_label_key(key):
            yield invalid(path, key, _KEY_TEXT)
        if not is_label_value(value):
            text = "must be no more than 63 characters" if len(value) > 63 else _LABEL_VALUE_TEXT
            yield invalid(path, value, text)


def _annotation_problems(annotations: Any) -> Iterator[Problem]:
    total = 0
    for key, value in (annotations or {}).items():
        if not is_label_key(key.lower()):
            yield invalid("metadata.annotations", key, _KEY_TEXT)
        total += len(key.encode()) + len(value.encode())
    if total > _ANNOTATION_BYTES:
        yield too_long("metadata.annotations", _ANNOTATION_BYTES)


def _owner_problems(owners: Any) -> Iterator[Problem]:
    controllers = 0
    for index, owner in enumerate(owners or []):
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                yield invalid(
                    f"metadata.ownerReferences[{index}].{key}", owner.get(key, ""), f"{key} must not be empty"
                )
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        yield invalid(
            "metadata.ownerReferences",
            owners,
            "Only one reference can have Controller set to true. Found more than one",
        )


def _finalizer_problems(finalizers: Any, old: Document | None) -> Iterator[Problem]:
    for finalizer in finalizers or []:
        if "/" not in finalizer and finalizer not in _PLAIN_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid("metadata.finalizers", finalizer, text)
    if old and old["metadata"].get("deletionTimestamp"):
        had = old["metadata"].get("finalizers") or []
        added = [finalizer for finalizer in finalizers or [] if finalizer not in had]
        if added:
            listed = ", ".join(f'"{finalizer}"' for finalizer in added)
            yield forbidden_field(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}",
            )
