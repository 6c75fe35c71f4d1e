"""The schemas of the resources, and a document as it will be kept: without unknown fields, with defaults.

That of HyperPodPyTorchJob is the committed one. Its pod template is that of Kubernetes, so the schema of pods follows
from it. The others are short.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from muster.options.hyperpod.contract.job_schema import (
    SchemaRule,
    job_schema,
    member_path,
    problems_of,
    resolved_schema,
    types_of,
)
from muster.options.hyperpod.contract.object_identity import RBAC
from muster.options.hyperpod.local.kubernetes.served_resources import (
    JOBS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)
from muster.options.hyperpod.local.kubernetes.status_errors import Document, bad_request, words_of

Node = Mapping[str, Any]
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_TEXT: Node = {"type": "string"}
_NAME: Node = {"type": "string", "minLength": 1}
_FREE: Node = {"type": "object"}
_SOME: Node = {"type": "array", "items": _TEXT, "minItems": 1}


def _list(items: Node = _TEXT) -> Node:
    return {"type": "array", "items": items}


def _object(properties: Node, *required: str) -> Node:
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required}


def _metadata() -> Node:
    of_job = job_schema()["properties"]["metadata"]["properties"]
    properties = {
        "name": {"type": "string", "pattern": rf"^(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*$"},
        **dict.fromkeys(("namespace", "generateName", "resourceVersion"), _TEXT),
        **{name: of_job[name] for name in ("labels", "annotations")},
        "ownerReferences": _list(_FREE),
        "finalizers": _list(),
    }
    return _object(properties, "name")


_RULE = _object(
    {
        **dict.fromkeys(("apiGroups", "resources", "verbs"), _SOME),
        "resourceNames": _list(),
        "nonResourceURLs": {"type": "null"},  # a role of a namespace has none
    },
    *("apiGroups", "resources", "verbs"),
)
_RBAC_GROUP: Node = {"type": "string", "enum": [RBAC], "default": RBAC}
_ROLE_OF_NAMESPACE: Node = {"type": "string", "enum": ["Role"]}
_REFERENCE = _object({"apiGroup": _RBAC_GROUP, "kind": _ROLE_OF_NAMESPACE, "name": _NAME}, "kind", "name")
# Access entries give groups: users and service accounts are bound by nobody.
_SUBJECT = _object(
    {"apiGroup": _RBAC_GROUP, "kind": {"type": "string", "enum": ["Group"]}, "name": _NAME}, "kind", "name"
)


@cache
def schema_of(resource: Resource) -> Node:
    """The schema of a resource."""
    bodies: dict[Resource, Node] = {
        JOBS: {"spec": job_schema()["properties"]["spec"]},
        PODS: {"spec": {"$ref": "#/$defs/Spec"}},
        SERVICE_ACCOUNTS: {"automountServiceAccountToken": {"type": "boolean"}},
        ROLES: {"rules": {**_list(_RULE), "default": []}},
        ROLE_BINDINGS: {"subjects": _list(_SUBJECT), "roleRef": _REFERENCE},
    }
    required = {JOBS: ("spec",), PODS: ("spec",), ROLE_BINDINGS: ("roleRef",)}.get(resource, ())
    identity = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": {**_metadata(), "default": {}}}
    return _object({**identity, "status": _FREE, **bodies[resource]}, *required)


def completed(resource: Resource, document: Document) -> tuple[Document, list[str]]:
    """A document as it will be kept: without unknown fields, with defaults; and the paths of the unknown fields.

    Raises:
        StatusError: 400 where a field of a wrong type makes a built-in object, or its metadata, unreadable.
    """
    unknown: list[str] = []
    kept: Document = _completed(document, schema_of(resource), "", unknown)
    for problem in problems_of(kept, schema_of(resource)):
        # Of a custom resource the metadata alone are read as a built-in type.
        if problem.rule is SchemaRule.TYPE and (resource != JOBS or problem.path.startswith("metadata")):
            message = (
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"json: cannot unmarshal into Go struct field {resource.kind}.{problem.path}: {words_of(problem)}"
            )
            raise bad_request(message)
    return kept, unknown


def _completed(value: Any, schema: Node, path: str, unknown: list[str]) -> Any:
    schema = resolved_schema(schema)
    if isinstance(value, list):
        items = schema.get("items", {})
        return [_completed(item, items, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    properties: Mapping[str, Node] = schema.get("properties", {})
    others: Any = schema.get("additionalProperties", not properties)
    kept = {}
    for name, item in value.items():
        member: Any = properties.get(name, others)
        where = member_path(path, name)
        if member is False:
            unknown.append(where)
        # Where the schema takes no null, it stands for a field that is left out.
        elif item is not None or name not in properties or "null" in types_of(resolved_schema(member)):
            kept[name] = _completed(item, member if isinstance(member, Mapping) else {}, where, unknown)
    for name, node in properties.items():
        found = resolved_schema(node)
        if name not in kept and "default" in found:
            kept[name] = _completed(copy.deepcopy(found["default"]), found, member_path(path, name), unknown)
    return kept
