"""The lifecycle rules of the bucket, as S3 and as a template have them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from muster.client.verify.bucket_checks import LifecycleRule, lifecycle_rules

AT = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("rule", "read"),
    [
        ({"Filter": {"Prefix": "a/"}, "Expiration": {"Days": 3}}, LifecycleRule("a/", 3, None)),
        ({"Prefix": "a/", "ExpirationInDays": 3}, LifecycleRule("a/", 3, None)),
        (
            {"Filter": {"And": {"Prefix": "a/", "ObjectSizeLessThan": 9}}, "Expiration": {"Days": 3}},
            LifecycleRule("a/", 3, None),
        ),
        ({"Filter": {"Prefix": "a/"}, "Expiration": {"Date": AT}}, LifecycleRule("a/", None, None, "2027-01-01")),
        ({"Prefix": "a/", "ExpirationDate": "2027-01-01T00:00:00Z"}, LifecycleRule("a/", None, None, "2027-01-01")),
        ({"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}, LifecycleRule("", None, 7)),
    ],
)
def test_a_rule_is_read(rule: dict[str, Any], read: LifecycleRule) -> None:
    assert list(lifecycle_rules([{"Status": "Enabled", **rule}])) == [read]
    assert list(lifecycle_rules([{"Status": "Disabled", **rule}])) == []


@pytest.mark.parametrize(
    "rule",
    [
        {"Filter": {"Tag": {"Key": "k", "Value": "v"}}},
        {"Filter": {"And": {"Tags": [{"Key": "k", "Value": "v"}]}}},
        {"TagFilters": [{"Key": "k", "Value": "v"}]},
    ],
)
def test_a_rule_for_tagged_objects_covers_none_of_a_run(rule: dict[str, Any]) -> None:
    assert list(lifecycle_rules([{"Status": "Enabled", "Expiration": {"Days": 3}, **rule}])) == []
