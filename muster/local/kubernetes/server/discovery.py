"""What the server says of itself: groups, versions, resources."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from muster.local.kubernetes.kinds.resources import RESOURCES
from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.status_errors import Document

VERSION = "1.33"
_GIT_VERSION = f"v{VERSION}.5-eks-3025e55"
_REVIEWS = {
    "authorization.k8s.io": (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ),
    "authentication.k8s.io": (("selfsubjectreviews", "SelfSubjectReview"),),
}
_HEALTH = ("/healthz", "/livez", "/readyz")


def version() -> Document:
    """The answer to /version."""
    major, minor = VERSION.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": _GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-08-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def groups() -> list[str]:
    """All named groups."""
    named = {resource.group for resource in RESOURCES if resource.group}
    return sorted(named | _REVIEWS.keys())


def discovery(path: str, address: str) -> Document | str | None:
    """The answer to a path of no resource, as an object or as plain text; None where there is nothing.

    Args:
        path: without its query.
        address: host and port of the server.
    """
    if path in _HEALTH:
        return "ok"
    parts = tuple(part for part in path.split("/") if part)
    fixed: dict[tuple[str, ...], Callable[[], Document]] = {
        ("version",): version,
        ("api",): lambda: _core_versions(address),
        ("apis",): lambda: {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in groups()]},
        ("api", "v1"): lambda: _resource_list("", "v1"),
        ("openapi", "v2"): _openapi,
        ("openapi", "v3"): lambda: {"paths": {}},
    }
    if parts in fixed:
        return fixed[parts]()
    if len(parts) == 2 and parts[0] == "apis" and parts[1] in groups():
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(parts[1])}
    if len(parts) == 3 and parts[0] == "apis" and parts[2] in _versions(parts[1]):
        return _resource_list(parts[1], parts[2])
    return None


def _core_versions(address: str) -> Document:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def _versions(group: str) -> list[str]:
    found = {resource.version for resource in RESOURCES if resource.group == group}
    return sorted(found | ({"v1"} if group in _REVIEWS else set()))


def _group(name: str) -> Document:
    versions = [{"groupVersion": f"{name}/{found}", "version": found} for found in _versions(name)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(group: str, found: str) -> Document:
    rows = [
        row for resource in RESOURCES if (resource.group, resource.version) == (group, found) for row in _rows(resource)
    ]
    for plural, kind in _REVIEWS.get(group, ()):
        rows.append({"name": plural, "singularName": "", "namespaced": False, "kind": kind, "verbs": ["create"]})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{found}" if group else found,
        "resources": rows,
    }


def _rows(resource: Resource) -> Iterator[Document]:
    common = {"singularName": resource.singular, "namespaced": resource.namespaced, "kind": resource.kind}
    row: Document = {"name": resource.plural, **common, "verbs": list(resource.verbs)}
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    yield row
    common["singularName"] = ""
    if resource.has_status:
        yield {"name": f"{resource.plural}/status", **common, "verbs": ["get", "patch", "update"]}
    for name, verbs in resource.subresources.items():
        yield {"name": f"{resource.plural}/{name}", **common, "verbs": list(verbs)}


def _openapi() -> Document:
    """As far as clients check objects by it: the kinds, without their fields."""
    definitions = {
        f"{resource.group or 'core'}.{resource.version}.{resource.kind}": {
            "type": "object",
            "x-kubernetes-group-version-kind": [
                {"group": resource.group, "version": resource.version, "kind": resource.kind}
            ],
        }
        for resource in RESOURCES
    }
    info = {"title": "Kubernetes", "version": _GIT_VERSION}
    return {"swagger": "2.0", "info": info, "paths": {}, "definitions": definitions}


def custom_resource_definitions() -> Iterator[Document]:
    """The definitions of all custom resources, as objects to be created."""
    for resource in RESOURCES:
        if resource.custom:
            names = {
                "plural": resource.plural,
                "singular": resource.singular,
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "shortNames": list(resource.short_names),
            }
            served = {
                "name": resource.version,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
            if resource.has_status:
                served["subresources"] = {"status": {}}
            conditions = [
                {"type": kind, "status": "True", "reason": "Ready", "message": ""}
                for kind in ("NamesAccepted", "Established")
            ]
            yield {
                "metadata": {"name": resource.qualified},
                "spec": {
                    "group": resource.group,
                    "scope": "Namespaced" if resource.namespaced else "Cluster",
                    "names": names,
                    "versions": [served],
                },
                "status": {"conditions": conditions, "acceptedNames": names, "storedVersions": [resource.version]},
            }
