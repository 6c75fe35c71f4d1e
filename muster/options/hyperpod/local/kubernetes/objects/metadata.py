"""The metadata of objects: which names and labels are allowed, and the selectors that name labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from muster.options.hyperpod.local.kubernetes.objects.resource import Resource
from muster.options.hyperpod.local.kubernetes.objects.status_errors import (
    Document,
    Problem,
    bad_request,
    invalid,
    not_served,
    required,
    too_long,
)

_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_LABEL_KEY = re.compile(rf"(?:(?P<prefix>{_PREFIX})/)?{_NAME}")
_LABEL_VALUE = re.compile(rf"({_NAME})?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PATH_SEGMENT = re.compile(r"(?!\.{1,2}$)[^/%]+")
_NAME_BYTES = 253
_ANNOTATION_BYTES = 256 * 1024
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
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
_FREE_NAMES = frozenset({"roles", "rolebindings"})


def metadata_problems(resource: Resource, new: Document) -> Iterator[Problem]:
    """What is wrong with the metadata of an object that someone wants to create."""
    metadata = new["metadata"]
    yield from _name_problems(resource, metadata)
    yield from _label_problems("metadata.labels", metadata.get("labels"))
    yield from _annotation_problems(metadata.get("annotations"))


def _name_problems(resource: Resource, metadata: Document) -> Iterator[Problem]:
    name = metadata.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif resource.plural in _FREE_NAMES:
        if not _PATH_SEGMENT.fullmatch(name):
            yield invalid("metadata.name", name, "may not contain '/' or '%'")
    elif len(name) > _NAME_BYTES:
        yield invalid("metadata.name", name, f"must be no more than {_NAME_BYTES} characters")
    elif not _SUBDOMAIN.fullmatch(name):
        yield invalid("metadata.name", name, _SUBDOMAIN_TEXT)


def _label_problems(path: str, labels: Any) -> Iterator[Problem]:
    for key, value in (labels or {}).items():
        if not _is_label_key(key):
            yield invalid(path, key, _KEY_TEXT)
        if not _is_label_value(value):
            text = "must be no more than 63 characters" if len(value) > 63 else _LABEL_VALUE_TEXT
            yield invalid(path, value, text)


def _annotation_problems(annotations: Any) -> Iterator[Problem]:
    total = 0
    for key, value in (annotations or {}).items():
        if not _is_label_key(key.lower()):
            yield invalid("metadata.annotations", key, _KEY_TEXT)
        total += len(key.encode()) + len(value.encode())
    if total > _ANNOTATION_BYTES:
        yield too_long("metadata.annotations", _ANNOTATION_BYTES)


def _is_label_key(key: str) -> bool:
    """Whether a text may be the key of a label or an annotation."""
    found = _LABEL_KEY.fullmatch(key)
    return found is not None and len(found["prefix"] or "") <= 253


def _is_label_value(value: str) -> bool:
    """Whether a text may be the value of a label."""
    return _LABEL_VALUE.fullmatch(value) is not None


def parse_labels(text: str) -> dict[str, str]:
    """The labels that `a=b,c=d` asks for. Kubernetes has other selectors, too, which are not served.

    Raises:
        StatusError: it cannot be parsed.
    """
    wanted = {}
    for part in text.split(",") if text.strip() else []:
        key, equal, value = part.partition("=")
        if not equal or key.endswith("!"):
            what = f"the label selector {text!r}"
            raise not_served(what)
        if not _is_label_key(key.strip()) or not _is_label_value(value.removeprefix("=").strip()):
            message = f"unable to parse requirement: {part!r} is no key with a value"
            raise bad_request(message)
        wanted[key.strip()] = value.removeprefix("=").strip()
    return wanted


def has_labels(document: Document, wanted: Mapping[str, str]) -> bool:
    """Whether an object has all these labels."""
    return wanted.items() <= (document["metadata"].get("labels") or {}).items()
