"""Objects: conditional writes, ranges, listings, and the error codes that distinguish them."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.conformance.backends import Backend, refusal
from tests.memory import ACCOUNT

RACERS = 8
LOST = {412, 409}


def put(backend: Backend, key: str, body: bytes, **conditions: Any) -> str:
    return str(backend.client("s3").put_object(Bucket=backend.bucket, Key=key, Body=body, **conditions)["ETag"])


def body_of(backend: Backend, key: str) -> bytes:
    return bytes(backend.client("s3").get_object(Bucket=backend.bucket, Key=key)["Body"].read())


def test_an_object_is_created_once_and_replaced_in_the_version_that_was_read(backend: Backend) -> None:
    key, s3 = backend.name("created"), backend.client("s3")
    first = put(backend, key, b"first", IfNoneMatch="*")
    new = put(backend, key, b"new", IfMatch=first)
    mine = {"Bucket": backend.bucket, "Key": key, "Body": b"late"}
    for condition in ({"IfNoneMatch": "*"}, {"IfMatch": first}):
        assert refusal(s3.put_object, **mine, **condition) == ("PreconditionFailed", 412)
    read = {"Bucket": backend.bucket, "Key": key, "IfMatch": first, "Range": "bytes=0-1"}
    assert refusal(s3.get_object, **read) == ("PreconditionFailed", 412)
    assert s3.get_object(**{**read, "IfMatch": new})["Body"].read() == b"ne"
    assert put(backend, key, b"newer", IfMatch=new.strip('"')) != new
    s3.delete_object(Bucket=backend.bucket, Key=key)
    assert refusal(s3.put_object, **mine, IfMatch=new) == ("NoSuchKey", 404)
    put(backend, key, b"third", IfNoneMatch="*")


@pytest.mark.parametrize("replaces", [False, True])
def test_of_several_conditional_writers_one_wins(backend: Backend, replaces: bool) -> None:
    key, s3 = backend.name("race"), backend.client("s3")
    condition = {"IfMatch": put(backend, key, b"x")} if replaces else {"IfNoneMatch": "*"}
    together = Barrier(RACERS)

    def race(number: int) -> int:
        together.wait()
        try:
            answer = s3.put_object(Bucket=backend.bucket, Key=key, Body=b"%d" % number, **condition)
        except ClientError as error:
            answer = error.response
        return int(answer["ResponseMetadata"]["HTTPStatusCode"])

    with ThreadPoolExecutor(RACERS) as pool:
        statuses = list(pool.map(race, range(RACERS)))
    assert statuses.count(200) == 1
    assert set(statuses) <= {200, *LOST}
    assert body_of(backend, key) == b"%d" % statuses.index(200)


def test_a_range_is_a_part(backend: Backend) -> None:
    key, s3 = backend.name("range"), backend.client("s3")
    put(backend, key, b"0123456789")
    for span, expected, shown in (
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=4-", b"456789", "bytes 4-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=-99", b"0123456789", "bytes 0-9/10"),
    ):
        answer = s3.get_object(Bucket=backend.bucket, Key=key, Range=span)
        assert answer["Body"].read() == expected, span
        assert (answer["ContentRange"], answer["ContentLength"]) == (shown, len(expected))
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206
    # One without a byte is refused.
    empty = backend.name("empty")
    put(backend, empty, b"")
    for one, span in ((key, "bytes=10-"), (empty, "bytes=0-99")):
        assert refusal(s3.get_object, Bucket=backend.bucket, Key=one, Range=span) == ("InvalidRange", 416)


def test_what_is_missing_too_long_foreign_or_not_implemented_is_refused(backend: Backend) -> None:
    s3, key = backend.client("s3"), backend.name("missing")
    here, nowhere = {"Bucket": backend.bucket}, {"Bucket": "no-such-bucket-anywhere"}
    foreign = {**here, "Key": key, "ExpectedBucketOwner": "999999999999"}
    for call, parameters, expected in (
        (s3.get_object, {**here, "Key": key}, ("NoSuchKey", 404)),
        (s3.head_object, {**here, "Key": key}, ("404", 404)),
        (s3.get_object, {**nowhere, "Key": key}, ("NoSuchBucket", 404)),
        (s3.put_object, {**nowhere, "Key": key}, ("NoSuchBucket", 404)),
        (s3.list_objects_v2, nowhere, ("NoSuchBucket", 404)),
        (s3.put_object, {**here, "Key": key, "IfNoneMatch": '"some-etag"'}, ("NotImplemented", 501)),
        (s3.put_object, {**here, "Key": "k" * 1_025}, ("KeyTooLongError", 400)),
        (s3.put_object, foreign, ("AccessDenied", 403)),
        (s3.get_object, foreign, ("AccessDenied", 403)),
    ):
        assert refusal(call, **parameters) == expected, str(parameters)[:200]
    gone = s3.delete_object(**here, Key=key)
    assert gone["ResponseMetadata"]["HTTPStatusCode"] == 204
    put(backend, key, b"x", ExpectedBucketOwner=ACCOUNT)
    assert body_of(backend, key) == b"x"


def test_an_object_is_described(backend: Backend) -> None:
    key, s3, body = backend.name("described"), backend.client("s3"), b"some bytes"
    etag = put(backend, key, body, ContentType="text/plain")
    assert etag == f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
    head = s3.head_object(Bucket=backend.bucket, Key=key)
    got = s3.get_object(Bucket=backend.bucket, Key=key)
    [listed] = s3.list_objects_v2(Bucket=backend.bucket, Prefix=key)["Contents"]
    assert {head["ETag"], got["ETag"], listed["ETag"]} == {etag}
    assert head["ContentLength"] == got["ContentLength"] == listed["Size"] == len(body)
    assert head["ContentType"] == got["ContentType"] == "text/plain"
    assert head["LastModified"] == got["LastModified"]
    assert head["LastModified"].tzinfo is not None
    assert head["LastModified"].microsecond == 0
    assert abs(listed["LastModified"] - head["LastModified"]) < timedelta(seconds=1)


@pytest.fixture
def folder(backend: Backend) -> str:
    """A prefix with keys whose order in UTF-8 is neither that of their lengths nor that of numbers."""
    prefix = f"{backend.name('folder')}/"
    for name in ("b", "a10", "a/2", "a2", "a/1", "ä", "a1", "\U0001f600", "\uff5e"):
        put(backend, prefix + name, b"")
    put(backend, f"{prefix.rstrip('/')}-other", b"")
    return prefix


ORDER = ["a/1", "a/2", "a1", "a10", "a2", "b", "ä", "\uff5e", "\U0001f600"]


def test_a_listing_is_in_order_whatever_the_pages_and_begins_after_a_key(backend: Backend, folder: str) -> None:
    pages_of = backend.client("s3").get_paginator("list_objects_v2").paginate
    for size in (1, 2, 9, 1_000):
        pages = list(pages_of(Bucket=backend.bucket, Prefix=folder, PaginationConfig={"PageSize": size}))
        assert [item["Key"].removeprefix(folder) for page in pages for item in page["Contents"]] == ORDER
        assert [page["KeyCount"] for page in pages] == [len(page["Contents"]) for page in pages]
        assert [page["IsTruncated"] for page in pages] == [True] * (-(-len(ORDER) // size) - 1) + [False]
    asked = {"Bucket": backend.bucket, "Prefix": folder, "PaginationConfig": {"PageSize": 2}}
    for after, expected in (("a10", ORDER[4:]), ("a11", ORDER[4:]), ("\U0001f600", [])):
        found = [page.get("Contents", []) for page in pages_of(**asked, StartAfter=folder + after)]
        assert [item["Key"].removeprefix(folder) for items in found for item in items] == expected
    page = backend.client("s3").list_objects_v2(Bucket=backend.bucket, Prefix=backend.name("nothing"))
    assert "Contents" not in page
    assert (page["KeyCount"], page["IsTruncated"]) == (0, False)
