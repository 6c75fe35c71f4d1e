"""Lifecycle rules of buckets, which MiniStack stores: here they act when a test says that days have passed.

Rules act on prefixes and sizes: expiration after days, and the end of incomplete uploads. A rule with tags, with a
date or for noncurrent versions is refused with an error, so that no test takes it for one that acts.

MiniStack's CloudFormation leaves the rules of a bucket in a template out: here they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from xml.sax.saxutils import escape

from ministack.services import s3
from ministack.services.cloudformation import provisioners

_DAY = timedelta(days=1)
_STORED = {
    *("Id", "Status", "Prefix", "ObjectSizeGreaterThan", "ExpirationInDays", "Transitions"),
    "AbortIncompleteMultipartUpload",
}


class UnsupportedRuleError(Exception):
    """A rule that the embedded cloud cannot carry out."""


def expire(now: datetime) -> list[str]:
    """Do what the rules of all buckets demand at `now`: `bucket/key` of every object and upload that is gone, sorted.

    Raises:
        UnsupportedRuleError: a bucket has a rule that cannot be carried out here; nothing is deleted.
    """
    due = [
        (bucket, rule)
        for bucket, rules in list(s3._bucket_lifecycle.items())
        for rule in _checked(bucket, rules)
        if rule["Status"] == "Enabled"
    ]
    gone = []
    for bucket, rule in due:
        for key in list(_expired_objects(bucket, rule, now)):
            s3._delete_object(bucket, key)
            gone.append(f"{bucket}/{key}")
        for upload, key in list(_incomplete_uploads(bucket, rule, now)):
            del s3._multipart_uploads[upload]
            gone.append(f"{bucket}/{key}")
    return sorted(gone)


def _checked(bucket: str, rules: Any) -> list[dict[str, Any]]:
    # MiniStack keeps the text of what it cannot read.
    known: list[dict[str, Any]] = rules if isinstance(rules, list) else [{"unread": True}]
    for rule in known:
        narrowed = _filter(rule)
        unsupported: list[str] = [name for name in ("unread", "NoncurrentVersionExpiration") if name in rule]
        unsupported += [name for name in ("Tag", "Tags") if name in narrowed]
        expiration: dict[str, Any] = rule.get("Expiration", {})
        if "Date" in expiration:
            unsupported.append("Date")
        if unsupported:
            message = f"the embedded cloud cannot carry out a lifecycle rule of {bucket} with {', '.join(unsupported)}"
            raise UnsupportedRuleError(message)
    return known


def _filter(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Prefix, sizes and tags of a rule, in whichever of the three forms it has them."""
    whole = rule.get("Filter", {})
    return {"Prefix": rule.get("Prefix", ""), **whole, **whole.get("And", {})}


def _expired_objects(bucket: str, rule: Mapping[str, Any], now: datetime) -> Iterator[str]:
    days, narrowed = rule.get("Expiration", {}).get("Days"), _filter(rule)
    if days is None:
        return
    above, below = narrowed.get("ObjectSizeGreaterThan", -1), narrowed.get("ObjectSizeLessThan", math.inf)
    for key, record in s3._buckets[bucket]["objects"].items():
        if (
            key.startswith(narrowed["Prefix"])
            and above < record["size"] < below
            and _midnight_after(record["last_modified"], days) <= now
        ):
            yield key


def _incomplete_uploads(bucket: str, rule: Mapping[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    days, prefix = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation"), _filter(rule)["Prefix"]
    if days is None:
        return
    for upload, record in s3._multipart_uploads.items():
        concerned = record["bucket"] == bucket and record["key"].startswith(prefix)
        if concerned and _midnight_after(record["created"], days) <= now:
            yield upload, record["key"]


def _midnight_after(since: str, days: int) -> datetime:
    """S3 adds the days and rounds up to the next midnight in UTC."""
    due = datetime.fromisoformat(since).replace(tzinfo=UTC) + days * _DAY
    whole = due.replace(hour=0, minute=0, second=0, microsecond=0)
    return whole if whole == due else whole + _DAY


def install() -> None:
    """Let CloudFormation store the property LifecycleConfiguration of AWS::S3::Bucket."""
    row = ("LifecycleConfiguration", _as_xml, s3._put_bucket_lifecycle, s3._delete_bucket_lifecycle)
    provisioners._S3_BUCKET_CONFIGURATIONS = (*provisioners._S3_BUCKET_CONFIGURATIONS, row)


def _as_xml(properties: Mapping[str, Any]) -> bytes:
    """The body of PutBucketLifecycleConfiguration.

    A rule that could not act here is left out, as before: the one of the CDK's own bucket for noncurrent versions.
    """
    rules = "".join("".join(_rule_as_xml(rule)) for rule in properties.get("Rules", []) if not rule.keys() - _STORED)
    return f"<LifecycleConfiguration>{rules}</LifecycleConfiguration>".encode()


def _rule_as_xml(rule: Mapping[str, Any]) -> Iterator[str]:
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
