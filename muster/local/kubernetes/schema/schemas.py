"""The schemas of the resources.

That of HyperPodPyTorchJob is the committed one. Its pod template is that of Kubernetes, so the schema of pods follows
from it. The others are short, and leave free what nothing here reads.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from muster.contract.hyperpod.job_schema import job_schema
from muster.local.kubernetes.kinds import resources
from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.objects.resource import NAMESPACES, Resource
from muster.local.kubernetes.schema.structural import Schema

Node = dict[str, Any]
TEXT: Node = {"type": "string"}
NUMBER: Node = {"type": "integer"}
FLAG: Node = {"type": "boolean"}
FREE: Node = {"type": "object"}


def _texts(items: Node = TEXT) -> Node:
    return {"type": "array", "items": items}


def _map(values: Node = TEXT) -> Node:
    return {"type": "object", "additionalProperties": values}


def _object(properties: Node, *needed: str) -> Node:
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": list(needed)}


_OWNER = _object(
    {
        "apiVersion": TEXT,
        "kind": TEXT,
        "name": TEXT,
        "uid": TEXT,
        "controller": FLAG,
        "blockOwnerDeletion": FLAG,
    }
)
METADATA = _object(
    {
        "name": TEXT,
        "generateName": TEXT,
        "namespace": TEXT,
        "selfLink": TEXT,
        "uid": TEXT,
        "resourceVersion": TEXT,
        "generation": NUMBER,
        "creationTimestamp": {"type": ["string", "null"]},
        "deletionTimestamp": {"type": ["string", "null"]},
        "deletionGracePeriodSeconds": NUMBER,
        "labels": _map(),
        "annotations": _map(),
        "ownerReferences": _texts(_OWNER),
        "finalizers": _texts(),
        "managedFields": _texts(FREE),
    }
)
_REFERENCE = _object(
    {
        "apiVersion": TEXT,
        "kind": TEXT,
        "name": TEXT,
        "namespace": TEXT,
        "uid": TEXT,
        "resourceVersion": TEXT,
        "fieldPath": TEXT,
    }
)
_RULE = _object(
    {
        "apiGroups": _texts(),
        "resources": _texts(),
        "resourceNames": _texts(),
        "nonResourceURLs": _texts(),
        "verbs": _texts(),
    }
)
_SUBJECT = _object({"kind": TEXT, "name": TEXT, "namespace": TEXT, "apiGroup": TEXT})
_ROLE_REFERENCE = _object({"apiGroup": TEXT, "kind": TEXT, "name": TEXT})
_ROLE: Node = {"rules": _texts(_RULE)}
_BINDING: Node = {"subjects": _texts(_SUBJECT), "roleRef": _ROLE_REFERENCE}
_EVENT: Node = {
    "involvedObject": _REFERENCE,
    "related": _REFERENCE,
    "reason": TEXT,
    "message": TEXT,
    "type": TEXT,
    "action": TEXT,
    "count": NUMBER,
    "eventTime": {"type": ["string", "null"]},
    "firstTimestamp": {"type": ["string", "null"]},
    "lastTimestamp": {"type": ["string", "null"]},
    "source": _object({"component": TEXT, "host": TEXT}),
    "reportingComponent": TEXT,
    "reportingInstance": TEXT,
    "series": FREE,
}
_BODIES: dict[Resource, Node] = {
    NAMESPACES: {"spec": _object({"finalizers": _texts()}), "status": FREE},
    PODS: {"spec": {"$ref": "#/$defs/Spec"}, "status": FREE},
    resources.NODES: {
        "spec": _object(
            {
                "providerID": TEXT,
                "unschedulable": FLAG,
                "podCIDR": TEXT,
                "podCIDRs": _texts(),
                "taints": _texts(_object({"key": TEXT, "value": TEXT, "effect": TEXT, "timeAdded": TEXT})),
            }
        ),
        "status": FREE,
    },
    resources.SERVICE_ACCOUNTS: {
        "automountServiceAccountToken": FLAG,
        "secrets": _texts(_REFERENCE),
        "imagePullSecrets": _texts(_object({"name": TEXT})),
    },
    resources.CONFIG_MAPS: {"data": _map(), "binaryData": _map(), "immutable": FLAG},
    resources.SECRETS: {"data": _map(), "stringData": _map(), "type": TEXT, "immutable": FLAG},
    resources.EVENTS: _EVENT,
    resources.ROLES: _ROLE,
    resources.CLUSTER_ROLES: {**_ROLE, "aggregationRule": FREE},
    resources.ROLE_BINDINGS: _BINDING,
    resources.CLUSTER_ROLE_BINDINGS: _BINDING,
    resources.PRIORITY_CLASSES: {"value": NUMBER, "globalDefault": FLAG, "description": TEXT, "preemptionPolicy": TEXT},
}


@cache
def schema_of(resource: Resource) -> Schema:
    """The schema of a resource; one that is not listed here takes any field beside its metadata."""
    definitions = job_schema()["$defs"]
    envelope: Node = {"apiVersion": TEXT, "kind": TEXT, "metadata": METADATA}
    if resource == resources.JOBS:
        properties = job_schema()["properties"]
        body: Node = {"spec": properties["spec"], "status": properties["status"]}
    elif resource in _BODIES:
        body = _BODIES[resource]
    else:
        return Schema({"type": "object", "properties": envelope, "additionalProperties": True})
    return Schema(_object({**envelope, **body}), definitions)
