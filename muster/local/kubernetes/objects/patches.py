"""Merge patches (RFC 7386) and JSON patches (RFC 6902)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from muster.local.kubernetes.objects.status_errors import Document, StatusError, bad_request

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

_OPERATIONS_MAX = 10_000  # Kubernetes's own limit of a JSON patch


def merged(document: Any, patch: Any) -> Any:
    """The document with a merge patch applied; null removes a key."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


# How strategic merge patches merge lists of objects, by the name of the list. Lists that are not here are replaced.
_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
    "secrets": "name",
    "taints": "key",
    "addresses": "type",
}


def strategic(document: Any, patch: Any, name: str = "") -> Any:
    """The document with a strategic merge patch applied: lists of objects are merged by their key.

    Of the directives, `$patch: delete` and `$patch: replace` are known.
    """
    if isinstance(patch, list):
        return _strategic_list(document, patch, name)
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    if patch.get("$patch") == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != "$patch"}
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = strategic(result.get(key), value, key)
    return result


def _strategic_list(document: Any, patch: list[Any], name: str) -> Any:
    if name == "finalizers":
        have = list(document or [])
        return have + [item for item in patch if item not in have]
    key = _MERGE_KEYS.get(name)
    if key is None or not all(isinstance(item, dict) for item in patch):
        return copy.deepcopy(patch)
    items = [] if any(item.get("$patch") == "replace" for item in patch) else list(document or [])
    for change in patch:
        if change == {"$patch": "replace"}:
            continue
        place = next((index for index, item in enumerate(items) if item.get(key) == change.get(key)), None)
        if change.get("$patch") == "delete":
            if place is not None:
                del items[place]
        elif place is None:
            items.append(strategic({}, change))
        else:
            items[place] = strategic(items[place], change)
    return items


def patched(document: Document, operations: Any) -> Document:
    """The document with a JSON patch applied.

    Raises:
        StatusError: it is no JSON patch, or one of its operations fails.
    """
    if not isinstance(operations, list) or not all(isinstance(item, dict) for item in operations):
        msg = "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        raise bad_request(msg)
    if len(operations) > _OPERATIONS_MAX:
        raise StatusError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {_OPERATIONS_MAX}, got {len(operations)}",
        )
    result: Any = copy.deepcopy(document)
    for operation in operations:
        try:
            result = _applied(result, operation)
        except _PatchError as error:
            raise StatusError(
                422, "Invalid", f"the server rejected our request due to an error in our request: {error}"
            ) from error
    if not isinstance(result, dict):
        msg = "the patch leaves no object"
        raise bad_request(msg)
    return result


class _PatchError(Exception):
    pass


def _applied(document: Any, operation: Document) -> Any:
    kind, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str):
        msg = "missing path"
        raise _PatchError(msg)
    parts = _pointer(path)
    if kind in {"add", "replace", "test"} and "value" not in operation:
        msg = f"{kind} operation missing value"
        raise _PatchError(msg)
    if kind == "add":
        return _put(document, parts, operation["value"], inserts=True)
    if kind == "replace":
        _get(document, parts)
        return _put(document, parts, operation["value"], inserts=False)
    if kind == "remove":
        return _removed(document, parts)
    if kind == "test":
        if _get(document, parts, missing=None) != operation["value"]:
            msg = f"testing value {path} failed: test failed"
            raise _PatchError(msg)
        return document
    if kind in {"move", "copy"}:
        source = _pointer(str(operation.get("from", "")))
        value = copy.deepcopy(_get(document, source))
        if kind == "move":
            document = _removed(document, source)
        return _put(document, parts, value, inserts=True)
    msg = f"Unexpected kind: {kind}"
    raise _PatchError(msg)


def _pointer(path: str) -> list[str]:
    if path and not path.startswith("/"):
        msg = f"bad path {path}"
        raise _PatchError(msg)
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


_NOTHING = object()


def _get(document: Any, parts: Sequence[str], missing: Any = _NOTHING) -> Any:
    for part in parts:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        elif missing is _NOTHING:
            msg = f"doc is missing path: /{'/'.join(parts)}: missing value"
            raise _PatchError(msg)
        else:
            return missing
    return document


def _put(document: Any, parts: Sequence[str], value: Any, *, inserts: bool) -> Any:
    if not parts:
        return copy.deepcopy(value)
    parent, last = _get(document, parts[:-1]), parts[-1]
    if isinstance(parent, dict):
        parent[last] = copy.deepcopy(value)
    elif isinstance(parent, list):
        place = len(parent) if last == "-" else int(last) if last.isdigit() else -1
        if place < 0 or place > len(parent):
            msg = f"Unable to access invalid index: {last}"
            raise _PatchError(msg)
        if inserts:
            parent.insert(place, copy.deepcopy(value))
        else:
            parent[place] = copy.deepcopy(value)
    else:
        msg = f"/{'/'.join(parts)} is not in an object or array"
        raise _PatchError(msg)
    return document


def _removed(document: Any, parts: Sequence[str]) -> Any:
    _get(document, parts)
    if not parts:
        msg = "the whole document cannot be removed"
        raise _PatchError(msg)
    parent = _get(document, parts[:-1])
    if isinstance(parent, list):
        del parent[int(parts[-1])]
    else:
        del parent[parts[-1]]
    return document
