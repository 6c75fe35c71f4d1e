"""Principals in trust policies and bucket policies: they must exist when the policy is stored, as on AWS.

MiniStack takes every principal, and a `*` in the name of one. By IAM's documentation (*AWS JSON policy elements:
Principal*) a policy keeps the unique id of a role that it names: a new role of the same name is another one.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from ministack.services import eventbridge, iam, s3
from ministack.services.cloudformation import provisioners

from muster.local.ministack.host import Response, listed

_ACCOUNT = re.compile(r"(?:arn:[^:]+:iam::)?(\d{12})(?::root)?")
_ENTITY = re.compile(r"arn:[^:]+:iam::(\d{12}):(role|user)/(?:[^*?]*/)?([^/*?]+)")
_SESSION = re.compile(r"arn:[^:]+:sts::(\d{12}):assumed-role/([^/*?]+)/[^*?]+")


def install(accounts: Collection[str]) -> None:
    """Refuse policies with principals that none of `accounts` has."""
    invalid = partial(first_invalid, accounts)
    for operation, member in (("CreateRole", "AssumeRolePolicyDocument"), ("UpdateAssumeRolePolicy", "PolicyDocument")):
        iam._IAM_HANDLERS[operation] = partial(_handle, iam._IAM_HANDLERS[operation], member, invalid)
    s3._put_bucket_policy = partial(_put, s3._put_bucket_policy, invalid)
    for resource, member in (
        ("AWS::IAM::Role", "AssumeRolePolicyDocument"),
        ("AWS::S3::BucketPolicy", "PolicyDocument"),
    ):
        handlers = provisioners._RESOURCE_HANDLERS[resource]
        for operation, properties in (("create", 1), ("update", 2)):
            handlers[operation] = partial(_provision, handlers[operation], properties, member, invalid)
    handlers = iam._IAM_HANDLERS
    handlers["DeleteRole"] = partial(_delete, handlers["DeleteRole"], lambda request: str(iam._p(request, "RoleName")))
    roles = provisioners._RESOURCE_HANDLERS["AWS::IAM::Role"]
    roles["delete"] = partial(_delete, roles["delete"], str)


_FirstInvalid = Callable[[object], str | None]


def first_invalid(accounts: Collection[str], document: object) -> str | None:
    """The first principal of a policy that does not exist; None if all do."""
    return next((name for name in _named(document) if not _exists(name, accounts)), None)


def _named(document: object) -> Iterator[str]:
    loaded = _loaded(document)
    for statement in listed(loaded.get("Statement", [])) if isinstance(loaded, dict) else []:
        for element in ("Principal", "NotPrincipal"):
            principal = statement.get(element, {})
            names: Any = principal.get("AWS", []) if isinstance(principal, dict) else principal
            yield from listed(names)


def _loaded(document: Any) -> Any:
    return json.loads(document or "{}") if isinstance(document, str | bytes) else document


def _exists(name: str, accounts: Collection[str]) -> bool:
    if name == "*":
        return True
    if account := _ACCOUNT.fullmatch(name):
        return account[1] in accounts
    if entity := _ENTITY.fullmatch(name):
        store = iam._roles if entity[2] == "role" else iam._users
        record = store.get_scoped(entity[1], None, entity[3])
        return record is not None and record["Arn"] == name
    session = _SESSION.fullmatch(name)
    return session is not None and iam._roles.get_scoped(session[1], None, session[2]) is not None


def _message(principal: str) -> str:
    return f'Invalid principal in policy: "AWS":"{principal}"'


def _handle(handle: Callable[[Any], Response], member: str, invalid: _FirstInvalid, request: Any) -> Response:
    if principal := invalid(iam._p(request, member) or "{}"):
        refused: Response = iam._error(400, "MalformedPolicyDocument", _message(principal), ns="iam")
        return refused
    return handle(request)


def _put(put: Callable[[str, bytes], Response], invalid: _FirstInvalid, bucket: str, body: bytes) -> Response:
    try:
        principal = invalid(body)
    except ValueError:
        return put(bucket, body)
    if principal:
        refused: Response = s3._error("MalformedPolicy", "Invalid principal in policy", 400, f"/{bucket}")
        return refused
    return put(bucket, body)


def _provision(
    provision: Callable[..., Any],
    properties: int,
    member: str,
    invalid: _FirstInvalid,
    /,
    *arguments: Any,
    **options: Any,
) -> Any:
    if principal := invalid(arguments[properties].get(member, {})):
        raise ValueError(_message(principal))
    return provision(*arguments, **options)


def _delete(delete: Callable[..., Any], name_of: Callable[[Any], str], /, request: Any, *rest: Any) -> Any:
    """Delete a role; the policies that named it name its unique id from now on, which nobody has any more."""
    name = name_of(request)
    role = iam._roles.get(name)
    answer = delete(request, *rest)
    if role is not None and name not in iam._roles:
        _forget(str(role["Arn"]), str(role["RoleId"]))
    return answer


def _forget(arn: str, unique_id: str) -> None:
    for policies in (s3._bucket_policies._data, eventbridge._event_bus_policies._data):
        for key, policy in list(policies.items()):
            policies[key] = _renamed(policy, arn, unique_id)
    for role in iam._roles.to_dict().values():
        role["AssumeRolePolicyDocument"] = _renamed(role["AssumeRolePolicyDocument"], arn, unique_id)


def _renamed(policy: Any, arn: str, unique_id: str) -> Any:
    """A policy, in the form that it has, in which a principal has another name."""
    if arn not in _named(policy):
        return policy
    document = copy.deepcopy(_loaded(policy))
    for statement in listed(document["Statement"]):
        principal = statement.get("Principal")
        if isinstance(principal, dict) and "AWS" in principal:
            principal["AWS"] = [unique_id if name == arn else name for name in listed(principal["AWS"])]
    return json.dumps(document) if isinstance(policy, str | bytes) else document
