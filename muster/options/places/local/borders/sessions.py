"""AssumeRole across accounts: what STS refuses, and MiniStack does not.

MiniStack checks that the caller may assume the role, that the role trusts the caller and its external id, and that the
role lets itself be tagged. By STS's documentation the caller must be allowed to pass tags, too, a session in turn
assumes a role for an hour at most, a role bounds the time of its sessions, and the root user assumes none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn
from urllib.parse import parse_qs

from ministack.services import iam

from muster.local.ministack import callers
from muster.local.ministack.host import Account
from muster.local.sagemaker.service_errors import ServiceError
from muster.local.service.http_request import EndpointRequest

_CHAINED_SECONDS = 3600  # STS: a role that another role's session assumes
_DEFAULT_SECONDS = 3600
_SESSION_NAME = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
_EXTERNAL_ID = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)
_TAGS = 50  # STS: session tags
_TAG_KEY, _TAG_VALUE = re.compile(r"[\w\s_.:/=+\-@]{1,128}"), re.compile(r"[\w\s_.:/=+\-@]{0,256}")


def _refuse(code: str, message: str, status: int = 400) -> NoReturn:
    raise ServiceError(code, message, status)


async def check(request: EndpointRequest, account: Account) -> None:
    """Refuse an AssumeRole of a caller from `account` that STS refuses; let every other call of STS through.

    Raises:
        ServiceError: why.
    """
    if "x-amz-target" in request.headers:
        _refuse("InvalidAction", "STS has the query protocol alone.")
    written = {**request.query, **parse_qs((await request.body()).decode(), keep_blank_values=True)}
    form = {name: values[0] for name, values in written.items()}
    if form.get("Action") != "AssumeRole":
        return
    role_arn = form.get("RoleArn", "")
    _check_texts(form)
    fields = role_arn.split(":")
    if len(fields) < 6:
        return  # MiniStack refuses it
    access_key = callers.access_key_of(request)
    if callers.is_root(access_key) and fields[4] != account.account_id:
        _refuse("AccessDenied", "Roles may not be assumed by root accounts.", 403)
    _check_duration(form, role_arn, chained=callers.is_role_session(access_key))
    tags = session_tags(form)
    if not tags:
        return
    if len(tags) > _TAGS or not all(_TAG_KEY.fullmatch(key) and _TAG_VALUE.fullmatch(tags[key]) for key in tags):
        message = "1 validation error detected: a member of 'tags' failed to satisfy constraint"
        _refuse("ValidationError", message)
    await callers.admit(request, account)
    context: dict[str, object] = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
    context["aws:TagKeys"] = [*tags]
    if refusal := callers.refusal_of(request, account, "sts:TagSession", role_arn, context):
        _refuse("AccessDenied", refusal.message, 403)


def _check_texts(form: Mapping[str, str]) -> None:
    for member, pattern in (("RoleSessionName", _SESSION_NAME), ("ExternalId", _EXTERNAL_ID)):
        if member in form and not pattern.fullmatch(form[member]):
            path = member[0].lower() + member[1:]
            message = (
                f"1 validation error detected: Value '{form[member]}' at '{path}' failed to satisfy constraint: "
                f"Member must satisfy regular expression pattern: {pattern.pattern}"
            )
            _refuse("ValidationError", message)


def _check_duration(form: Mapping[str, str], role_arn: str, *, chained: bool) -> None:
    seconds = int(form.get("DurationSeconds") or _DEFAULT_SECONDS)
    if chained and seconds > _CHAINED_SECONDS:
        message = "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining"
        _refuse("ValidationError", message)
    role = iam._roles.get_scoped(role_arn.split(":")[4], None, role_arn.rsplit("/", 1)[-1])
    longest = int((role or {}).get("MaxSessionDuration") or _DEFAULT_SECONDS)
    if seconds > longest:
        message = "The requested DurationSeconds exceeds the MaxSessionDuration set for this role."
        _refuse("ValidationError", message)


def session_tags(form: Mapping[str, str]) -> dict[str, str]:
    """The tags that a request gives its session."""
    tags, number = {}, 1
    while key := form.get(f"Tags.member.{number}.Key"):
        tags[key] = form.get(f"Tags.member.{number}.Value", "")
        number += 1
    return tags
