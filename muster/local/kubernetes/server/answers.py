"""What the server answers: objects, texts and streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.status_errors import Document


@dataclass(frozen=True)
class Answer:
    """An object with a status code."""

    document: Document
    code: int = 200
    warnings: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TextAnswer:
    """Plain text."""

    text: str
    code: int = 200


@dataclass(frozen=True)
class StreamAnswer:
    """Bytes, sent one after the other; the stream is closed when the client goes away."""

    chunks: AsyncGenerator[bytes, None]
    media_type: str = "application/json"


def deleted(resource: Resource, document: Document) -> Document:
    """The `Status` of an object that is gone."""
    details = {"name": document["metadata"]["name"], "group": resource.group, "kind": resource.plural}
    details["uid"] = document["metadata"]["uid"]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
