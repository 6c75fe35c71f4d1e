"""Access entries as EKS takes them: which principals and groups, and which are refused; and those of a template."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ministack.core import responses
from ministack.services import eks, iam
from ministack.services.cloudformation import provisioners

from muster.local.ministack.host import Account

Response = tuple[int, dict[str, str], bytes]
_RESOURCE = "AWS::EKS::AccessEntry"
_Created = tuple[str, dict[str, Any]]
_RESERVED = ("system:", "eks:", "aws:", "amazon:", "iam:")
_PRINCIPAL = re.compile(r"arn:[^:]+:iam::(\d{12}):(role|user)/(?:.*/)?([^/]+)")


def install(account: Account) -> None:
    """Let MiniStack refuse what EKS refuses, name entries as EKS does, and make them from templates."""
    eks._create_access_entry = checked(eks._create_access_entry, _creation_problem)
    eks._update_access_entry = checked(eks._update_access_entry, lambda _cluster, _principal, body: _problem(body))
    eks._associate_access_policy = checked(eks._associate_access_policy, _policy_problem)
    eks._access_entry_arn = lambda cluster, principal: entry_arn(account, cluster, principal, responses.new_uuid())
    provisioners._RESOURCE_HANDLERS[_RESOURCE] = {"create": _create, "update": _update, "delete": _delete}


def checked(call: Callable[..., Response], problem: Callable[..., Response | None]) -> Callable[..., Response]:
    """A call of MiniStack, unless `problem` answers in its place."""

    @functools.wraps(call)
    def asked(*arguments: Any) -> Response:
        return problem(*arguments) or call(*arguments)

    return asked


def refused(code: str, message: str, status: int = 400) -> Response:
    """An error of EKS."""
    response: Response = eks._error(status, code, message)
    return response


def _creation_problem(cluster: str, body: dict[str, Any]) -> Response | None:
    found = eks._clusters.get(cluster)
    if found is not None:
        mode = found.get("accessConfig", {}).get("authenticationMode", "CONFIG_MAP")
        if mode not in ("API", "API_AND_CONFIG_MAP"):
            return refused(
                "InvalidRequestException",
                "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform "
                "this operation.",
            )
        if wrong := _principal_problem(str(body.get("principalArn", ""))):
            return refused("InvalidParameterException", wrong)
    return _problem(body)


def _policy_problem(_cluster: str, _principal: str, body: dict[str, Any]) -> Response | None:
    policy = body.get("policyArn", "")
    if eks._access_policy_name(policy) is None:
        return refused("InvalidParameterException", f"The policyArn {policy} is not valid.")
    return None


def _principal_problem(arn: str) -> str | None:
    """EKS looks a principal up when its entry is made."""
    found = _PRINCIPAL.fullmatch(arn)
    if found is None:
        return "The specified principalArn is invalid: invalid principal."
    account, kind, name = found.groups()
    store = iam._roles if kind == "role" else iam._users
    record = store.get_scoped(account, None, name)
    if record is None or record["Arn"] != arn:
        return (
            "The specified principalArn could not be found. You can view your available principals with "
            f"'aws iam list-{kind}s'."
        )
    return None


def _problem(body: Mapping[str, Any]) -> Response | None:
    if body.get("username"):
        return refused("NotImplemented", "The embedded cloud names the users of access entries by their sessions.", 501)
    for group in body.get("kubernetesGroups") or ():
        for prefix in _RESERVED:
            if str(group).startswith(prefix):
                message = f"The kubernetes group name {group} is invalid, it cannot start with {prefix}"
                return refused("InvalidParameterException", message)
    return None


def entry_arn(account: Account, cluster: str, principal: str, mark: str) -> str:
    """The ARN of an entry says whose it is: account, kind and name of its principal."""
    parts = principal.split(":", 5)
    kind, _, path = parts[-1].partition("/")
    owner, name = parts[4] if len(parts) > 4 else "", path.rpartition("/")[2] or "root"
    return account.arn("eks", f"access-entry/{cluster}/{kind}/{owner}/{name}/{mark}")


# The resource of CloudFormation, which MiniStack does not have.


def _create(_logical_id: str, properties: Mapping[str, Any], _stack: str) -> _Created:
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


def _update(physical_id: str, old: Mapping[str, Any], new: Mapping[str, Any], stack: str) -> _Created:
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


def _result(cluster: str, principal: str) -> _Created:
    entry = eks._access_entries[eks._ae_key(cluster, principal)]
    return f"{principal}|{cluster}", {"AccessEntryArn": entry["accessEntryArn"]}


def _require(response: Response) -> None:
    """Raise ValueError, which fails the resource, where EKS has refused a call."""
    status, _, body = response
    if status != 200:
        message = f"{_RESOURCE}: {json.loads(body).get('message', body.decode())}"
        raise ValueError(message)
