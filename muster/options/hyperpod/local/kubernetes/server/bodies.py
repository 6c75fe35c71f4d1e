"""The bodies of requests: which types are read, and which fields are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from muster.options.hyperpod.local.kubernetes.objects.resource import Resource
from muster.options.hyperpod.local.kubernetes.objects.status_errors import Document, bad_request, not_served
from muster.options.hyperpod.local.kubernetes.schema.schemas import schema_of

BODY_BYTES_MAX = 3 * 1024 * 1024  # kube-apiserver: maxRequestBodyBytes
OBJECT_BYTES_MAX = 1_572_864  # etcd: --max-request-bytes
_JSON = "application/json"


class _Noted(dict[str, Any]):
    """A JSON object that notes which of its keys were there twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        keys = [key for key, _ in pairs]
        self.doubles = sorted({key for key in keys if keys.count(key) > 1})


def read_body(body: bytes, headers: Mapping[str, str], what: str = "the object") -> Document:
    """The object in a body, with its doubled keys noted.

    Args:
        body: the bytes.
        headers: with their media type; none is JSON.
        what: `HyperPodPyTorchJob in version "v1"`, for messages.

    Raises:
        StatusError: 400 where it is none, 501 for another type.
    """
    kind = headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in ("", _JSON):
        other = f"a body of {kind}"
        raise not_served(other)
    try:
        document = json.loads(body, object_pairs_hook=_Noted, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        message = f"couldn't get version/kind; json parse error: {error}"
        raise bad_request(message) from error
    if not isinstance(document, dict):
        message = f"{what} cannot be handled: json: cannot unmarshal into an object"
        raise bad_request(message)
    return document


def _refuse_constant(text: str) -> None:
    message = f"invalid character in literal {text}"
    raise ValueError(message)


def refuse_surplus(resource: Resource, document: Document) -> None:
    """Refuse unknown and doubled fields, as `fieldValidation=Strict` asks for.

    Raises:
        StatusError: 400 with all of them.
    """
    faults = [f'unknown field "{path}"' for path in schema_of(resource).unknown_fields(document)]
    faults += [f'duplicate field "{path}"' for path in _doubles(document, "")]
    if faults:
        message = (
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {', '.join(faults)}"
        )
        raise bad_request(message)


def _doubles(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Noted):
        yield from (f"{path}.{key}" if path else key for key in value.doubles)
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _doubles(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _doubles(item, f"{path}[{index}]")
