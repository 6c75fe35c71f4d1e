"""What a request asks for, from its method, path and query alone: before it is known whether there is such a thing."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from muster.options.hyperpod.local.kubernetes.rights.users import Attributes

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "GET": "get", "HEAD": "get", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")


def request_info(method: str, raw_path: str, query: Mapping[str, str]) -> Attributes:
    """Take a request apart as a kube-apiserver does it."""
    parts = [unquote(part) for part in raw_path.split("/") if part]
    group_parts = _group_and_version(parts)
    if group_parts is None:
        return Attributes(method.lower(), path=raw_path)
    group, version, rest = group_parts
    namespace, rest = _namespace_of(rest)
    resource, name, *more = (*rest, "", "")
    verb = _VERBS.get(method, method.lower())
    if not name:
        if verb == "get":
            verb = "watch" if query.get("watch") in _TRUE else "list"
        elif verb == "delete":
            verb = "deletecollection"
    return Attributes(verb, group, resource, "/".join(filter(None, more)), namespace, name, version=version)


def _group_and_version(parts: list[str]) -> tuple[str, str, list[str]] | None:
    """Group, version and what follows; None for a path of no resource."""
    if len(parts) >= 3 and parts[0] == "api":
        return "", parts[1], parts[2:]
    if len(parts) >= 4 and parts[0] == "apis":
        return parts[1], parts[2], parts[3:]
    return None


def _namespace_of(parts: list[str]) -> tuple[str, list[str]]:
    if parts[0] != "namespaces" or len(parts) < 2:
        return "", parts
    if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
        return parts[1], parts[2:]
    return parts[1], parts
