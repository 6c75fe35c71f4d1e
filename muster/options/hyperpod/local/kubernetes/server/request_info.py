"""What a request asks for, from its method, path and query alone: before it is known whether there is such a thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from muster.options.hyperpod.local.kubernetes.rights.users import Attributes

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "GET": "get", "HEAD": "get", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")


@dataclass(frozen=True)
class RequestInfo:
    """A request, taken apart as a kube-apiserver does it."""

    verb: str
    path: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""

    @property
    def attributes(self) -> Attributes:
        """What an authorizer sees."""
        if not self.is_resource:
            return Attributes(self.verb, path=self.path)
        return Attributes(self.verb, self.group, self.resource, self.subresource, self.namespace, self.name)


def request_info(method: str, raw_path: str, query: Mapping[str, str]) -> RequestInfo:
    """Take a request apart."""
    parts = [unquote(part) for part in raw_path.split("/") if part]
    group_parts = _group_and_version(parts)
    if group_parts is None:
        return RequestInfo(method.lower(), raw_path)
    group, version, rest = group_parts
    namespace, rest = _namespace_of(rest)
    resource, name, *more = (*rest, "", "")
    verb = _VERBS.get(method, method.lower())
    if not name:
        if verb == "get":
            verb = "watch" if query.get("watch") in _TRUE else "list"
        elif verb == "delete":
            verb = "deletecollection"
    return RequestInfo(verb, raw_path, True, group, version, namespace, resource, "/".join(filter(None, more)), name)


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
