"""From a URI to a store. obstore is imported for S3 alone."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from muster.contract.layout import split_s3_uri
from muster.replica.store.local_store import LocalStore
from muster.replica.store.pace import Pace
from muster.replica.store.transport import Store


def is_store_uri(uri: str) -> bool:
    """Whether `uri` is `s3://bucket/…` or `file:///…`."""
    if uri.startswith("file:///"):
        return True
    try:
        split_s3_uri(uri)
    except ValueError:
        return False
    return True


def open_store(uri: str, pace: Pace | None = None, region: str | None = None) -> Store:
    """The store of everything below `uri`, which ends with a slash.

    Args:
        pace: of all requests to S3.
        region: that of the bucket; None: this process's.

    Raises:
        ValueError: neither s3:// nor file://.
    """
    if uri.startswith("file:///"):
        return LocalStore(Path(unquote(urlsplit(uri).path)))
    bucket, prefix = split_s3_uri(uri)
    from muster.replica.store.s3_store import S3ObjectStore  # noqa: PLC0415 - only for S3

    return S3ObjectStore(bucket, prefix, pace, region)
