"""The lifecycle rules of a bucket in a template, which MiniStack's CloudFormation leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

from ministack.services import s3
from ministack.services.cloudformation import provisioners

_KNOWN = {
    *("Id", "Status", "Prefix", "ObjectSizeGreaterThan", "ExpirationInDays", "Transitions"),
    "AbortIncompleteMultipartUpload",
}


def install() -> None:
    """Let CloudFormation store the property LifecycleConfiguration of AWS::S3::Bucket."""
    row = ("LifecycleConfiguration", _as_xml, s3._put_bucket_lifecycle, s3._delete_bucket_lifecycle)
    provisioners._S3_BUCKET_CONFIGURATIONS = (*provisioners._S3_BUCKET_CONFIGURATIONS, row)


def _as_xml(properties: Mapping[str, Any]) -> bytes:
    """The body of PutBucketLifecycleConfiguration.

    A rule that could not act here is left out, as before: the one of the CDK's own bucket for noncurrent versions.
    """
    rules = "".join("".join(_rule(rule)) for rule in properties.get("Rules", []) if not rule.keys() - _KNOWN)
    return f"<LifecycleConfiguration>{rules}</LifecycleConfiguration>".encode()


def _rule(rule: Mapping[str, Any]) -> Iterator[str]:
    yield f"<Rule><ID>{escape(str(rule.get('Id', '')))}</ID><Status>{rule['Status']}</Status>"
    narrowed = f"<Prefix>{escape(rule.get('Prefix', ''))}</Prefix>"
    if "ObjectSizeGreaterThan" in rule:
        above = f"<ObjectSizeGreaterThan>{int(rule['ObjectSizeGreaterThan'])}</ObjectSizeGreaterThan>"
        narrowed = f"<And>{narrowed}{above}</And>"
    yield f"<Filter>{narrowed}</Filter>"
    for transition in rule.get("Transitions", []):
        days, storage = int(transition["TransitionInDays"]), escape(transition["StorageClass"])
        yield f"<Transition><Days>{days}</Days><StorageClass>{storage}</StorageClass></Transition>"
    if "ExpirationInDays" in rule:
        yield f"<Expiration><Days>{int(rule['ExpirationInDays'])}</Days></Expiration>"
    if "AbortIncompleteMultipartUpload" in rule:
        days = int(rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"])
        yield f"<AbortIncompleteMultipartUpload><DaysAfterInitiation>{days}</DaysAfterInitiation>"
        yield "</AbortIncompleteMultipartUpload>"
    yield "</Rule>"
