"""Lifecycle rules on the embedded cloud: they act when a test moves the clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from muster.local.cloud_errors import AdminError
from tests.support.workshop import Workshop


def rules(workshop: Workshop, *given: dict[str, Any]) -> str:
    """A bucket with these rules."""
    bucket = workshop.name("bucket")
    workshop.s3.create_bucket(Bucket=bucket)
    named = [{"ID": f"rule-{number}", "Status": "Enabled", **rule} for number, rule in enumerate(given)]
    workshop.s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": named})
    return bucket


def keys(workshop: Workshop, bucket: str) -> list[str]:
    return [item["Key"] for item in workshop.s3.list_objects_v2(Bucket=bucket).get("Contents", [])]


def test_objects_below_a_prefix_expire_after_their_days_at_midnight(workshop: Workshop) -> None:
    bucket = rules(
        workshop,
        {"Filter": {"Prefix": "old/"}, "Expiration": {"Days": 3}},
        {"Filter": {"Prefix": "off/"}, "Expiration": {"Days": 1}, "Status": "Disabled"},
    )
    for key in ("old/a", "off/a", "other"):
        workshop.s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    advance = workshop.cloud.clock.advance
    assert not any(name.startswith(f"{bucket}/") for name in advance(timedelta(days=2.9)))
    assert f"{bucket}/old/a" in advance(timedelta(days=1.2))
    assert keys(workshop, bucket) == ["off/a", "other"]


def test_incomplete_uploads_are_aborted(workshop: Workshop) -> None:
    bucket = rules(workshop, {"Filter": {"Prefix": ""}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}})
    workshop.s3.create_multipart_upload(Bucket=bucket, Key="half")
    workshop.s3.put_object(Bucket=bucket, Key="whole", Body=b"x")
    assert f"{bucket}/half" in workshop.cloud.clock.advance(timedelta(days=3))
    assert "Uploads" not in workshop.s3.list_multipart_uploads(Bucket=bucket)
    assert keys(workshop, bucket) == ["whole"]


def test_a_rule_that_cannot_act_is_an_error(workshop: Workshop) -> None:
    tagged = {"Filter": {"Tag": {"Key": "a", "Value": "b"}}, "Expiration": {"Days": 1}}
    bucket = rules(workshop, tagged)
    with pytest.raises(AdminError, match=f"lifecycle rule of {bucket} with Tag"):
        workshop.cloud.clock.advance(timedelta(days=1))
    workshop.s3.delete_bucket_lifecycle(Bucket=bucket)
