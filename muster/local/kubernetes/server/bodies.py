"""The bodies of requests: which types are read, and which fields are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from muster.local.kubernetes.objects import patches
from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.status_errors import (
    Document,
    StatusError,
    bad_request,
    unsupported_media_type,
)
from muster.local.kubernetes.schema.schemas import schema_of

BODY_BYTES_MAX = 3 * 1024 * 1024  # kube-apiserver: maxRequestBodyBytes
OBJECT_BYTES_MAX = 1_572_864  # etcd: --max-request-bytes
_JSON, _YAML = "application/json", "application/yaml"
_BODIES = (_JSON, _YAML, "application/vnd.kubernetes.protobuf")
_PATCHES = (patches.JSON, patches.MERGE, patches.STRATEGIC)
_VALIDATIONS = ("", "Ignore", "Warn", "Strict")


class _Noted(dict[str, Any]):
    """A JSON object that notes which of its keys were there twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        keys = [key for key, _ in pairs]
        self.doubles = sorted({key for key in keys if keys.count(key) > 1})


def media_type(headers: Mapping[str, str]) -> str:
    """The type of a body, without its parameters."""
    return headers.get("content-type", "").split(";")[0].strip().lower()


def read_body(body: bytes, kind: str, what: str = "") -> Document:
    """The object in a body.

    Args:
        body: the bytes.
        kind: their media type; empty is JSON.
        what: `HyperPodPyTorchJob in version "v1"`, for messages.

    Raises:
        StatusError: 400 where it is none, 415 for another type.
    """
    if kind == _YAML:
        document = _parsed_yaml(body)
    elif kind in ("", _JSON):
        document = parse_json(body)
    else:
        raise unsupported_media_type(kind, _BODIES)
    if not isinstance(document, dict):
        message = f"{what or 'the object'} cannot be handled: json: cannot unmarshal into an object"
        raise bad_request(message)
    return document


def parse_json(body: bytes) -> Any:
    """JSON of any kind, with its doubled keys noted.

    Raises:
        StatusError: 400.
    """
    try:
        return json.loads(body, object_pairs_hook=_Noted, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        message = f"couldn't get version/kind; json parse error: {error}"
        raise bad_request(message) from error


def _refuse_constant(text: str) -> None:
    message = f"invalid character in literal {text}"
    raise ValueError(message)


def _parsed_yaml(body: bytes) -> Any:
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        message = f"error converting YAML to JSON: {' '.join(str(error).split())}"
        raise bad_request(message) from error


def patch_kind(headers: Mapping[str, str]) -> str:
    """The type of a patch.

    Raises:
        StatusError: 415 for one that is not known.
    """
    kind = media_type(headers)
    if kind not in _PATCHES:
        raise unsupported_media_type(kind, _PATCHES)
    return kind


def field_validation(query: Mapping[str, str], options: str) -> str:
    """Ignore, Warn or Strict.

    Raises:
        StatusError: 422 for another word.
    """
    found = query.get("fieldValidation", "")
    if found not in _VALIDATIONS:
        message = (
            f'{options}.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "{found}": '
            'supported values: "", "Ignore", "Strict", "Warn"'
        )
        raise StatusError(422, "Invalid", message)
    return found or "Warn"


def decoding_faults(resource: Resource, document: Document) -> list[str]:
    """What strict decoding refuses: fields that are not known, and fields that are there twice."""
    unknown = [f'unknown field "{path}"' for path in schema_of(resource).unknown_fields(document)]
    return unknown + [f'duplicate field "{path}"' for path in _doubles(document, "")]


def check_fields(resource: Resource, document: Document, validation: str) -> list[str]:
    """Warnings about the fields of a document.

    Raises:
        StatusError: 400 where they are refused.
    """
    if validation == "Ignore":
        return []
    faults = decoding_faults(resource, document)
    if faults and validation == "Strict":
        message = (
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {', '.join(faults)}"
        )
        raise bad_request(message)
    return faults


def check_patched_fields(resource: Resource, patch: Any, patched: Document, validation: str) -> list[str]:
    """Warnings about the fields of an object after a patch.

    Raises:
        StatusError: 422 where they are refused.
    """
    if validation == "Ignore":
        return []
    faults = [*decoding_faults(resource, patched)]
    faults += [f'duplicate field "{path}"' for path in _doubles(patch, "")]
    if faults and validation == "Strict":
        listed = ", ".join(faults)
        shown = json.dumps(patch, separators=(",", ":"))
        text = f"Invalid value: {shown}: strict decoding error: {listed}"
        causes = [{"reason": "FieldValueInvalid", "message": text, "field": "patch"}]
        raise StatusError(422, "Invalid", f' "" is invalid: patch: {text}', {"causes": causes})
    return faults


def _doubles(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Noted):
        yield from (f"{path}.{key}" if path else key for key in value.doubles)
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _doubles(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _doubles(item, f"{path}[{index}]")
