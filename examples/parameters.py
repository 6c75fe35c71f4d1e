"""Compares the replicas' parameters by their checkpoints."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import numpy as np

from muster.contract.layout import split_s3_uri


def hold_the_same_bytes(s3: Any, uris: Iterable[str | None]) -> bool:
    """Whether the final checkpoints at `uris` (.npz) hold the same arrays, byte for byte; False if one is missing."""
    contents = [None if uri is None else _arrays(s3, uri) for uri in uris]
    return None not in contents and all(arrays == contents[0] for arrays in contents)


def _arrays(s3: Any, uri: str) -> dict[str, bytes]:
    bucket, key = split_s3_uri(uri)
    body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    with np.load(io.BytesIO(body)) as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files}
