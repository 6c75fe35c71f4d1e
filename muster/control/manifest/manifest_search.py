"""The places of a job's manifest, and the search for it."""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from muster.contract.layout import split_s3_uri
from muster.control.manifest.archive import manifest_member
from muster.control.manifest.manifest_content import ResolvedManifest, parse_manifest
from muster.control.manifest.manifest_errors import KIB, BeyondLimitsError, Limits, ManifestError, ManifestProblem
from muster.control.manifest.object_stream import ObjectSource
from muster.control.runtime.clock import TimeBudget

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_READ_SIZE = 256 * KIB
_DEFAULT = Limits()

# Below {output}/{job}/: what SageMaker itself uploads when a job ends comes first. A file at the other places can have
# been put there by anyone who may write to the folder, so it never replaces what the job's own archives say.
_ARCHIVE = "output/output.tar.gz"
_MODEL_ARCHIVE = "output/model.tar.gz"
# Output without compression, and that of serverless jobs; a model without compression; HyperPod.
_PLAIN = ("output/output/manifest.json", "output/model/manifest.json", "manifest.json")
_PLACES = (_ARCHIVE, _MODEL_ARCHIVE, *_PLAIN)


def resolve_manifest(
    s3: S3Client,
    output_uri: str,
    job: str,
    *,
    limits: Limits = _DEFAULT,
    written: Collection[str] | None = None,
) -> ResolvedManifest:
    """The manifest of `job`, whose output is under `output_uri` (the request's S3OutputPath).

    The first place with a manifest decides: if it cannot be read, that is an error, and the search ends. So does an
    archive of the output in which it cannot be seen whether there is one. In an archive of the model, which is most
    often large, only a manifest near the beginning counts.
    `written`: the keys of all objects of the output, where they are known; other places are not looked at.
    At most one MiB is transferred where the manifest comes first in the archive. Nothing is written to disk.

    Raises:
        ManifestError: with the kind of failure; `absent` only where S3 has no object in any of the places.
        ValueError: `output_uri` is not an s3:// URI.
    """
    bucket, prefix = split_s3_uri(output_uri)
    folder = "/".join(part for part in (prefix.rstrip("/"), job) if part)
    budget = TimeBudget.of(limits.seconds)
    empty: str | None = None
    for name in _PLACES:
        if written is not None and f"{folder}/{name}" not in written:
            continue
        within = replace(limits, read_bytes=limits.model_bytes) if name == _MODEL_ARCHIVE else limits
        with ObjectSource(s3, bucket, f"{folder}/{name}", within, budget) as source:
            if source.missing:
                continue
            body = _plain(source, limits) if name in _PLAIN else _packed(source, within, budget, name)
        if body is not None:
            return parse_manifest(body, source.uri)
        empty = empty or source.uri
    if empty is not None:
        raise ManifestError(ManifestProblem.ABSENT, empty, "the archive has no manifest.json at its root")
    detail = f"the job wrote no manifest; none of {', '.join(_PLACES)} exists in this folder"
    raise ManifestError(ManifestProblem.ABSENT, f"s3://{bucket}/{folder}/", detail)


def _plain(source: ObjectSource, limits: Limits) -> bytes:
    if source.size > limits.manifest_bytes:
        detail = f"a manifest of {source.size:,} bytes; at most {limits.manifest_bytes:,} are allowed"
        raise ManifestError(ManifestProblem.OVERSIZE, source.uri, detail)
    return io.BufferedReader(source, _READ_SIZE).read()


def _packed(source: ObjectSource, limits: Limits, budget: TimeBudget, name: str) -> bytes | None:
    try:
        return manifest_member(io.BufferedReader(source, _READ_SIZE), source.uri, limits, budget)
    except BeyondLimitsError:
        if name == _ARCHIVE:
            raise
        return None
