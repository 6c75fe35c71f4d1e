"""The AWS call that an HTTP request makes: from its headers, or from botocore's model of a REST service."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import parse_qs, unquote

from botocore.exceptions import UnknownServiceError

from muster.contract.document import json_object
from muster.local.counted_calls import Call
from muster.local.sagemaker.request_validation import service_model
from muster.local.service.http_request import EndpointRequest

_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/([^/]*)/([^/]+)/aws4_request")
_PLACEHOLDER = re.compile(r"\{(\w+)(\+?)\}")
_SMITHY = re.compile(r"/service/\w+/operation/(\w+)")  # the path of the CBOR protocol
_FORM = "application/x-www-form-urlencoded"


async def recognise(request: EndpointRequest) -> Call:
    """The service and operation that a request calls."""
    service = _scope(request)[1] or "unsigned"
    if target := request.headers.get("x-amz-target"):
        return Call(service, target.rsplit(".", 1)[-1])
    if smithy := _SMITHY.fullmatch(request.path):
        return Call(service, smithy[1])
    if action := request.query.get("Action"):
        return Call(service, action[0])
    if request.headers.get("content-type", "").startswith(_FORM):
        form = parse_qs((await request.body()).decode("latin-1"))
        return Call(service, form.get("Action", ["unknown"])[0])
    return Call(service, _rest_operation(service, request))


def signed_region(request: EndpointRequest) -> str:
    """The region for which a request is signed; empty if it is not."""
    return _scope(request)[0]


def _scope(request: EndpointRequest) -> tuple[str, str]:
    """Region and service for which a request is signed, in its header or its query; empty if it is not."""
    if scope := _SCOPE.search(request.headers.get("authorization", "")):
        return scope[1], scope[2]
    credential = request.query.get("X-Amz-Credential", [""])[0].split("/")
    return (credential[2], credential[3]) if len(credential) == 5 else ("", "")


async def resources(request: EndpointRequest, call: Call) -> Collection[str]:
    """The names that a fault's resource glob may match; never empty, so that `*` matches every call."""
    if request.headers.get("x-amz-target"):
        return ["", *(value for value in (await document_of(request)).values() if isinstance(value, str))]
    return [_object_path(request) if call.service == "s3" else unquote(request.path).lstrip("/")]


async def document_of(request: EndpointRequest) -> dict[str, Any]:
    """The JSON object of a request; an empty one where it has none."""
    return json_object(await request.body())


def object_of(request: EndpointRequest) -> tuple[str, str]:
    """Bucket and key that an S3 request names; empty where it names none."""
    bucket, _, key = _object_path(request).partition("/")
    return bucket, key


def _object_path(request: EndpointRequest) -> str:
    return _bucket_prefix(request) + unquote(request.path).lstrip("/")


def _bucket_prefix(request: EndpointRequest) -> str:
    """`bucket/` for a virtual-hosted S3 request, nothing for path style."""
    host = request.headers.get("host", "").split(":")[0]
    label, _, rest = host.partition(".")
    return f"{label}/" if rest.endswith("localhost") and label != "s3" else ""


@dataclass(frozen=True)
class _Route:
    operation: str
    pattern: re.Pattern[str]
    literals: frozenset[tuple[str, str]]


@cache
def _routes(service: str) -> Mapping[str, Sequence[_Route]]:
    """The REST routes of a service by their methods of HTTP, from botocore's model of it."""
    routes: defaultdict[str, list[_Route]] = defaultdict(list)
    try:
        model = service_model(service)
    except UnknownServiceError:
        return routes
    for operation in model.operation_names:
        http = model.operation_model(operation).http
        path, _, query = http["requestUri"].partition("?")
        pattern = _PLACEHOLDER.sub(lambda found: ".+" if found[2] else "[^/]+", re.sub(r"/$", "", path))
        literals = frozenset(
            (key, value) for key, _, value in (part.partition("=") for part in query.split("&")) if key
        )
        routes[http["method"]].append(_Route(operation, re.compile(pattern + "/?"), literals))
    return routes


def _rest_operation(service: str, request: EndpointRequest) -> str:
    path = "/" + _bucket_prefix(request) + request.path.lstrip("/") if service == "s3" else request.path
    query = request.query
    if service == "s3" and (special := _s3_special(request.method, query, request.headers)):
        return special
    candidates = [
        route
        for route in _routes(service).get(request.method, ())
        # Most of a service's routes need a parameter that the request does not have: that is seen sooner than a path.
        if all(key in query and (not value or value in query[key]) for key, value in route.literals)
        and route.pattern.fullmatch(path)
    ]
    # The most query literals win; among equals the plain operation (ListBuckets before ListDirectoryBuckets).
    best = min(candidates, key=lambda route: (-len(route.literals), len(route.operation)), default=None)
    return best.operation if best else "unknown"


def _s3_special(method: str, query: dict[str, list[str]], headers: Mapping[str, str]) -> str | None:
    """Operations that differ only in parameters and headers."""
    if "uploadId" in query:
        part = "UploadPartCopy" if "x-amz-copy-source" in headers else "UploadPart"
        return {
            "PUT": part,
            "POST": "CompleteMultipartUpload",
            "DELETE": "AbortMultipartUpload",
            "GET": "ListParts",
        }.get(method)
    if method == "PUT" and "x-amz-copy-source" in headers:
        return "CopyObject"
    return None
