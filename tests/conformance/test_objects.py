"""Objects: conditional writes, ranges, listings, and the error codes that distinguish them."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.conformance.backends import Backend, MemoryBackend, refusal
from tests.memory import ACCOUNT

RACERS = 8
LOST = {412, 409}


def put(backend: Backend, key: str, body: bytes, **conditions: Any) -> str:
    return str(backend.client("s3").put_object(Bucket=backend.bucket, Key=key, Body=body, **conditions)["ETag"])


def body_of(backend: Backend, key: str) -> bytes:
    return bytes(backend.client("s3").get_object(Bucket=backend.bucket, Key=key)["Body"].read())


def test_an_object_is_created_once(backend: Backend) -> None:
    key, s3 = backend.name("created"), backend.client("s3")
    put(backend, key, b"first", IfNoneMatch="*")
    again = refusal(s3.put_object, Bucket=backend.bucket, Key=key, Body=b"second", IfNoneMatch="*")
    assert again == ("PreconditionFailed", 412)
    assert body_of(backend, key) == b"first"
    s3.delete_object(Bucket=backend.bucket, Key=key)
    put(backend, key, b"third", IfNoneMatch="*")


def test_an_object_is_replaced_in_the_version_that_was_read(backend: Backend) -> None:
    key, s3 = backend.name("replaced"), backend.client("s3")
    old = put(backend, key, b"old")
    new = put(backend, key, b"new", IfMatch=old)
    stale = refusal(s3.put_object, Bucket=backend.bucket, Key=key, Body=b"late", IfMatch=old)
    assert stale == ("PreconditionFailed", 412)
    assert body_of(backend, key) == b"new"
    assert put(backend, key, b"newer", IfMatch=new.strip('"')) != new


def test_an_object_that_is_gone_cannot_be_replaced(backend: Backend) -> None:
    etag = put(backend, backend.name("other"), b"x")
    call = backend.client("s3").put_object
    assert refusal(call, Bucket=backend.bucket, Key=backend.name("gone"), Body=b"y", IfMatch=etag) == (
        "NoSuchKey",
        404,
    )


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


@pytest.mark.parametrize(
    ("span", "expected", "shown"),
    [
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=4-", b"456789", "bytes 4-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=-99", b"0123456789", "bytes 0-9/10"),
    ],
)
def test_a_range_is_a_part(backend: Backend, span: str, expected: bytes, shown: str) -> None:
    key, s3 = backend.name("range"), backend.client("s3")
    put(backend, key, b"0123456789")
    answer = s3.get_object(Bucket=backend.bucket, Key=key, Range=span)
    assert answer["Body"].read() == expected
    assert (answer["ContentRange"], answer["ContentLength"]) == (shown, len(expected))


@pytest.mark.parametrize(("body", "span"), [(b"0123456789", "bytes=10-"), (b"", "bytes=0-99")])
def test_a_range_without_a_byte_is_refused(backend: Backend, body: bytes, span: str) -> None:
    key, s3 = backend.name("range"), backend.client("s3")
    put(backend, key, body)
    assert refusal(s3.get_object, Bucket=backend.bucket, Key=key, Range=span) == ("InvalidRange", 416)


def test_a_partial_answer_has_its_own_status(backend: Backend) -> None:
    key, s3 = backend.name("range"), backend.client("s3")
    put(backend, key, b"0123456789")
    answer = s3.get_object(Bucket=backend.bucket, Key=key, Range="bytes=0-3")
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 206


def test_what_is_not_there(backend: Backend) -> None:
    s3, key = backend.client("s3"), backend.name("missing")
    assert refusal(s3.get_object, Bucket=backend.bucket, Key=key) == ("NoSuchKey", 404)
    assert refusal(s3.head_object, Bucket=backend.bucket, Key=key) == ("404", 404)
    assert refusal(s3.get_object, Bucket="no-such-bucket-anywhere", Key=key) == ("NoSuchBucket", 404)
    assert refusal(s3.put_object, Bucket="no-such-bucket-anywhere", Key=key) == ("NoSuchBucket", 404)
    assert refusal(s3.list_objects_v2, Bucket="no-such-bucket-anywhere") == ("NoSuchBucket", 404)
    gone = s3.delete_object(Bucket=backend.bucket, Key=key)
    assert gone["ResponseMetadata"]["HTTPStatusCode"] == 204


def test_an_object_is_read_in_the_version_that_is_named(backend: Backend) -> None:
    key, s3 = backend.name("version"), backend.client("s3")
    old = put(backend, key, b"old")
    assert s3.get_object(Bucket=backend.bucket, Key=key, IfMatch=old)["Body"].read() == b"old"
    put(backend, key, b"new")
    stale = refusal(s3.get_object, Bucket=backend.bucket, Key=key, IfMatch=old, Range="bytes=0-1")
    assert stale == ("PreconditionFailed", 412)


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


def test_a_listing_has_whole_seconds(backend: Backend) -> None:
    prefix, s3 = backend.name("time"), backend.client("s3")
    for number in range(5):
        put(backend, f"{prefix}/{number}", b"x")
    listed = s3.list_objects_v2(Bucket=backend.bucket, Prefix=prefix)["Contents"]
    assert {item["LastModified"].microsecond for item in listed} == {0}


def test_an_object_is_as_old_as_virtual_time_shows(memory: MemoryBackend) -> None:
    key, clock = memory.name("time"), memory.cloud.clock
    clock.advance(1.75)
    put(memory, key, b"x")
    clock.advance(10)
    head = memory.client("s3").head_object(Bucket=memory.bucket, Key=key)
    assert clock.now() - head["LastModified"] == timedelta(seconds=10.75)


@pytest.fixture
def folder(backend: Backend) -> str:
    """A prefix with keys whose order in UTF-8 is neither that of their lengths nor that of numbers."""
    prefix = f"{backend.name('folder')}/"
    for name in ("b", "a10", "a/2", "a2", "a/1", "ä", "a1", "\U0001f600", "\uff5e"):
        put(backend, prefix + name, b"")
    put(backend, f"{prefix.rstrip('/')}-other", b"")
    return prefix


ORDER = ["a/1", "a/2", "a1", "a10", "a2", "b", "ä", "\uff5e", "\U0001f600"]


@pytest.mark.parametrize("page_size", [1, 2, 9, 1000])
def test_a_listing_is_in_order_whatever_the_pages(backend: Backend, folder: str, page_size: int) -> None:
    paginator = backend.client("s3").get_paginator("list_objects_v2")
    pages = list(paginator.paginate(Bucket=backend.bucket, Prefix=folder, PaginationConfig={"PageSize": page_size}))
    assert [item["Key"].removeprefix(folder) for page in pages for item in page["Contents"]] == ORDER
    assert [page["KeyCount"] for page in pages] == [len(page["Contents"]) for page in pages]
    assert len(pages) == -(-len(ORDER) // page_size)
    assert [page["IsTruncated"] for page in pages] == [True] * (len(pages) - 1) + [False]


def test_a_listing_begins_after_a_key(backend: Backend, folder: str) -> None:
    pages = backend.client("s3").get_paginator("list_objects_v2")
    asked = {"Bucket": backend.bucket, "Prefix": folder, "PaginationConfig": {"PageSize": 2}}
    for after, expected in (("a10", ORDER[4:]), ("a11", ORDER[4:]), ("\U0001f600", [])):
        found = [page.get("Contents", []) for page in pages.paginate(**asked, StartAfter=folder + after)]
        assert [item["Key"].removeprefix(folder) for items in found for item in items] == expected


def test_an_empty_listing_has_no_contents(backend: Backend) -> None:
    page = backend.client("s3").list_objects_v2(Bucket=backend.bucket, Prefix=backend.name("nothing"))
    assert "Contents" not in page
    assert (page["KeyCount"], page["IsTruncated"]) == (0, False)


def test_folders_are_rolled_up(backend: Backend, folder: str) -> None:
    page = backend.client("s3").list_objects_v2(Bucket=backend.bucket, Prefix=folder, Delimiter="/")
    assert [item["Prefix"] for item in page["CommonPrefixes"]] == [f"{folder}a/"]
    assert [item["Key"].removeprefix(folder) for item in page["Contents"]] == ORDER[2:]


def test_what_s3_does_not_implement_is_refused(backend: Backend) -> None:
    call, key = backend.client("s3").put_object, backend.name("condition")
    assert refusal(call, Bucket=backend.bucket, Key=key, IfNoneMatch='"some-etag"') == ("NotImplemented", 501)


def test_a_key_has_an_end(backend: Backend) -> None:
    call = backend.client("s3").put_object
    assert refusal(call, Bucket=backend.bucket, Key="k" * 1_025) == ("KeyTooLongError", 400)


def test_a_bucket_of_another_owner_than_expected_is_left_alone(backend: Backend) -> None:
    key, s3 = backend.name("owned"), backend.client("s3")
    put(backend, key, b"x", ExpectedBucketOwner=ACCOUNT)
    foreign = {"Bucket": backend.bucket, "Key": key, "ExpectedBucketOwner": "999999999999"}
    assert refusal(s3.put_object, **foreign, Body=b"y") == ("AccessDenied", 403)
    assert refusal(s3.get_object, **foreign) == ("AccessDenied", 403)
    assert body_of(backend, key) == b"x"
