"""AWS::EKS::AccessEntry in a template, which MiniStack's CloudFormation does not have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ministack.services import eks
from ministack.services.cloudformation import provisioners

_TYPE = "AWS::EKS::AccessEntry"
_Result = tuple[str, dict[str, Any]]
_Response = tuple[int, dict[str, str], bytes]


def install() -> None:
    """Let CloudFormation create, update and delete access entries."""
    provisioners._RESOURCE_HANDLERS[_TYPE] = {"create": _create, "update": _update, "delete": _delete}


def _create(_logical_id: str, properties: Mapping[str, Any], _stack: str) -> _Result:
    cluster, principal = properties.get("ClusterName", ""), properties.get("PrincipalArn", "")
    body = {
        "principalArn": principal,
        "kubernetesGroups": list(properties.get("KubernetesGroups") or ()),
        "username": properties.get("Username", ""),
        "type": properties.get("Type", "STANDARD"),
    }
    _require(eks._create_access_entry(cluster, body))
    _associate(cluster, principal, properties.get("AccessPolicies") or ())
    return _result(cluster, principal)


def _update(physical_id: str, old: Mapping[str, Any], new: Mapping[str, Any], stack: str) -> _Result:
    if any(old.get(name) != new.get(name) for name in ("ClusterName", "PrincipalArn", "Type")):
        created = _create("", new, stack)
        _delete(physical_id, old)
        return created
    cluster, principal = new["ClusterName"], new["PrincipalArn"]
    body = {"kubernetesGroups": list(new.get("KubernetesGroups") or ())}
    _require(eks._update_access_entry(cluster, principal, body))
    for policy in old.get("AccessPolicies") or ():
        eks._disassociate_access_policy(cluster, principal, policy["PolicyArn"])
    _associate(cluster, principal, new.get("AccessPolicies") or ())
    return _result(cluster, principal)


def _delete(_physical_id: str, properties: Mapping[str, Any]) -> None:
    eks._delete_access_entry(properties.get("ClusterName", ""), properties.get("PrincipalArn", ""))


def _associate(cluster: str, principal: str, policies: Any) -> None:
    for policy in policies:
        scope = policy.get("AccessScope") or {}
        body = {
            "policyArn": policy["PolicyArn"],
            "accessScope": {"type": scope.get("Type", ""), "namespaces": list(scope.get("Namespaces") or ())},
        }
        _require(eks._associate_access_policy(cluster, principal, body))


def _result(cluster: str, principal: str) -> _Result:
    entry = eks._access_entries[eks._ae_key(cluster, principal)]
    return f"{principal}|{cluster}", {"AccessEntryArn": entry["accessEntryArn"]}


def _require(response: _Response) -> None:
    """Raise ValueError, which fails the resource, where EKS has refused a call."""
    status, _, body = response
    if status != 200:
        message = f"{_TYPE}: {json.loads(body).get('message', body.decode())}"
        raise ValueError(message)
