"""The caller of a request, and what the caller may do."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ministack.core import iam_actions, iam_evaluator, responses, router, sigv4
from ministack.services import iam, sts

from muster.local.ministack.host import Account
from muster.local.sagemaker.service_errors import ServiceError
from muster.local.service.http_request import EndpointRequest

# The names that MiniStack gives to failed authentications, and what a JSON service calls them.
_AUTHENTICATION_CODES = {
    "SignatureDoesNotMatch": "InvalidSignatureException",
    "MissingAuthenticationToken": "MissingAuthenticationTokenException",
}


def refused(code: str, message: str) -> ServiceError:
    """The error of a call that is not allowed."""
    return ServiceError(_AUTHENTICATION_CODES.get(code, code), message, 403)


def access_key_of(request: EndpointRequest) -> str:
    """The access key that a request names, in its header or its query; empty when it names none."""
    if request.access_key is None:
        request.access_key = str(router.extract_access_key_id(dict(request.headers), request.query))
    return request.access_key


def foreign_root_key(access_key: str) -> bool:
    """Whether MiniStack takes a key for root's although it is not: `test` and bare account numbers."""
    return bool(access_key) and access_key != _root_key() and bool(iam_evaluator.is_root_access_key(access_key))


def is_root(access_key: str) -> bool:
    """Whether this is the root user's key."""
    return access_key == _root_key()


def _root_key() -> str:
    return os.environ["AWS_ACCESS_KEY_ID"]


async def root_signature_refusal(request: EndpointRequest) -> ServiceError | None:
    """Check the signature of a request made with the root key, which MiniStack does not do."""
    presigned = "authorization" not in request.headers
    if presigned and "X-Amz-Signature" not in request.query:
        return refused(
            "InvalidRequest",
            "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.",
        )
    headers = dict(request.headers)
    signature = sigv4.parse_query_signature(request.query) if presigned else sigv4.parse_header_signature(headers)
    if isinstance(signature, tuple):
        return refused(*signature)
    payload = request.headers.get("x-amz-content-sha256", "")
    # A declared payload (UNSIGNED-PAYLOAD, STREAMING-...) or a presigned URL leaves the body out of the signature.
    unsigned = presigned or payload.startswith(("UNSIGNED-PAYLOAD", "STREAMING-"))
    body = b"" if unsigned else await request.body()
    failure = sigv4.header_signature_failure(
        signature,
        os.environ["AWS_SECRET_ACCESS_KEY"],
        request.method,
        request.raw_path,
        request.query,
        headers,
        body,
        presigned=presigned,
    )
    return refused(*failure) if failure else None


def caller_of(access_key: str) -> tuple[str, str]:
    """Role (or `root`, `user/NAME`, `anonymous`) and session name behind an access key."""
    if is_root(access_key):
        return "root", ""
    session = sts._sessions.get(access_key)
    if session is not None:
        role, _, name = str(session["Arn"]).partition(":assumed-role/")[2].partition("/")
        return role, name
    for (_, key), record in iam._access_keys.to_dict().items():
        if key == access_key:
            return f"user/{record.get('UserName', '')}", ""
    return "anonymous", ""


def session_tags_of(access_key: str) -> dict[str, str]:
    """The session tags behind an access key; none if it is not a session's."""
    session = sts._sessions.get(access_key) or {}
    return {str(tag["Key"]): str(tag["Value"]) for tag in session.get("SessionTags") or []}


def is_role_session(access_key: str) -> bool:
    """Whether this is the key of a role's session."""
    return ":assumed-role/" in str((sts._sessions.get(access_key) or {}).get("Arn", ""))


def account_of(access_key: str) -> str | None:
    """The account of a session or a user; None for the root user and for a key that nobody has."""
    session = sts._sessions.get(access_key)
    if session is not None:
        return str(session["Arn"]).split(":")[4]
    found = iam_evaluator.find_iam_access_key_account(access_key)
    return None if found is None else str(found)


async def admit(request: EndpointRequest, account: Account) -> None:
    """Note the caller of `request` in this task's context, where MiniStack's policy evaluation looks for it."""
    access_key = access_key_of(request)
    responses.set_request_account_id(iam_evaluator.find_iam_access_key_account(access_key) or access_key)
    responses.set_request_region(account.region)
    client = (request.scope.get("client") or ("127.0.0.1",))[0]
    iam_evaluator.pin_request_origin(client, request.scope.get("scheme") == "https")
    iam_evaluator.pin_signed_request(request.method, request.raw_path, request.query, request.scope["headers"])
    iam_evaluator.pin_signed_body(await request.body())


def refusal_of(
    request: EndpointRequest, account: Account, action: str, resource: str, context: Mapping[str, object]
) -> ServiceError | None:
    """Why the admitted caller may not do `action` on `resource`; None when it may.

    `context` are condition keys beyond the global ones. The signature is verified on the first call.
    """
    verdict = iam_evaluator.enforce(
        access_key_of(request),
        action,
        action.split(":", 1)[0],
        account.region,
        resource_arn=resource,
        service_context=dict(context),
    )
    if verdict is None:
        return None
    if isinstance(verdict, iam_evaluator.AuthError):
        return refused(verdict.code, verdict.message)
    message = iam_actions.identity_denial_message(action, verdict.principal_arn, resource, verdict.decision == "Deny")
    return refused("AccessDeniedException", message)
