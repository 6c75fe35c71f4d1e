"""Lifecycle rules of buckets, which MiniStack stores: here they act when a test says that days have passed.

Rules act on prefixes and sizes: expiration after days, and the end of incomplete uploads. A rule with tags, with a
date or for noncurrent versions is refused with an error, so that no test takes it for one that acts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ministack.services import s3

_DAY = timedelta(days=1)


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
