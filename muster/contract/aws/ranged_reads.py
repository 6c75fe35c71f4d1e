"""Reading no more of an S3 object than a bound: the request's range, and what the answer says of the object's size.

Replicas write objects that the control plane and clients read, and may write anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.contract.errors import OversizedDocumentError


def first_bytes(most: int) -> str:
    """The Range header for the first `most` bytes."""
    return f"bytes=0-{most - 1}"


def object_size(content_range: str, content_length: int) -> int:
    """The size of the whole object, in bytes: `content_range` is empty where the answer is the whole object."""
    total = content_range.rpartition("/")[2]
    return int(total) if total.isdecimal() else content_length


def whole_body(answer: Mapping[str, Any], uri: str, most: int) -> bytes:
    """The object of an answer to GetObject with the range `first_bytes(most)`.

    Raises:
        OversizedDocumentError: the object is larger.
    """
    size = object_size(answer.get("ContentRange", ""), answer["ContentLength"])
    if size > most:
        answer["Body"].close()
        raise OversizedDocumentError(uri, size, most)
    body: bytes = answer["Body"].read()
    return body
