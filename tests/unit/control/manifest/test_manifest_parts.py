"""The parts of the manifest's resolver alone: reading an object in ranges, walking an archive, reading a manifest."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from muster.control.manifest.archive import manifest_member
from muster.control.manifest.manifest_content import URI_MAX, parse_manifest
from muster.control.manifest.manifest_errors import ManifestError, ManifestProblem
from muster.control.manifest.manifest_search import resolve_manifest
from muster.control.manifest.object_stream import FIRST_RANGE, ObjectSource
from muster.control.manifest.search_limits import Limits, check
from muster.control.runtime.time_budget import TimeBudget
from tests.memory import AwsError, Fault, throttle
from tests.memory.harness import ControlHarness, budget

KEY = "output/one/job/output/output.tar.gz"
LATE = bytes(range(256)) * (2 * FIRST_RANGE // 256)


def source(harness: ControlHarness, limits: Limits = Limits(), key: str = KEY) -> ObjectSource:  # noqa: B008 - frozen
    return ObjectSource(harness.cloud.client("s3"), "bucket", key, limits, budget())


def archive(*names: str) -> io.BufferedReader:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name in names:
            header = tarfile.TarInfo(name)
            header.size = len(name)
            tar.addfile(header, io.BytesIO(name.encode()))
    return io.BufferedReader(io.BytesIO(buffer.getvalue()))


def kind(error: pytest.ExceptionInfo[ManifestError]) -> ManifestProblem:
    return error.value.kind


# --- an object in ranges --------------------------------------------------------------------------


def test_an_object_is_read_whole_by_two_requests(harness: ControlHarness) -> None:
    harness.plane.store.create(KEY, LATE)
    with source(harness) as stream:
        assert (stream.size, stream.missing) == (len(LATE), False)
        assert io.BufferedReader(stream).read() == LATE
    assert [call["Range"] for call in harness.cloud.calls.of("GetObject")] == [
        f"bytes=0-{FIRST_RANGE - 1}",
        f"bytes={FIRST_RANGE}-",
    ]


@pytest.mark.parametrize(("body", "missing"), [(None, True), (b"", False)])
def test_an_object_that_is_missing_and_one_that_is_empty_are_distinguished(
    harness: ControlHarness, body: bytes | None, missing: bool
) -> None:
    if body is not None:
        harness.plane.store.create(KEY, body)
    with source(harness) as stream:
        assert (stream.missing, stream.size, stream.read()) == (missing, 0, b"")


def test_an_object_that_is_deleted_while_it_is_read_is_unavailable(harness: ControlHarness) -> None:
    harness.plane.store.create(KEY, LATE)
    with source(harness) as stream:
        harness.plane.store.s3.delete_object(Bucket="bucket", Key=KEY)
        with pytest.raises(ManifestError) as caught:
            io.BufferedReader(stream).read()
    assert kind(caught) is ManifestProblem.UNAVAILABLE
    assert "changed while it was read" in str(caught.value)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (throttle("GetObject"), ManifestProblem.UNAVAILABLE),
        (Fault("GetObject", AwsError("AccessDenied", "kms:Decrypt", 403)), ManifestProblem.DENIED),
    ],
)
def test_what_s3_refuses_is_never_an_absence(harness: ControlHarness, fault: Fault, problem: ManifestProblem) -> None:
    harness.plane.store.create(KEY, LATE)
    harness.cloud.calls.inject(fault)
    with pytest.raises(ManifestError) as caught:
        source(harness)
    assert kind(caught) is problem


def test_what_is_read_is_bounded(harness: ControlHarness) -> None:
    harness.plane.store.create(KEY, LATE)
    with source(harness, Limits(read_bytes=1_000)) as stream, pytest.raises(ManifestError) as caught:
        io.BufferedReader(stream).read()
    assert kind(caught) is ManifestProblem.OVERSIZE


@pytest.mark.usefixtures("harness")
def test_a_budget_that_is_spent_ends_the_search() -> None:
    check(budget(1), "uri")
    with pytest.raises(ManifestError) as caught:
        check(TimeBudget.of(0), "uri")
    assert kind(caught) is ManifestProblem.TIMEOUT


# --- an archive -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("harness")
def test_only_a_manifest_at_the_root_is_the_manifest() -> None:
    limits = Limits()
    assert manifest_member(archive("weights", "./manifest.json"), "uri", limits, budget()) == b"./manifest.json"
    assert manifest_member(archive("folder/manifest.json", "other.json"), "uri", limits, budget()) is None
    with pytest.raises(ManifestError) as caught:
        manifest_member(archive("../manifest.json"), "uri", limits, budget())
    assert kind(caught) is ManifestProblem.UNSAFE_PATH


@pytest.mark.parametrize(
    ("body", "problem"),
    [(b"no gzip", ManifestProblem.DAMAGED), (gzip.compress(b"no tar" * 200), ManifestProblem.DAMAGED)],
)
@pytest.mark.usefixtures("harness")
def test_what_is_no_archive_is_damaged(body: bytes, problem: ManifestProblem) -> None:
    with pytest.raises(ManifestError) as caught:
        manifest_member(io.BufferedReader(io.BytesIO(body)), "uri", Limits(), budget())
    assert kind(caught) is problem


# --- a manifest -----------------------------------------------------------------------------------


def test_a_foreign_manifest_names_its_checkpoint_and_no_more() -> None:
    assert parse_manifest(b'{"checkpoint_s3_bucket": " s3://bucket/final ", "x": 1}', "uri") == (
        "s3://bucket/final",
        None,
        None,
    )


def test_a_checkpoint_is_no_longer_than_an_s3_uri() -> None:
    longest = f"s3://{'b' * (URI_MAX - len('s3://'))}"
    assert parse_manifest(f'{{"checkpoint_s3_bucket": "{longest}"}}'.encode(), "uri")[0] == longest
    with pytest.raises(ManifestError) as caught:
        parse_manifest(f'{{"checkpoint_s3_bucket": "{longest}b"}}'.encode(), "uri")
    assert kind(caught) is ManifestProblem.NOT_A_MANIFEST


# --- the search -----------------------------------------------------------------------------------


def test_a_manifest_is_bounded_and_an_archive_may_be_without_one(harness: ControlHarness) -> None:
    store = harness.plane.store
    store.create("output/one/large/manifest.json", bytes(2_000))
    store.create("output/one/none/output/output.tar.gz", archive("weights").read())
    problems = []
    for job in ("large", "none"):
        with pytest.raises(ManifestError) as caught:
            resolve_manifest(store.s3, "s3://bucket/output/one", job, limits=Limits(manifest_bytes=1_000))
        problems.append(kind(caught))
    assert problems == [ManifestProblem.OVERSIZE, ManifestProblem.ABSENT]
