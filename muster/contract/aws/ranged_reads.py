"""Reading no more of an S3 object than a bound: the request's range, and what the answer says of the object's size.

Replicas write objects that the control plane and clients read, and may write anything.
"""

from __future__ import annotations


def first_bytes(most: int) -> str:
    """The Range header for the first `most` bytes."""
    return f"bytes=0-{most - 1}"


def object_size(content_range: str, content_length: int) -> int:
    """The size of the whole object, in bytes: `content_range` is empty where the answer is the whole object."""
    total = content_range.rpartition("/")[2]
    return int(total) if total.isdecimal() else content_length
