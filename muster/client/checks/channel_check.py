"""Whether the channels of a spec have data: what the caller can see of it. One call for each channel."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING

from muster.client.aws.error_translation import translated
from muster.client.checks.check_findings import CheckFindings
from muster.client.client_errors import ClientError
from muster.contract.errors import Problem
from muster.contract.layout import split_s3_uri
from muster.contract.spec.spec import Spec
from muster.contract.training.input_channels import S3DataSource

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from muster.client.aws.cloud import Cloud


def check_channels(cloud: Cloud, spec: Spec, denied: Container[str] = ()) -> CheckFindings:
    """Channels without data, which SageMaker refuses. The caller may see less than the replicas: that is a remark.

    `denied` are places that the replicas may not read: the remark on them has the cure, and none is added.
    """
    found = CheckFindings()
    for field, source in _sources(spec):
        one = _check(cloud.connection.s3, field, source)
        found += CheckFindings(one.problems) if source.s3_uri in denied else one
    return found


def _sources(spec: Spec) -> Iterator[tuple[str, S3DataSource]]:
    """Each place in S3 once, with the field that names it first."""
    parts = [("", spec.input_data_config)]
    parts += [(f"overrides.{ranks}.", override.input_data_config) for ranks, override in spec.overrides.items()]
    seen: set[str] = set()
    for before, channels in parts:
        for index, channel in enumerate(channels):
            source = channel.data_source.s3_data_source
            if source is not None and source.s3_uri not in seen:
                seen.add(source.s3_uri)
                yield f"{before}input_data_config.{index}.data_source.s3_data_source.s3_uri", source


def _check(s3: S3Client, field: str, source: S3DataSource) -> CheckFindings:
    bucket, key = split_s3_uri(source.s3_uri)
    is_object = source.s3_data_type in {"ManifestFile", "AugmentedManifestFile"}
    try:
        with translated("404", "NoSuchBucket", "NoSuchKey"):
            if is_object:
                s3.head_object(Bucket=bucket, Key=key)
                return CheckFindings()
            answer = s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
            return CheckFindings() if answer.get("KeyCount") else _nothing(field, source)
    except ClientError as error:
        return CheckFindings(remarks=(f"it is not known whether {source.s3_uri} has data: {str(error).rstrip('.')}",))
    return _nothing(field, source, "" if is_object else "no such bucket")


def _nothing(field: str, source: S3DataSource, why: str = "") -> CheckFindings:
    allowed = why or ("no object begins with it" if source.s3_data_type == "S3Prefix" else "there is no such object")
    remedy = "correct the URI, or put the data there; SageMaker refuses a channel without data"
    return CheckFindings((Problem(field, repr(source.s3_uri), remedy, allowed),))
