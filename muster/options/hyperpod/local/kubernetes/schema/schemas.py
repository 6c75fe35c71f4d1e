"""The schemas of the resources.

That of HyperPodPyTorchJob is the committed one. Its pod template is that of Kubernetes, so the schema of pods follows
from it. The others are short.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from muster.options.hyperpod.contract.job_schema import job_schema
from muster.options.hyperpod.local.kubernetes.kinds import served_resources
from muster.options.hyperpod.local.kubernetes.objects.resource import Resource
from muster.options.hyperpod.local.kubernetes.objects.status_errors import Document, bad_request
from muster.options.hyperpod.local.kubernetes.schema.structural import Schema

Node = dict[str, Any]
_TEXT: Node = {"type": "string"}
_NUMBER: Node = {"type": "integer"}
_FREE: Node = {"type": "object"}
_TIME: Node = {"type": ["string", "null"]}
_MAP: Node = {"type": "object", "additionalProperties": _TEXT}


def _list(items: Node = _TEXT) -> Node:
    return {"type": "array", "items": items}


def _object(properties: Node) -> Node:
    return {"type": "object", "additionalProperties": False, "properties": properties}


_METADATA = _object(
    {
        **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), _TEXT),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _TIME),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), _NUMBER),
        **dict.fromkeys(("labels", "annotations"), _MAP),
        **dict.fromkeys(("ownerReferences", "managedFields"), _list(_FREE)),
        "finalizers": _list(),
    }
)
_RULE = _object(
    dict.fromkeys(("apiGroups", "resources", "resourceNames", "nonResourceURLs", "verbs"), _list()),
)
_SUBJECT = _object(dict.fromkeys(("kind", "name", "namespace", "apiGroup"), _TEXT))
_REFERENCE = _object(dict.fromkeys(("apiGroup", "kind", "name"), _TEXT))
_BODIES: dict[Resource, Node] = {
    served_resources.PODS: {"spec": {"$ref": "#/$defs/Spec"}, "status": _FREE},
    served_resources.SERVICE_ACCOUNTS: {"automountServiceAccountToken": {"type": "boolean"}},
    served_resources.ROLES: {"rules": _list(_RULE)},
    served_resources.ROLE_BINDINGS: {"subjects": _list(_SUBJECT), "roleRef": _REFERENCE},
}


@cache
def schema_of(resource: Resource) -> Schema:
    """The schema of a resource."""
    properties = job_schema()["properties"]
    body = _BODIES.get(resource) or {"spec": properties["spec"], "status": properties["status"]}
    return Schema(_object({"apiVersion": _TEXT, "kind": _TEXT, "metadata": _METADATA, **body}))


def completed(resource: Resource, document: Document) -> Document:
    """A document as it will be kept: without unknown fields, with defaults.

    Raises:
        StatusError: 400 where a field of a wrong type makes a built-in object, or its metadata, unreadable.
    """
    schema = schema_of(resource)
    pruned = schema.pruned(document)
    for problem in schema.problems(pruned):
        # Of a custom resource the metadata alone are read as a built-in type.
        if problem.is_wrong_type and (not resource.custom or problem.path.startswith("metadata")):
            message = (
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"json: cannot unmarshal into Go struct field {resource.kind}.{problem.path}: {problem.text}"
            )
            raise bad_request(message)
    found = schema.defaulted(pruned)
    found.setdefault("metadata", {})  # it was null
    return found
