"""Role sessions as SageMaker makes them for a job: whether it may, their credentials, and what they may do."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, replace

from ministack.core import iam_evaluator
from ministack.services import iam, sts

from muster.local.ministack.host import Account, listed

SESSION_SECONDS = 24 * 3600.0
"""How long a session of the platform lasts."""


@dataclass(frozen=True)
class RoleGrant:
    """A role that a job was given, and what every session of it has."""

    role_arn: str
    session_tags: tuple[tuple[str, str], ...] = ()
    policy: str = ""
    """A session policy, in JSON: a session may do what the role and this policy allow."""


@dataclass(frozen=True)
class RoleCredentials:
    """A role session's credentials."""

    access_key_id: str
    secret_access_key: str
    session_token: str


def role_admits(account: Account, grant: RoleGrant, service: str, source_arn: str) -> bool:
    """Whether the role exists and its trust policy lets `service` assume it, with its tags, for `source_arn`."""
    role_arn, session_tags = grant.role_arn, dict(grant.session_tags)
    role = iam._roles.get_scoped(role_arn.split(":")[4], None, role_arn.rsplit("/", 1)[-1])
    if role is None or role["Arn"] != role_arn:
        return False
    document = role["AssumeRolePolicyDocument"]
    policy = json.loads(document) if isinstance(document, str) else document
    context = iam_evaluator.EvalContext(
        principal_arn="",
        principal_type="Service",
        principal_account=account.account_id,
        action="sts:AssumeRole",
        resource_arn=role_arn,
        region=account.region,
        request_tags=session_tags,
        tag_keys=list(session_tags),
        service_context={"aws:sourceaccount": account.account_id, "aws:sourcearn": source_arn},
    )
    # MiniStack asks a trust policy about the caller alone, which a service is not: its statements are chosen here.
    named = [
        {**one, "Principal": "*"}
        for one in listed(policy.get("Statement", []))
        if iam_evaluator._service_principal_matches(one.get("Principal"), service)
    ]
    needed = ("sts:AssumeRole", "sts:TagSession") if session_tags else ("sts:AssumeRole",)
    return all(
        iam_evaluator.evaluate_trust_policy({**policy, "Statement": named}, service, replace(context, action=action))
        for action in needed
    )


def role_session(account: Account, grant: RoleGrant, name: str, seconds: float = SESSION_SECONDS) -> RoleCredentials:
    """A session of the role for `seconds`, as the service itself makes one for a job."""
    role_name = grant.role_arn.rsplit("/", 1)[-1]
    credentials = RoleCredentials(
        access_key_id=f"ASIA{secrets.token_hex(8).upper()}",
        secret_access_key=secrets.token_urlsafe(30),
        session_token=secrets.token_urlsafe(120),
    )
    sts.register_session(
        credentials.access_key_id,
        {
            "Arn": f"arn:{account.partition}:sts::{account.account_id}:assumed-role/{role_name}/{name}",
            "UserId": f"{role_name}:{name}",
            "AccountId": account.account_id,
            "PrincipalType": "AssumedRole",
            "SecretAccessKey": credentials.secret_access_key,
            "SessionToken": credentials.session_token,
            "Expiration": time.time() + seconds,
            "SessionTags": [{"Key": key, "Value": value} for key, value in grant.session_tags],
            **({"SessionPolicies": {"Policy": grant.policy, "PolicyArns": []}} if grant.policy else {}),
        },
    )
    return credentials


def session_may(account: Account, credentials: RoleCredentials, action: str, resource: str) -> bool:
    """Whether the policies of a role session allow `action` on `resource`."""
    principal = iam_evaluator.resolve_principal(credentials.access_key_id, account.account_id)
    if isinstance(principal, iam_evaluator.AuthError) or principal.policies is None:
        return False
    context = iam_evaluator.EvalContext(
        principal_arn=principal.arn,
        principal_type=principal.type,
        principal_account=principal.account,
        action=action,
        resource_arn=resource,
        region=account.region,
        principal_keys=principal.keys,
    )
    return bool(iam_evaluator.evaluate(context, principal.policies, *principal.limits).decision == "Allow")
