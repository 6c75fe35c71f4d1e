"""The one application at the endpoint: our service and interface in front of MiniStack's.

Every request is recognised, counted, and held against the faults; then whoever it is for answers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from muster.local import ministack
from muster.local.admin import Admin
from muster.local.calls import Call, CallLog
from muster.local.faults import FaultBook
from muster.local.http import DisconnectedError, Receive, Request, Scope, Send, break_off, discard, respond
from muster.local.recognition import recognise, resources
from muster.local.sagemaker.clients import PLATFORM_SESSION
from muster.local.sagemaker.errors import ServiceError
from muster.local.sagemaker.service import SERVICE_PRINCIPAL, TrainingService

# MiniStack's own interface is open to everyone: only what CloudFormation calls back stays reachable.
_INTERNAL = ("/_ministack/", "/_localstack/", "/_aws/")
_CALLBACKS = ("/_ministack/cfn-response/", "/_ministack/cfn-signal/", "/_ministack/health")
_JSON = "application/x-amz-json-1.1"
_XML_SERVICES = frozenset({"s3", "iam", "sts", "cloudformation", "sqs", "sns"})


class Gateway:
    """An ASGI application."""

    def __init__(
        self, scope: ministack.Scope, training: TrainingService, admin: Admin, faults: FaultBook, calls: CallLog
    ) -> None:
        self._scope = scope
        self._training = training
        self._admin = admin
        self._faults = faults
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] != "http":
            await ministack.application(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            await self._serve(request, send)
        except DisconnectedError:
            return

    async def _serve(self, request: Request, send: Send) -> None:
        if self._admin.owns(request):
            await self._admin.serve(request, send)
            return
        if request.path.startswith(_INTERNAL) and not request.path.startswith(_CALLBACKS):
            await respond(send, 403, b"closed in the embedded cloud", {"content-type": "text/plain"})
            return
        call = await recognise(request)
        access_key = ministack.access_key_of(request)
        if refusal := await _root_refusal(request, access_key):
            await _refuse(send, call, refusal.code, refusal.message, 403)
            return
        role, session = ministack.caller_of(access_key)
        caller = SERVICE_PRINCIPAL if session == PLATFORM_SESSION else role
        self._calls.add(call, caller)
        fault = self._faults.take_call(call, caller, await resources(request, call))
        if fault is None:
            await self._answer(request, call, send)
            return
        if fault.after_effect:
            await self._answer(request, call, discard)
        if fault.disconnect:
            await break_off(send)
        else:
            await _refuse(send, call, fault.code, fault.message, fault.status)

    async def _answer(self, request: Request, call: Call, send: Send) -> None:
        if request.headers.get("x-amz-target", "").startswith("SageMaker."):
            await self._train(request, call.operation, send)
        else:
            await ministack.application(request.scope, request.receive, send)

    async def _train(self, request: Request, operation: str, send: Send) -> None:
        """Answer a call of SageMaker in the JSON 1.1 protocol."""
        await ministack.admit(request, self._scope)

        def authorise(action: str, resource: str, context: Mapping[str, Any]) -> None:
            if refusal := ministack.refusal_of(request, self._scope, action, resource, context):
                raise ServiceError(refusal.code, refusal.message)

        try:
            document = json.loads(await request.body() or b"{}")
            answer = self._training.call(operation, document, authorise)
        except json.JSONDecodeError as error:
            await _refuse(send, Call("sagemaker", operation), "SerializationException", str(error), 400)
        except ServiceError as error:
            await _refuse(send, Call("sagemaker", operation), error.code, error.message, error.status)
        else:
            await respond(send, 200, json.dumps(answer).encode(), _headers(_JSON))


async def _root_refusal(request: Request, access_key: str) -> ministack.Refusal | None:
    if ministack.foreign_root_key(access_key):
        return ministack.Refusal(
            "UnrecognizedClientException", "The security token included in the request is invalid."
        )
    if ministack.is_root(access_key):
        return await ministack.root_signature_refusal(request)
    return None


async def _refuse(send: Send, call: Call, code: str, message: str, status: int) -> None:
    """Answer an error in the protocol of the service that was called."""
    if call.service in _XML_SERVICES:
        inner = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        body = (
            f"<Error>{inner}</Error>"
            if call.service == "s3"
            else f"<ErrorResponse><Error><Type>Sender</Type>{inner}</Error></ErrorResponse>"
        )
        await respond(send, status, body.encode(), _headers("text/xml"))
        return
    body = json.dumps({"__type": code, "message": message})
    await respond(send, status, body.encode(), {**_headers(_JSON), "x-amzn-errortype": code})


def _headers(content_type: str) -> dict[str, str]:
    return {"content-type": content_type, "x-amzn-requestid": str(uuid.uuid4())}
