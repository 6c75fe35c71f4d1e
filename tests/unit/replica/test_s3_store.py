"""The S3 store: its region, and its requests to a server that answers as a script says."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import product
from threading import Barrier, Event
from types import SimpleNamespace
from typing import cast

import botocore.session
import obstore
import pytest
from obstore.exceptions import PermissionDeniedError
from obstore.store import MemoryStore, S3Store

from muster.replica.store import missing_objects as s3_missing
from muster.replica.store import s3_store
from muster.replica.store.bulk.credentials import region_of, s3_endpoint
from muster.replica.store.missing_objects import MissingObjects
from muster.replica.store.pace import Pace
from muster.replica.store.s3_store import TRIES, S3ObjectStore
from muster.replica.store.transport import (
    PART_BYTES,
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreUnavailableError,
)
from tests.support.s3_server import RESET, Raw, S3Server, answer, error
from tests.support.waiting import wait_until

OK = answer(200, b"hello", Content_Range="bytes 0-4/5")
SLOW_DOWN = error(503, "SlowDown")
TROUBLE = {"503": SLOW_DOWN, "500": answer(500), "429": answer(429), "reset": RESET}
DENIED = answer(403)


@pytest.fixture
def store(s3: S3Server) -> S3ObjectStore:
    return opened()


def opened() -> S3ObjectStore:
    return S3ObjectStore("bucket", "prefix/")


def test_trouble_that_passes_is_survived(s3: S3Server, store: S3ObjectStore, subtests: pytest.Subtests) -> None:
    for name, trouble in {**TROUBLE, "truncated": Raw(OK.data[:-3], ends=True)}.items():
        with subtests.test(name):
            s3.script(trouble, trouble, OK)
            assert bytes(store.read("key").body) == b"hello"
            assert len(s3.requests) == 3
    for name, trouble in TROUBLE.items():
        with subtests.test("written piece by piece", trouble=name):
            s3.script(trouble, trouble, answer(200))
            writer = store.writer("key")
            writer.write(b"one")
            writer.write(memoryview(b"two"))
            writer.close()
            assert [(request.method, request.body) for request in s3.requests] == [("PUT", b"onetwo")] * 3


def test_trouble_that_does_not_pass_ends_after_a_bounded_number_of_tries(s3: S3Server, store: S3ObjectStore) -> None:
    s3.script(SLOW_DOWN)
    with pytest.raises(StoreUnavailableError, match=f"in {TRIES} tries"):
        store.read("key")
    assert len(s3.requests) == TRIES
    s3.script(answer(401))
    with pytest.raises(StoreDeniedError):
        store.read("key")
    assert len(s3.requests) == 1
    for refusal, expected in ((error(403, "AccessDenied"), StoreDeniedError), (SLOW_DOWN, StoreUnavailableError)):
        s3.script(refusal)
        writer = store.writer("key")
        writer.write(b"one")
        with pytest.raises(expected):
            writer.close()
        writer.discard()
        writer.discard()


def test_a_request_that_is_slowed_down_is_tried_until_the_time_out_or_the_end_of_the_process(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, stop = 0.0, Event()

    def sleep(_: float) -> None:
        nonlocal now
        now += 1.0
        if now == 30:
            stop.set()

    def tries(pace: Pace) -> int:
        nonlocal now
        now = 0.0
        with pytest.raises(StoreUnavailableError):
            S3ObjectStore("bucket", "prefix/", pace).read("key")
        return int(now) + 1

    monkeypatch.setattr(s3_store, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now))
    for slow in (SLOW_DOWN, error(503, "ServiceUnavailable"), answer(400, b"<Error><Code>SlowDown</Code></Error>")):
        now = 0.0
        s3.script(*[slow] * 2 * TRIES, OK)
        assert bytes(S3ObjectStore("bucket", "prefix/", Pace(2 * TRIES)).read("key").body) == b"hello"
        s3.script(slow)
        assert tries(Pace(20)) == 20 + TRIES
    s3.script(SLOW_DOWN)
    assert tries(Pace(3_600, stop)) == 30 + TRIES
    s3.script(answer(500))
    assert tries(Pace(3_600)) == TRIES


def test_fewer_requests_run_at_once_where_s3_slows_them_down_and_slowly_more_again() -> None:
    pace, running, most = Pace(), 0, 0

    def requests(number: int, at_once: int, *, refused: bool = False) -> None:
        """So many, of which as many as are to run at once wait for each other."""
        meeting = Barrier(at_once, timeout=10)

        def request(_: int) -> None:
            nonlocal running, most
            with pace.turn():
                begun, running = pace.begin(), running + 1
                most = max(most, running)
                meeting.wait()
                running -= 1
                if refused:
                    pace.refused(begun)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(request, range(number)))

    requests(16, 16, refused=True)
    most = 0
    requests(32, 8)
    assert most == 8
    for _ in range(100):
        pace.served()
    requests(60, 12)
    assert most == 12


def test_a_create_is_conditional_and_a_lost_race_no_trouble(s3: S3Server, store: S3ObjectStore) -> None:
    s3.script(SLOW_DOWN, RESET, answer(200))
    store.create("key", b"body")
    assert s3.lines == ["PUT /bucket/prefix/key"] * 3
    assert all(request.headers["if-none-match"] == "*" for request in s3.requests)
    for status in (412, 409):
        s3.script(answer(status), OK)
        with pytest.raises(ObjectExistsError):
            store.create("key", b"body")
        assert s3.methods == ["PUT", "HEAD"]


def test_a_conflict_with_a_create_that_fails_is_tried_again(s3: S3Server, store: S3ObjectStore) -> None:
    s3.script(answer(409), answer(404), OK)
    store.create("key", b"body")
    assert s3.methods == ["PUT", "HEAD", "PUT"]
    # Where S3 hides that nothing is there.
    s3.script(answer(409), DENIED, listing(), OK)
    store.create("key", b"body")
    assert s3.methods == ["PUT", "HEAD", "GET", "PUT"]


# --- callers that may not list the whole bucket get 403 where there is no object -----------------------------------


def listing(*keys: str) -> Raw:
    """The answer to a LIST."""
    entries = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>5</Size></Contents>"
        for key in keys
    )
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
    return answer(200, body.encode(), Content_Type="application/xml")


def test_a_403_for_a_key_that_a_listing_does_not_show_means_missing(s3: S3Server, store: S3ObjectStore) -> None:
    gone = (DENIED, listing("prefix/folder/key"), DENIED, listing())
    for answers in ((DENIED, listing()), (DENIED, listing("prefix/folder/keys", "prefix/folder/kez")), gone):
        s3.script(*answers)
        with pytest.raises(ObjectMissingError):
            store.read("folder/key")
        asked = s3.requests[-1]
        # The folder, which the role may list, and no more of it than the key needs.
        assert (asked.method, asked.key) == ("GET", "")
        assert (asked.query["prefix"], asked.query["start-after"]) == ("prefix/folder/", "prefix/folder/ke")


def test_a_403_for_a_key_that_exists_or_that_may_not_be_listed_is_a_denial(s3: S3Server) -> None:
    asks: list[Callable[[S3ObjectStore], object]] = [
        lambda store: store.read("key"),
        lambda store: store.read("key", 3),
        lambda store: store.exists("key"),
    ]
    for answers, ask in product(((DENIED, listing("prefix/key")), (DENIED, DENIED)), asks):
        s3.script(*answers, *answers)
        with pytest.raises(StoreDeniedError):
            ask(opened())
        assert len(s3.requests) == 4


def test_a_store_that_has_read_an_object_takes_a_403_for_a_missing_one_and_looks_once_a_minute(
    s3: S3Server, store: S3ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("muster.replica.store.missing_objects.time.monotonic", lambda: now)
    s3.script(OK, DENIED, listing(), DENIED, DENIED, DENIED, listing("prefix/key"), DENIED, listing("prefix/key"))
    store.read("key")
    assert not store.exists("key")
    now = s3_missing.TRUST_SECONDS - 1
    assert not store.exists("key")
    with pytest.raises(ObjectMissingError):
        list(store.stream("key", 0, 5))
    assert len(s3.requests) == 5
    now = s3_missing.TRUST_SECONDS + 1
    with pytest.raises(StoreDeniedError):
        store.read("key")
    assert len(s3.requests) == 9


def test_a_stream_that_breaks_continues_where_it_was(
    s3: S3Server, store: S3ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_store, "STREAM_BYTES", 4)
    body = b"0123456789abcdef"

    def part(first: int, lost: int) -> Raw:
        whole = answer(206, body[first:], Content_Range=f"bytes {first}-{len(body) - 1}/{len(body)}").data
        return Raw(whole[: len(whole) - lost], ends=lost > 0)

    s3.script(part(0, lost=8), part(8, lost=4), part(12, lost=0))
    assert b"".join(bytes(piece) for piece in store.stream("key", 0, len(body))) == body
    assert [request.headers["range"] for request in s3.requests] == ["bytes=0-15", "bytes=8-15", "bytes=12-15"]


def test_looking_for_what_is_not_there_is_one_request(s3: S3Server, store: S3ObjectStore) -> None:
    reads: list[Callable[[], object]] = [lambda: store.read("key", 0, 10), lambda: list(store.stream("key", 0, 10))]
    for read in reads:
        s3.script(answer(404))
        with pytest.raises(ObjectMissingError):
            read()
        assert s3.methods == ["GET"]
        # A peer sweeps the round after the first GET, and the HEAD gets a 403.
        s3.script(answer(416), DENIED, listing())
        with pytest.raises(ObjectMissingError):
            read()
        assert s3.methods == ["GET", "HEAD", "GET"]


def test_a_range_that_begins_beyond_the_end_has_no_bytes(s3: S3Server, store: S3ObjectStore) -> None:
    reads: list[Callable[[], bytes]] = [
        lambda: bytes(store.read("key", 5, 10).body),
        lambda: bytes(store.read("key", 5).body),
        lambda: b"".join(bytes(piece) for piece in store.stream("key", 5, 10)),
        lambda: b"".join(bytes(piece) for piece in store.stream("key", 5, 5 + s3_store.BULK_BYTES)),
    ]
    for read in reads:
        # Other trouble costs S3, which is perhaps at its limit, no further request.
        s3.script(SLOW_DOWN, answer(416), OK)
        assert read() == b""
        assert s3.methods == ["GET", "GET", "HEAD"]


# --- large objects that are written piece by piece -----------------------------------------------------------------

# The answers to both ends of a multipart upload: a client reads of each what it needs.
MULTIPART = answer(
    200,
    b"<CompleteMultipartUploadResult><Bucket>bucket</Bucket><Key>key</Key><UploadId>7</UploadId><ETag>x</ETag>"
    b"<Location>l</Location></CompleteMultipartUploadResult>",
)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts as small as S3 allows."""
    monkeypatch.setattr(s3_store, "PART_BYTES", 5 * 2**20)


@pytest.fixture(params=[True, False], ids=["bulk", "obstore"])
def _either_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(S3ObjectStore, "_transfers", lambda *_: None)


@pytest.mark.usefixtures("small_parts", "_either_client")
def test_a_large_object_is_written_in_parts_while_it_is_made(s3: S3Server, store: S3ObjectStore) -> None:
    s3.script(MULTIPART)
    writer = store.writer("key")
    for _ in range(12):
        writer.write(memoryview(b"x" * 2**20))
    wait_until("the first part", lambda: len(s3.requests) > 1)
    writer.close()
    create, *parts, complete = s3.requests
    assert (create.method, complete.method) == ("POST", "POST")
    sent = sorted((part.query["partNumber"], len(part.body)) for part in parts)
    assert sent == [("1", 5 * 2**20), ("2", 5 * 2**20), ("3", 2 * 2**20)]
    s3.script(MULTIPART)
    writer = store.writer("key")
    for _ in range(12):
        writer.write(b"x" * 2**20)
    writer.discard()
    assert s3.methods.count("POST") == 1, "what is given up is not completed"


def test_of_an_object_that_is_written_piece_by_piece_little_is_in_memory() -> None:
    for mib in (1, 64, 256, 1024, 150 * 1024):
        part, at_once = s3_store._pace(mib * 2**20)
        assert 5 * 2**20 <= part <= PART_BYTES, mib
        assert mib * 2**20 <= 10_000 * part, mib  # S3: parts of an upload
        # Those that are sent, and the one that is being collected.
        assert (at_once + 1) * part <= max(10 * 2**20, mib * 2**20 // 8), mib
        # One connection carries 85 MB/s.
        assert at_once >= min(16, mib // 256), mib


@pytest.mark.usefixtures("small_parts")
def test_parts_that_s3_slows_down_are_tried_until_the_time_out(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_store, "PAUSE_SECONDS", 0.001)
    s3.script(MULTIPART, *[SLOW_DOWN] * 3 * TRIES, MULTIPART)
    writer = S3ObjectStore("bucket", "prefix/", Pace(3_600)).writer("key")
    for _ in range(12):
        writer.write(b"x" * 2**20)
    writer.close()
    assert s3.methods == ["POST", *["PUT"] * (3 * TRIES + 3), "POST"]


@pytest.mark.usefixtures("small_parts", "_either_client")
def test_a_large_object_that_is_refused_ends_while_it_is_made(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(s3_store._PART_RETRIES, "backoff", {"init_backoff": timedelta(milliseconds=1)})
    monkeypatch.setitem(s3_store._PART_RETRIES, "max_retries", 2)
    monkeypatch.setattr(s3_store, "_pace", lambda _: (5 * 2**20, 2))  # the server keeps all that it gets
    monkeypatch.setattr(s3_store, "TRIES", 2)
    refusals = ((403, "AccessDenied", StoreDeniedError), (503, "SlowDown", StoreUnavailableError))
    for status, code, expected in (*refusals, (400, "ExpiredToken", StoreUnavailableError)):
        s3.script(MULTIPART, error(status, code))
        writer = opened().writer("key")
        with pytest.raises(expected):
            deque(map(writer.write, [b"x" * 2**20] * 100))
        writer.discard()


def test_an_object_that_a_peer_writes_between_the_request_and_the_listing_is_found() -> None:
    store, tries, refusal = MemoryStore(), list[int](), PermissionDeniedError("403")

    def request() -> bytes:
        tries.append(1)
        obstore.put(store, "commits/1.json", b"commit")
        if len(tries) == 1:
            raise refusal
        return b"commit"

    assert MissingObjects(cast("S3Store", store)).found("commits/1.json", request) == b"commit"
    assert len(tries) == 2


# --- the region -----------------------------------------------------------------------------------------------------

JOB_ARN = "arn:aws-us-gov:sagemaker:us-gov-west-1:123456789012:training-job/other-r0"


@pytest.fixture
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "TRAINING_JOB_ARN")
    for name in (*s3_store.CA_VARIABLES, *names):
        monkeypatch.delenv(name, raising=False)


def test_the_region_is_that_of_the_request() -> None:
    rows: list[tuple[dict[str, str], str | None]] = [
        ({"MUSTER_REGION": "eu-west-2"}, "eu-west-2"),
        # The request is about the run's bucket; another variable may be about anything.
        ({"MUSTER_REGION": "eu-west-2", "TRAINING_JOB_ARN": JOB_ARN, "AWS_REGION": "us-east-1"}, "eu-west-2"),
        ({"TRAINING_JOB_ARN": JOB_ARN, "AWS_REGION": "us-east-1"}, "us-gov-west-1"),
        ({"TRAINING_JOB_ARN": "nonsense", "AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
        ({}, None),
    ]
    for variables, region in rows:
        assert region_of(variables) == region, variables


@pytest.mark.usefixtures("_no_variables")
def test_a_store_needs_no_region_from_sagemaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_REGION", "cn-north-1")
    config = S3ObjectStore("bucket", "prefix/").client.config
    assert (config["region"], config["endpoint"]) == ("cn-north-1", "https://s3.cn-north-1.amazonaws.com.cn")
    # An endpoint of the environment comes first.
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3-fips.us-gov-west-1.amazonaws.com")
    assert S3ObjectStore("b", "").client.config["endpoint"] == "https://s3-fips.us-gov-west-1.amazonaws.com"


def test_every_region_that_botocore_knows_has_botocores_address() -> None:
    session = botocore.session.get_session()
    partitions = session.get_component("data_loader").load_data("partitions")["partitions"]
    expected = {
        region: f"https://s3.{region}.{partition['outputs']['dnsSuffix']}"
        for partition in partitions
        for region in session.get_available_regions("s3", partition["id"])
    }
    assert len(expected) > 30
    assert {region: s3_endpoint(region) for region in expected} == expected
