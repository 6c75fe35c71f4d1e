"""Condition keys whose values MiniStack takes from the caller alone.

`aws:ResourceAccount` and `s3:ResourceAccount` are the owner of the bucket, and `aws:PrincipalArn` of a role's session
is the ARN of the role (*AWS global condition context keys*).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ministack.core import iam_evaluator
from ministack.services import iam

from muster.local.ministack.host import bucket_home

_RESOURCE_ACCOUNT = frozenset({"aws:resourceaccount", "s3:resourceaccount"})


def install() -> None:
    """Give the keys their values."""
    iam_evaluator._resolve_condition_key = partial(_resolve_key, iam_evaluator._resolve_condition_key)


def _resolve_key(resolve: Callable[..., object], key: str, context: iam_evaluator.EvalContext) -> object:
    found = resolve(key, context)
    asked = key.lower()
    # A simulation knows no account and no caller.
    if found is None or type(context) is not iam_evaluator.EvalContext:
        return found
    if asked in _RESOURCE_ACCOUNT and ":s3:::" in context.resource_arn:
        home = bucket_home(context.resource_arn.partition(":s3:::")[2].partition("/")[0])
        return home.account_id if home else found
    return role_of(str(found)) if asked == "aws:principalarn" else found


def role_of(principal: str) -> str:
    """The ARN of the role whose session `principal` is; `principal` itself if it is no session's."""
    head, _, session = principal.partition(":assumed-role/")
    if not session:
        return principal
    account = head.split(":")[4]
    role = iam._roles.get_scoped(account, None, session.partition("/")[0])
    return str(role["Arn"]) if role else principal
